"""The conclusion: the first failure first, and what to do with its path."""

from __future__ import annotations

from pathlib import Path

from pytest_aorta.checks import Bound, Check
from pytest_aorta.reporting.model import without_cause
from pytest_aorta.run.conclusion import conclude, next_step, not_judged
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.record import StageRecord

FOLDER = RunFolder(Path("/runs/01a2"))
SKIPPED = "a prior lifecycle stage failed: test_launch_container: a: no answer: Permission denied"
SLOW = Check(label="[threshold] (metric=x)", state="failed", actual=2.0, gate=Bound(kind="max", limit=1.0))


def failed(name: str, reason: str, *checks: Check) -> dict[str, StageRecord]:
    return {name: StageRecord(name=name, outcome="failed", reason=reason, failure="measured", checks=checks)}


def test_a_failure_is_told_before_what_stopped_pytest() -> None:
    stages = failed("test_validate_thresholds", "measured, bad: 1 of 1 gates failed: x", SLOW)
    verdict, sentence = conclude(stages, (), cut_short="pytest stopped before test_generate_report")
    assert verdict == "interrupted"
    assert sentence == ("test_validate_thresholds: 1 of 1 gates failed: x; pytest stopped before test_generate_report")


def test_the_next_step_has_the_path() -> None:
    gates = failed("test_validate_thresholds", "measured, bad: x", SLOW)
    assert "/runs/01a2/metrics.json" in next_step(gates, FOLDER)
    error = failed("test_parse_results", "could not measure: unexpected")
    assert next_step(error, FOLDER) == "read what test_parse_results said in /runs/01a2"
    assert next_step(error, FOLDER, "reports/aorta.log").endswith(" in reports/aorta.log")
    told = failed("test_clone_aorta", "could not measure: a: /x is no folder there; set aorta_path to where it is")
    told["test_clone_aorta"] = told["test_clone_aorta"].model_copy(update={"failure": "unmeasured"})
    assert next_step(told, FOLDER) == "set aorta_path to where it is"
    several = failed("test_clone_aorta", "could not measure: a: /x is absent; set aorta_path; b: /x is absent")
    several["test_clone_aorta"] = several["test_clone_aorta"].model_copy(update={"failure": "unmeasured"})
    assert next_step(several, FOLDER).startswith("read what test_clone_aorta said in ")
    folder = failed("test_launch_container", "could not measure: a: the folder /x cannot be written: Permission denied")
    assert next_step(folder, FOLDER).startswith("set work_dir, or HOME")


def test_a_cause_is_told_once_and_named_elsewhere() -> None:
    assert without_cause(SKIPPED) == "a prior lifecycle stage failed: test_launch_container"
    assert without_cause("skip_rccl_build=true: x: y") == "skip_rccl_build=true: x: y"
    stages = {
        "test_validate_thresholds": StageRecord(name="test_validate_thresholds", outcome="skipped", reason=SKIPPED)
    }
    assert list(not_judged(stages)) == ["thresholds (a prior lifecycle stage failed: test_launch_container)"]
