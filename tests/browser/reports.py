"""Reports: a folder of report pages, made by real runs, with markup planted wherever text from outside is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "suite" / "sample_workload.py"
PLANT = '<script>alert("planted")</script><img src=x onerror=alert(1)><b style="color:red">&amp;</b>'
TERMINAL = "terminal.txt"
DEADLINE_S = 120

SPEAKING = """
import runpy, sys
print({plant!r}, flush=True)
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    sys.stderr.write("RuntimeError: " + {plant!r} + chr(10))
"""
# A session whose every text from outside is markup: host names, reasons, kernel lines, environment, paths.
PLANTED_CONFTEST = """
import pytest
from pytest_aorta.checks import Bound, Check
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.hints import find
from pytest_aorta.reporting.model import RunView, StageRow
from pytest_aorta.suite.html import HtmlRows
from pytest_aorta.suite.rows import STAGE_ROW, StageRows

PLANT = {plant!r}
ROWS = StageRows()
KERNEL = f"node{{PLANT}}: kernel log: amd_gpu_reset: amdgpu: GPU reset begin! {{PLANT}}"
CHECKS = (
    Check(label=f"[evidence] (host={{PLANT}}, check=kernel_log)", state="failed", host=PLANT, reason=KERNEL,
          next_step=PLANT),
    Check(label=f"[threshold] (metric={{PLANT}})", state="failed", actual=2.0, unit=PLANT, reason=PLANT,
          gate=Bound(kind="max", limit=1.0, unit=PLANT)),
)

def view():
    return RunView(
        run_id=PLANT, suite="aorta_single", verdict="failed", sentence=PLANT, stages=tuple(ROWS.by_nodeid.values()),
        metrics={{PLANT: Metric(value=1.0, unit=PLANT, source=PLANT), "x": Metric(value=None, why=PLANT, unit="",
                                                                                source="")}},
        environment=((PLANT, PLANT, f"javascript:{{PLANT}}"),), paths=((PLANT, PLANT),), next_step=PLANT,
        first_cause=KERNEL, not_judged=(PLANT,), notes=(PLANT,), hint=find(KERNEL),
    )

def pytest_configure(config):
    config.pluginmanager.register(ROWS)
    config.pluginmanager.register(HtmlRows(config, "aorta_single", view, ROWS.by_nodeid))

@pytest.fixture
def leave(request):
    def leave(outcome, reason, checks=()):
        row = StageRow(request.node.name, outcome, 1.5, reason, checks, ((PLANT, PLANT),), find(KERNEL))
        request.node.stash[STAGE_ROW] = row
    return leave
"""
PLANTED_TESTS = """
import logging
import pytest
from conftest import CHECKS, KERNEL, PLANT

def test_run_benchmark(leave):
    print(PLANT)
    logging.getLogger(PLANT).warning(PLANT)
    leave("failed", f"measured, bad: {KERNEL}", CHECKS)
    pytest.fail(f"measured, bad: {KERNEL}", pytrace=False)

def test_analyze(leave):
    leave("skipped", PLANT)
    pytest.skip(PLANT)

def test_of_a_user(subtests):
    with subtests.test(PLANT, host=PLANT):
        raise RuntimeError(PLANT)
"""


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of a few runs; each name is a folder below `root` with its report and the folder beside it."""

    root: Path

    @property
    def pages(self) -> list[Path]:
        """Every page that was made."""
        return sorted(self.root.glob("*/*.html")) + sorted(self.root.glob("*/*_html/*.html"))


def make_site(folder: Path) -> Site:
    """Make a run that misses gates, one whose rank fails, one that records only, and a session full of markup."""
    root = folder / "site"
    runs = folder / "runs"
    speaking = runs / "speaking.py"
    runs.mkdir(parents=True)
    speaking.write_text(SPEAKING.format(plant=PLANT), "utf-8")
    limits = {"max_avg_iteration_ms": 0.001, "max_time_variance_ratio": 0.5}
    said = [str(speaking), str(SAMPLE)]
    _run(runs / "gates", root / "gates", said, limits)
    _run(runs / "rank", root / "rank", [*said, "--exit", "3", "--steps", "3"], limits)
    _run(runs / "record", root / "record", said, None)
    planted = runs / "planted"
    planted.mkdir()
    (planted / "conftest.py").write_text(PLANTED_CONFTEST.format(plant=PLANT), "utf-8")
    (planted / "test_planted.py").write_text(PLANTED_TESTS, "utf-8")
    _pytest(planted, f"--html={root / 'planted' / 'aorta_single.html'}", "--self-contained-html", "test_planted.py")
    return Site(root)


def make_shown_site(folder: Path) -> Site:
    """Make a run that passes, one that misses a gate, one that records only, and one whose host has no GPUs."""
    root, runs = folder / "site", folder / "runs"
    runs.mkdir(parents=True)
    kept, missed = ({"max_avg_iteration_ms": most, "max_time_variance_ratio": 0.5} for most in (250.0, 3.5))
    for name, limits, fields in (
        ("pass", kept, {}), ("fail", missed, {}), ("record", None, {}), ("host", kept, {"accelerator": "rocm"}),
    ):  # fmt: skip
        _run(runs / name, root / name, [str(SAMPLE)], limits, **fields)
    return Site(root)


def _run(folder: Path, reports: Path, workload: list[str], limits: dict[str, float] | None, **fields: str) -> None:
    folder.mkdir()
    command = [sys.executable, *workload]
    config = {
        "schema_version": 1,
        "accelerator": "cpu",
        "gpus_per_node": 2,
        "threshold_json": "limits_threshold.json",
        "enforce_thresholds": limits is not None,
        "kernel_log": {"required": False},
        "timeout_seconds": 60,
        "workload": {"command": command, "traces": "out/torch_profiler/*/*"},
        "work_dir": str(folder / "work"),
        **fields,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "limits_threshold.json").write_text(json.dumps({"expected_results": limits or {}}), "utf-8")
    said = _pytest(folder, "--aorta-config=config.json", f"--aorta-report-dir={reports}")
    (reports / TERMINAL).write_text(said, "utf-8")


def _pytest(folder: Path, *arguments: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AORTA_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if done.returncode not in {0, 1}:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout
