"""The whole lifecycle in a pytest of its own, with a workload that needs no torch."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_aorta.plugin import STAGE_TESTS
from pytest_aorta.table import STAGES, stages_of

SINGLE = [stage.test for stage in stages_of("single")]


def test_green_run(rig: Any) -> None:
    rig.configure()

    output = rig.run(code=0)

    assert rig.letters() == "PPSPPSPPPP"
    assert "PASSED: 2 of 2 gates held" in output
    assert str(rig.folder) in output
    assert rig.left_over() == []


def test_green_run_writes_the_run_folder(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    folder = rig.folder

    record = rig.record()
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))["metrics"]
    report = json.loads((folder / "aorta_benchmark_report.json").read_text("utf-8"))
    assert record["verdict"] == "passed"
    assert len(record["run_id"]) == 32
    assert metrics["avg_iteration_time_ms"]["value"] == pytest.approx(3.9905)
    assert metrics["avg_iteration_time_ms"]["unit"] == "ms"
    assert [v["value"] for v in metrics["total_time_us"]["per_rank"]] == [3990.0, 3991.0]
    assert metrics["step_time_ms_median"]["value"] == pytest.approx(1.1)
    assert metrics["avg_compute_ratio"]["value"] is None
    assert report["status"] == "completed"
    assert report["validation_passed"] is True
    assert report["cluster"] == {"nodes": 1, "gpus_per_node": 2, "total_gpus": 2}
    assert [r["rank"] for r in report["per_rank_summary"]] == [0, 1]
    assert json.loads((folder / "verdict.json").read_text("utf-8"))["fault"] == "none"
    assert (folder / "benchmark-node-0.log").read_text("utf-8").count('"aorta": "step"') == 60
    assert (folder / "traces/out/torch_profiler/rank1/sample_1.pt.trace.json").is_file()


def test_junit_has_one_testcase_a_stage_and_a_property_a_subtest(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)

    suite = rig.junit()
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == SINGLE
    assert {case.get("classname") for case in cases} == {"aorta_single"}
    assert suite.get("tests") == str(len(SINGLE) + 3)
    gates = next(case for case in cases if case.get("name") == "test_validate_thresholds")
    values = [p.get("value") for p in gates.iter("property") if p.get("name") == "cvs_aorta_subtest"]
    assert values == [
        "[threshold] (metric=max_avg_iteration_ms): passed; actual=3.99 ms; gate=max 5000 ms",
        "[threshold] (metric=max_time_variance_ratio): passed; actual=0.0002; gate=max 0.5",
    ]
    assert all(any(p.get("name") == "aorta.verdict" for p in case.iter("property")) for case in cases)


def test_missed_threshold_fails_its_subtest_and_its_parent_and_nothing_else(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 1.0, "max_time_variance_ratio": 0.5})

    output = rig.run(code=1)

    assert rig.letters() == "PPSPPSPFPP"
    assert rig.reason("test_validate_thresholds") == "measured, bad: 1 of 2 gates failed: max_avg_iteration_ms"
    assert "[threshold] (metric=max_avg_iteration_ms)" in output
    case = next(c for c in rig.junit().findall("testcase") if c.get("name") == "test_validate_thresholds")
    assert len(case.findall("failure")) == 2
    assert "(1 of 2 gates failed: max_avg_iteration_ms)" in ET_text(case)
    report = json.loads((rig.folder / "aorta_benchmark_report.json").read_text("utf-8"))
    assert report["validation_passed"] is False
    assert report["status"] == "completed"


def ET_text(case: Any) -> str:  # noqa: N802
    return " ".join([str(failure.get("message")) + str(failure.text) for failure in case.findall("failure")])


def test_failed_workload_names_its_exit_code_and_still_collects_and_reports(rig: Any) -> None:
    rig.configure("--exit", "13")

    rig.run(code=1)

    assert rig.letters() == "PPSFPSPSPP"
    assert "the workload exited 13" in rig.reason("test_run_benchmark")
    assert rig.reason("test_analyze").startswith("a prior lifecycle stage failed: test_run_benchmark: ")
    report = json.loads((rig.folder / "aorta_benchmark_report.json").read_text("utf-8"))
    assert (report["status"], report["validation_passed"]) == ("failed", False)
    assert "exited 13" in report["error_message"]


def test_workload_without_traces_fails_collection_and_leaves_a_minimal_report(rig: Any) -> None:
    rig.configure("--no-traces")

    rig.run(code=1)

    assert rig.letters() == "PPSPFSSSSP"
    assert "has no trace file" in rig.reason("test_collect_traces")
    assert rig.verdict()["fault"] == "config"
    case = next(c for c in rig.junit().findall("testcase") if c.get("name") == "test_collect_traces")
    values = [str(p.get("value")) for p in case.iter("property") if p.get("name") == "cvs_aorta_subtest"]
    assert values[0].startswith("[trace collection] (host=")
    assert values[1].startswith("[trace collection] (artifact=torch_traces): failed; ")
    assert (rig.folder / "aorta_benchmark_report.json").is_file()


def test_traces_that_a_failed_workload_could_not_write_give_no_advice_about_its_profiler(rig: Any) -> None:
    rig.configure("--exit", "13", "--no-traces")

    output = rig.run(code=1)

    assert rig.letters() == "PPSFFSSSSP"
    assert rig.reason("test_collect_traces").endswith("; the workload did not come to its end")
    assert not {"profiling", "profiled"} & set(output.split())


def test_hang_is_told_with_the_last_step_and_ended(rig: Any) -> None:
    rig.configure("--hang-at", "5", "--pid-file", "pids", "--ignore-term", stall_seconds=2)

    rig.run(code=1)

    reason = rig.reason("test_run_benchmark")
    assert "no step for" in reason
    assert "after step 4" in reason
    assert "hang (sample_workload.py:" in reason
    assert "most recent call first" in (rig.folder / "benchmark-node-0.log").read_text("utf-8")


def test_timeout_says_so(rig: Any) -> None:
    rig.configure("--hang-at", "3", timeout_seconds=2)

    rig.run(code=1)

    assert "no end within timeout_seconds=2" in rig.reason("test_run_benchmark")
    assert rig.verdict()["hosts"] == []
    report = json.loads((rig.folder / "aorta_benchmark_report.json").read_text("utf-8"))
    assert report["status"] == "timeout"


def test_workload_that_does_not_exist_is_a_broken_rig(rig: Any) -> None:
    rig.configure(workload={"command": ["no-such-program"], "traces": "out/*"})

    rig.run(code=1)

    assert rig.reason("test_run_benchmark").startswith("could not measure: ")
    assert "no-such-program" in rig.reason("test_run_benchmark")
    assert rig.record()["verdict"] == "could_not_measure"


def test_without_enforcement_thresholds_are_skipped_and_the_run_says_so(rig: Any) -> None:
    rig.configure(enforce_thresholds=False)

    output = rig.run(code=0)

    assert rig.reason("test_validate_thresholds") == (
        "enforce_thresholds=false; metrics are recorded without threshold assertions"
    )
    lines = output.splitlines()
    assert "PASSED: no stage failed; not judged: thresholds (enforce_thresholds=false)" in lines
    assert re.search(r"^measured:\n  step_time_ms_median +1\.10 ms$", output, re.MULTILINE)
    (step,) = [line for line in lines if line.startswith("next: ")]
    again = f"--aorta-run={rig.folder.name}"
    assert "docs/quickstart.md" in step
    assert again in step
    rig.configure(thresholds={"max_avg_iteration_ms": 1.0})
    assert "1 of 1 gates failed" in rig.run(again, code=1)


def test_what_was_measured_is_shown_once(rig: Any) -> None:
    rig.configure(enforce_thresholds=False)
    rig.run(code=0)
    assert rig.aorta("runs", "show", "last", code=0).count(" step_time_ms_median ") == 1


def test_limit_that_cannot_fail_counts_as_not_judged(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 5000.0, "min_overlap_ratio": 0.0})

    output = rig.run(code=0)

    assert "PASSED: 1 of 2 gates held; not judged: min_overlap_ratio" in output
    assert rig.record()["sentence"] == "1 of 2 gates held; not judged: min_overlap_ratio"


def test_missing_rank_is_named_and_the_others_are_still_measured(rig: Any) -> None:
    config = rig.configure("--ranks", "1")
    document = json.loads(config.read_text("utf-8"))
    document["workload"]["launcher"] = "none"
    config.write_text(json.dumps(document), "utf-8")

    rig.run(code=0)

    assert json.loads((rig.folder / "metrics.json").read_text("utf-8"))["metrics"]["total_time_us"]["value"] == 3990.0


def test_every_file_that_the_glob_names_is_collected(rig: Any) -> None:
    script = (
        "import json, os, pathlib\n"
        "rank = int(os.environ.get('RANK', 0))\n"
        "for rank in (0, 1):\n"
        "    folder = pathlib.Path(f'out/rank{rank}'); folder.mkdir(parents=True, exist_ok=True)\n"
        "    step = {'ph': 'X', 'cat': 'user_annotation', 'name': 'ProfilerStep#1', 'ts': 1.0, 'dur': 5000.0}\n"
        "    (folder / 'trace.json').write_text(json.dumps({'traceEvents': [step]}))\n"
    )
    (rig.path / "mine.py").write_text(script, "utf-8")
    rig.configure(workload={"command": ["python3", "mine.py"], "traces": "out/**/*.json"})

    rig.run(code=0)

    assert [rank["rank"] for rank in rig.record()["products"]["Result"]["ranks"]] == [0, 1]


def test_terminal_tells_each_stage_in_a_line_and_nothing_between(rig: Any) -> None:
    rig.configure(thresholds={"max_avg_iteration_ms": 1.0, "min_overlap_ratio": 0.0})

    output = rig.run(code=1)

    lines = output.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("[aorta +"))
    last = max(i for i, line in enumerate(lines) if line.startswith("[aorta +"))
    assert all(line.startswith("[aorta +") for line in lines[first : last + 1])
    assert '"aorta": "step"' not in output
    assert "traceback entries are hidden" not in output
    assert "failed     max_avg_iteration_ms  3.99 ms (max 1 ms): " in output


def test_stage_tests_and_table_have_the_same_names() -> None:
    assert {stage.test for stage in STAGES} == STAGE_TESTS


def test_existing_output_of_another_run_is_not_taken_for_ours(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    first = rig.folder
    rig.configure("--no-traces", output_dir="second")
    rig.run(code=1)

    (second,) = (rig.path / "second").iterdir()
    reason = json.loads((second / "run.json").read_text("utf-8"))["stages"]["test_collect_traces"]["reason"]
    assert "2 older ones were left alone" in reason
    assert first.is_dir()
