"""A stored run, taken up again: judged by other limits, never rewritten."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest


def limits(rig: Any, **values: float | None) -> None:
    (rig.path / "other_threshold.json").write_text(json.dumps({"expected_results": values}), "utf-8")


def test_k_alone_judges_the_last_run_again(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    before = {path: path.read_bytes() for path in rig.folder.iterdir() if path.is_file() and path.name != "run.json"}
    outcomes = rig.record()["stages"]

    output = rig.pytest("-k", "test_validate_thresholds", code=0)

    assert "PASSED: 2 of 2 gates held" in output
    assert rig.record()["stages"] == outcomes
    assert {path: path.read_bytes() for path in before} == before
    (judgement,) = rig.record()["judgements"]
    assert [stage["name"] for stage in judgement["stages"]] == ["test_validate_thresholds"]
    assert [c.get("name") for c in rig.junit("aorta_single-rejudged.xml").findall("testcase")] == [
        "test_validate_thresholds"
    ]
    assert len(rig.junit().findall("testcase")) == 10


def test_other_thresholds_beside_it_change_the_verdict(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    limits(rig, max_avg_iteration_ms=1.0)

    output = rig.pytest("-k", "test_validate_thresholds", "--aorta-thresholds=other_threshold.json", code=1)

    assert "[threshold] (metric=max_avg_iteration_ms)" in output
    assert "measured, bad: 1 of 1 gates failed: max_avg_iteration_ms" in output
    assert rig.record()["verdict"] == "passed"
    assert rig.record()["judgements"][0]["thresholds"]["max_avg_iteration_ms"] == 1.0


def test_limits_that_limit_nothing_are_refused(rig: Any) -> None:
    rig.configure()
    rig.run()
    limits(rig, max_avg_iteration_ms=None)
    output = rig.pytest("-k", "test_validate_thresholds", "--aorta-thresholds=other_threshold.json", code=4)
    assert "other_threshold.json: sets no limit, so that nothing would be judged" in output


def test_config_beside_it_changes_what_it_is_judged_by(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    rig.configure(gates=[{"metric": "step_time_ms_median", "kind": "max", "value": 0.5}])

    output = rig.run("--aorta-run=last", "-k", "test_validate_thresholds", code=1)

    assert "1 of 3 gates failed: step_time_ms_median" in output


def test_aorta_run_without_k_parses_judges_and_reports(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    prefix = rig.folder.name[:20]

    rig.pytest(f"--aorta-run={prefix}", code=0)

    (judgement,) = rig.record()["judgements"]
    assert [stage["name"] for stage in judgement["stages"]] == [
        "test_parse_results", "test_validate_thresholds", "test_generate_report",
    ]  # fmt: skip
    assert (rig.folder / "judgements").is_dir()


def test_live_stages_are_refused_on_a_stored_run(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)

    output = rig.pytest("--aorta-run=last", "-k", "test_run_benchmark", code=4)

    assert "test_run_benchmark needs live hosts" in output
    assert rig.record()["judgements"] == []


def test_unknown_run_is_refused(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)

    assert "no single run 'ffff'" in rig.pytest("--aorta-run=ffff", code=4)
    assert "changes a configuration file" in rig.pytest("--aorta-run=last", "--aorta-set", "gpus_per_node=1", code=4)


def test_without_a_last_run_k_is_pytests_own(rig: Any) -> None:
    (rig.path / "test_mine.py").write_text("def test_validate_thresholds(): pass\ndef test_b(): pass\n", "utf-8")

    output = rig.pytest("-k", "test_validate_thresholds", code=0)

    assert "1 passed, 1 deselected" in output


def test_with_a_path_k_is_pytests_own(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    (rig.path / "test_mine.py").write_text("def test_validate_thresholds(): pass\n", "utf-8")

    output = rig.pytest("-k", "test_validate_thresholds", "test_mine.py", code=0)

    assert "test_mine.py" in output
    assert rig.record()["judgements"] == []


def test_config_beside_k_judges_the_last_run_by_it_and_starts_none(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    rig.configure(gates=[{"metric": "step_time_ms_median", "kind": "max", "value": 0.5}])

    output = rig.run("-k", "test_validate_thresholds", code=1)

    assert "1 of 3 gates failed: step_time_ms_median" in output
    assert len(rig.record()["judgements"]) == 1
    assert "judged again 1 time(s)" in rig.aorta("runs", "show", "last", code=0)


def test_k_with_a_config_and_without_a_stored_run_is_refused(rig: Any) -> None:
    rig.configure()

    assert "judges a stored run, and aorta_reports/last_run.json names none" in rig.run(
        "-k", "test_validate_thresholds", code=4
    )
    assert not (rig.path / "aorta_results").exists()


def test_run_without_a_result_says_why_it_has_none(rig: Any) -> None:
    rig.configure("--no-traces")
    rig.run(code=1)

    output = rig.pytest("-k", "test_validate_thresholds", code=1)

    assert "does not have (test_collect_traces: " in output


def test_damaged_record_is_told_in_one_sentence(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    (rig.folder / "run.json").write_text('{"half": ', "utf-8")

    output = rig.pytest("-k", "test_validate_thresholds", code=4)

    assert "is damaged" in output
    assert "Traceback" not in output


def test_lost_run_folder_is_told_in_one_sentence(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    rig.folder.rename(rig.path / "moved")

    assert "the last run's folder" in rig.pytest("-k", "test_validate_thresholds", code=4)


def test_limits_of_the_command_line_are_enforced_whatever_the_run_said(rig: Any) -> None:
    rig.configure(enforce_thresholds=False, thresholds={})
    rig.run(code=0)
    strict = {"expected_results": {"max_avg_iteration_ms": 0.001}}
    (rig.path / "strict.json").write_text(json.dumps(strict), "utf-8")

    output = rig.pytest(f"--aorta-run={rig.folder.name}", "--aorta-thresholds=strict.json", code=1)

    assert "1 of 1 gates failed: max_avg_iteration_ms" in output
    assert f"pytest --aorta-run={rig.folder.name} --aorta-config=FILE judges this run by other limits" in output
    assert "max_avg_iteration_ms" in rig.run("--aorta-thresholds=strict.json", code=1)


def test_several_threshold_files_matter_only_where_one_is_enforced(rig: Any) -> None:
    rig.configure(threshold_json="", enforce_thresholds=False)
    for name in ("one_threshold.json", "two_threshold.json"):
        (rig.path / name).write_text(json.dumps({"expected_results": {"max_avg_iteration_ms": 1}}), "utf-8")

    rig.run(code=0)
    rig.configure(threshold_json="")

    assert "ambiguous" in rig.run(code=4)


def test_a_failed_run_that_is_judged_again_is_an_error_in_junit(rig: Any) -> None:
    rig.configure("--exit", "3")
    rig.run(code=1)

    output = rig.pytest("-k", "test_validate_thresholds", code=1)

    assert "FAILED: 2 of 2 gates held; but the run itself failed: test_run_benchmark: " in output
    for name in ("aorta_single-rejudged.xml", "aorta_single-rejudged-gates.xml"):
        suite = rig.junit(name)
        assert (suite.get("errors"), suite.get("failures")) == ("1", "0"), name
        (error,) = suite.findall("testcase[@name='run']/error")
        assert "the run itself failed: test_run_benchmark: " in error.get("message")


@pytest.mark.parametrize(
    ("thresholds", "sentence"),
    [
        ({"max_avg_iteration_ms": 1.0}, "FAILED: test_validate_thresholds: "),
        ({"min_overlap_ratio": 0.1}, "FAILED: test_validate_thresholds: "),
        ({"max_avg_iteration_ms": 5000.0}, "FAILED: 1 of 1 gates held; but "),
    ],
)
def test_whatever_a_failed_run_is_judged_by_its_failure_and_its_account_stay(
    rig: Any, thresholds: dict[str, float], sentence: str
) -> None:
    rig.configure("--exit", "3")
    rig.run(code=1)
    account = rig.verdict()["fault"]
    limits(rig, **thresholds)

    output = rig.pytest("-k", "test_validate_thresholds", "--aorta-thresholds=other_threshold.json", code=1)

    told = json.loads((rig.reports / "aorta_single-rejudged-verdict.json").read_text("utf-8"))
    assert sentence in output
    assert "the run itself failed: test_run_benchmark: " in told["sentence"]
    assert (told["verdict"], told["fault"]) == ("failed", account)
    assert account == "workload"


def test_an_older_run_is_not_judged_as_the_last_one(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    first = rig.folder
    shutil.copytree(first, first.with_name(f"{first.name}-kept"))
    assert first.name in rig.aorta("runs", "show", "last", code=0)
    rig.configure("--exit", "3")
    rig.run("--aorta-no-reports", code=1)
    (later,) = {path.name for path in first.parent.iterdir()} - {first.name, f"{first.name}-kept"}

    said = f"names {first.name} as the last run, but {first.parent} has a later one, {later}, which wrote its reports"
    assert f"--aorta-run: {rig.reports / 'last_run.json'} {said}" in rig.pytest(
        "-k", "test_validate_thresholds", code=4
    )
    assert f"has a later one, {later}" in rig.aorta("runs", "show", "last").replace("\n", " ")
    assert json.loads((first / "run.json").read_text("utf-8"))["judgements"] == []
