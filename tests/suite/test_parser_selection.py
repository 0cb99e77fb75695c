"""analysis.parser through a whole run: what is chosen, what is refused, and what the run's documents say of it."""

from __future__ import annotations

import importlib.util
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = Path(__file__).with_name("sample_workload.py")
EXCEL = "Aorta TraceLens Excel reports"
CPU_STEPS = "CPU steps of raw traces (no GPU events)"
needs_openpyxl = pytest.mark.skipif(
    importlib.util.find_spec("openpyxl") is None, reason="openpyxl is not installed (extra excel)"
)

REPORTS = """
import os, sys, openpyxl
from pathlib import Path
folder = Path(sys.argv[1]).parent / "tracelens_analysis" / "individual_reports"
folder.mkdir(parents=True, exist_ok=True)
for rank in range(2):
    book = openpyxl.Workbook()
    book.active.title = "gpu_timeline"
    for row in (("type", "time ms"), ("total_time", 10.0), ("computation_time", 5.0),
                ("exposed_comm_time", 1.0), ("total_comm_time", 2.0)):
        book.active.append(row)
    book.save(folder / f"perf_rank{rank}.xlsx")
    if "--old" in sys.argv:
        os.utime(folder / f"perf_rank{rank}.xlsx", (1, 1))
    if "--broken" in sys.argv:
        (folder / f"perf_rank{rank}.xlsx").write_bytes(b"PK")
"""


def checkout(rig: Any, parser: str, *arguments: str, analysis: bool = True) -> None:
    """A checkout whose analysis script writes reports, and a configuration that runs it."""
    folder = rig.path / "checkout"
    folder.mkdir()
    files = {
        "launch.sh": f"exec {sys.executable} {WORKLOAD} --steps 5\n",
        "analyze.sh": f'exec {sys.executable} "$(dirname "$0")/reports.py" "$1" {" ".join(arguments)}\n',
        "reports.py": REPORTS,
        "base.yaml": "a: 1\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod((folder / name).stat().st_mode | stat.S_IXUSR)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(folder)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    path = rig.configure(
        aorta_path=str(folder),
        base_config="base.yaml",
        experiment_script="launch.sh",
        skip_rccl_build=True,
        analysis={"enable_tracelens": analysis, "tracelens_script": "analyze.sh", "parser": parser},
    )
    document = json.loads(path.read_text("utf-8"))
    del document["workload"]
    path.write_text(json.dumps(document), "utf-8")


def result(rig: Any) -> dict[str, Any]:
    return dict(rig.record()["products"]["Result"])


def metrics(rig: Any) -> dict[str, Any]:
    return dict(json.loads((rig.folder / "metrics.json").read_text("utf-8"))["metrics"])


@needs_openpyxl
def test_auto_takes_the_reports_of_a_single_node_whose_analysis_is_on(rig: Any) -> None:
    checkout(rig, "auto")

    rig.run(code=0)

    assert result(rig)["source"] == EXCEL
    assert [row["source"] for row in result(rig)["ranks"]] == [EXCEL, EXCEL]
    found = metrics(rig)
    assert (found["avg_iteration_time_ms"]["value"], found["avg_comm_ratio"]["value"]) == (10.0, 0.1)
    assert found["avg_iteration_time_ms"]["source"] == f"{EXCEL}; whole trace, an unknown number of profiled steps"


def test_auto_is_the_timeline_when_analysis_is_off(rig: Any) -> None:
    checkout(rig, "auto", analysis=False)

    rig.run(code=0)

    assert result(rig)["source"] == CPU_STEPS


@needs_openpyxl
@pytest.mark.parametrize(
    ("argument", "why"),
    [("--old", "2 of 2 reports are older than the traces"), ("--broken", "is no Excel workbook that can be read")],
)
def test_auto_says_why_reports_were_not_taken(rig: Any, argument: str, why: str) -> None:
    checkout(rig, "auto", argument)

    output = rig.run(code=0)

    assert result(rig)["source"] == CPU_STEPS
    assert why in output


@needs_openpyxl
def test_asked_for_reports_that_are_not_there_fail_the_stage(rig: Any) -> None:
    checkout(rig, "excel", "--old")

    rig.run(code=1)

    assert "no Excel report of this run: 2 of 2 reports are older" in rig.reason("test_parse_results")


def test_basic_is_what_it_is_asked_to_be(rig: Any) -> None:
    rig.configure("--steps", "5", analysis={"parser": "basic"})

    rig.run(code=0)

    assert result(rig)["source"] == "Basic raw-trace scan"


@pytest.mark.skipif(importlib.util.find_spec("TraceLens") is not None, reason="TraceLens is installed here")
def test_what_is_not_installed_is_refused_before_anything_starts(rig: Any) -> None:
    rig.configure(analysis={"parser": "tracelens"})

    output = rig.run(code=4)

    assert "analysis.parser: TraceLens is not installed here; install it from its own repository" in output
    assert "on this machine will be refused: analysis.parser: TraceLens" in rig.aorta("config", "check", "config.json")


def test_tracelens_is_named_with_the_place_it_came_from(rig: Any) -> None:
    package = rig.path / "packages" / "TraceLens"
    package.mkdir(parents=True)
    rows = {"total_time": 4.0, "computation_time": 3.0, "exposed_comm_time": 0.5, "total_comm_time": 1.0}
    table = {"type": list(rows), "time ms": list(rows.values())}
    code = f"def generate_perf_report_pytorch(**options):\n    return {{'gpu_timeline': {table}}}\n"
    (package / "__init__.py").write_text(code, "utf-8")
    rig.configure("--steps", "5", analysis={"parser": "tracelens"})

    output = rig.run("-o", "pythonpath=packages", code=0)

    assert result(rig)["source"] == "TraceLens on raw traces (basic-scan fallback possible per rank)"
    assert f"TraceLens is that of {package / '__init__.py'}" in output
