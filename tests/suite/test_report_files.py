"""Report files: what stands in the report folder and in the bundle is of this run, and of no run before it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

BREAKER = """
import logging
from pathlib import Path

class Breaker(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "test_parse_results begins":
            {does}

def pytest_configure(config):
    logging.getLogger("pytest_aorta").addHandler(Breaker())
"""


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def newest_bundle(rig: Any, stem: str = "aorta_single") -> dict[str, str]:
    found = max(rig.reports.glob(f"{stem}_*.zip"), key=lambda path: path.stat().st_mtime_ns)
    with zipfile.ZipFile(found) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_reports_and_bundle_of_a_run_hold_nothing_of_the_runs_before(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    green = newest_bundle(rig)
    assert json.loads(green["verdict.json"])["verdict"] == "passed"
    rig.configure(thresholds={"max_avg_iteration_ms": 0.5})
    rig.run("-k", "test_validate_thresholds", code=1)

    judged = newest_bundle(rig, "aorta_single-rejudged")

    assert json.loads(judged["verdict.json"])["verdict"] == "failed"
    assert json.loads(judged["run.json"])["verdict"] == "passed"
    assert "aorta_single-rejudged.html" in judged
    told = json.loads((rig.reports / "aorta_single-rejudged-verdict.json").read_text("utf-8"))
    assert told["verdict"] == "failed"

    before = files_of(rig.reports)
    (rig.path / "test_broken.py").write_text("import no_such_module\n", "utf-8")
    assert "no stage is selected" not in rig.run("test_nowhere.py", code=4) + rig.run("test_broken.py", code=2)
    rig.run("--fixtures", code=0)
    assert "--junitxml: /proc/nope/x.xml cannot be written" in rig.run("--junitxml=/proc/nope/x.xml", code=4)
    assert files_of(rig.reports) == before

    rig.configure("--exit", "3")
    output = rig.run("--html=other/r.html", "--junitxml=other/j.xml", code=1)

    assert f"HTML report: {rig.path}/other/r.html" in output
    left = {path.name for path in rig.reports.iterdir() if path.suffix != ".zip"}
    assert left == {
        "aorta_single-gates.xml", "aorta_single.log", "aorta_single_html", "failing_nodes.txt", "good_nodes.txt",
        "last_run.json", "verdict.json", "aorta_single-rejudged_html",
    }  # fmt: skip
    assert [*(rig.reports / "aorta_single_html").iterdir()] == []
    packed = newest_bundle(rig)
    assert {"r.html", "j.xml", "aorta_single_html/aorta_run_deck.html", "aorta_single-gates.xml"} <= set(packed)
    assert {"aorta_single.html", "aorta_single.xml"}.isdisjoint(packed)
    assert 'failures="1"' in packed["j.xml"]
    assert "FAILED" in packed["aorta_single_html/aorta_run_deck.html"]

    for other in ("aorta_distributed.html", "aorta_distributed_html/aorta_run_deck.html", "aorta_single-rejudged.log"):
        (rig.reports / other).parent.mkdir(exist_ok=True)
        (rig.reports / other).touch()
    rig.run("-p", "no:html", code=1)

    left = {str(path.relative_to(rig.reports)) for path in rig.reports.rglob("*") if path.is_file()}
    assert [name for name in left if "distributed" in name or ("rejudged" in name and not name.endswith(".zip"))] == []
    packed = newest_bundle(rig)
    assert 'failures="1"' in packed["aorta_single.xml"]
    assert [name for name in packed if name.endswith(".html")] == []


def test_a_report_never_takes_the_place_of_another_file(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    before = files_of(rig.path)
    limits = "limits_threshold.json"

    assert "r.xml is --html already; name another file" in rig.run("--html=r.xml", "--junitxml=r.xml", code=4)
    assert "verdict.json is our verdict.json already" in rig.run("--junitxml=aorta_reports/verdict.json", code=4)
    for more in ((), ("--aorta-no-reports",), ("-k", "test_validate_thresholds")):
        output = rig.run(f"--junitxml={limits}", f"--aorta-thresholds={limits}", *more, code=4)
        assert f"{limits} is the " in output

    assert files_of(rig.path) == before


@pytest.mark.parametrize("name", ["aorta_single.log", "aorta_single.xml", "verdict.json", "last_run.json"])
def test_a_folder_in_a_reports_place_is_refused_before_anything_runs(rig: Any, name: str) -> None:
    rig.configure()
    (rig.reports / name).mkdir(parents=True)

    output = rig.run(code=4)

    assert f"--aorta-report-dir: {rig.reports / name} is a folder where a file is to be written" in output
    assert "INTERNALERROR" not in output
    assert not (rig.path / "aorta_results").exists()


@pytest.mark.parametrize(
    ("options", "flag"), [([], "--aorta-report-dir"), (["--html=aorta_reports/x.html", "--aorta-no-reports"], "--html")]
)
def test_a_file_in_the_place_of_the_pages_is_refused_before_anything_runs(
    rig: Any, options: list[str], flag: str
) -> None:
    rig.configure()
    rig.reports.mkdir()
    (rig.reports / "aorta_single_html").write_text("mine", "utf-8")

    output = rig.run(*options, code=4)

    assert f"{flag}: {rig.reports / 'aorta_single_html'} is no folder, and pages are to be written there" in output
    assert not (rig.path / "aorta_results").exists()


def test_a_report_that_cannot_be_written_at_the_end_is_named_and_costs_no_other(rig: Any) -> None:
    rig.configure()
    does = 'Path("aorta_reports/aorta_single.xml").mkdir()'
    (rig.path / "breaker.py").write_text(BREAKER.format(does=does), "utf-8")

    output = rig.run("-p", "breaker", code=1)

    assert "PASSED:" in output
    assert f"aorta: {rig.reports}/aorta_single.xml could not be written: Is a directory; see that it is" in output
    packed = newest_bundle(rig)
    assert "2 of 2 gates held" in packed["aorta_single.html"]
    assert "aorta_single-gates.xml" in packed


def test_a_report_folder_that_was_removed_during_the_run_is_made_again(rig: Any) -> None:
    rig.configure()
    does = '__import__("shutil").rmtree("aorta_reports")'
    (rig.path / "breaker.py").write_text(BREAKER.format(does=does), "utf-8")

    output = rig.run("-p", "breaker", code=0)

    assert "aorta_single.log" not in output
    assert json.loads((rig.reports / "last_run.json").read_text("utf-8"))["run_id"] == rig.folder.name
    assert {"verdict.json", "run.json", "aorta_single.xml"} <= set(newest_bundle(rig))
