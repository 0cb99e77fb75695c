from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from pytest_aorta.checks import Bound, Check
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.json_report import (
    ClusterPart,
    ConfigurationPart,
    KernelLogPart,
    RankPart,
    benchmark_report,
    host_lines,
    sort_hosts,
    verdict_document,
    write_json,
)
from pytest_aorta.reporting.model import RunView, StageRow

SLOW = Check(
    label="[threshold] (metric=max_avg_iteration_ms)",
    state="failed",
    actual=20.0,
    unit="ms",
    gate=Bound(kind="max", limit=10, unit="ms"),
    reason="mean iteration 20.00 ms is above 10 ms",
)
NO_TRACE = Check(label="[trace collection] (host=b)", state="failed", host="b", reason="b gave nothing", fault="rig")
ECC = Check(
    label="[evidence] (host=c, check=ecc)", state="failed", host="c", reason="2 uncorrectable", next_step="drain"
)
DIED = Check(
    label="[execution]", state="failed", host="c", reason="rank 1 exited 1", fault="workload", next_step="read its log"
)
WARM = Check(label="power", state="warned", host="a", reason="power cap differs", subtest=False)


def view(*checks: Check, verdict: str = "failed", **more: object) -> RunView:
    return RunView(
        run_id="0" * 32,
        suite="aorta_single",
        verdict=verdict,  # type: ignore[arg-type]
        sentence="1 of 1 gates failed",
        stages=(StageRow("test_validate_thresholds", "failed", 0.1, "", tuple(checks)),),
        **more,  # type: ignore[arg-type]
    )


def test_benchmark_report_has_the_documented_keys_and_units() -> None:
    metrics = {
        "avg_iteration_time_ms": Metric(value=20.0, unit="ms", source="timeline"),
        "std_iteration_time_ms": Metric(value=0.25, unit="ms", source="timeline"),
        "avg_compute_ratio": Metric(value=0.5, unit="", source="timeline"),
        "avg_overlap_ratio": Metric(value=None, unit="", source="timeline", why="one rank"),
    }
    report = benchmark_report(
        view(SLOW, metrics=metrics),
        status="completed",
        validation_passed=False,
        duration_seconds=12.5,
        cluster=ClusterPart(nodes=2, gpus_per_node=8, total_gpus=16),
        configuration=ConfigurationPart(nccl_channels=112, rccl_branch="develop"),
        ranks=[RankPart(rank=0, total_time_us=20000.0, compute_ratio=0.5)],
        collection_errors={"b": "gone"},
        metrics_source="timeline",
        kernel_log=[KernelLogPart(host="b", class_name="ecc", severity="fatal", count=3, text="UE")],
    )
    assert list(report)[:9] == [
        "status",
        "validation_passed",
        "error_message",
        "collection_errors",
        "duration_seconds",
        "cluster",
        "configuration",
        "performance",
        "per_rank_summary",
    ]
    assert report["cluster"] == {"nodes": 2, "gpus_per_node": 8, "total_gpus": 16}
    assert report["configuration"] == {"nccl_channels": 112, "compute_channels": None, "rccl_branch": "develop"}
    assert report["performance"]["avg_iteration_time_ms"] == 20.0
    assert report["performance"]["std_iteration_time_us"] == 250.0
    assert report["performance"]["avg_overlap_ratio"] is None
    assert report["performance"]["avg_comm_ratio"] is None
    rank = report["per_rank_summary"][0]
    assert (rank["rank"], rank["total_time_us"], rank["compute_ratio"]) == (0, 20000.0, 0.5)
    assert report["thresholds"][0]["limit"] == 10
    assert report["collection_errors"] == {"b": "gone"}


def test_benchmark_report_refuses_a_number_json_cannot_hold() -> None:
    with pytest.raises(ValidationError):
        RankPart(rank=0, total_time_us=math.nan, compute_ratio=None)


def test_verdict_takes_the_first_failed_checks_account_and_names_hosts() -> None:
    document = verdict_document(view(WARM, ECC, NO_TRACE, SLOW))
    assert document["verdict"] == "failed"
    assert document["fault"] == "cluster"
    by_host = {entry["host"]: entry for entry in document["hosts"]}
    assert by_host["c"]["action"] == "drain"
    assert by_host["c"]["evidence"] == ["[evidence] (host=c, check=ecc): failed; 2 uncorrectable"]
    assert by_host["b"]["action"] == "inspect"
    assert by_host["a"]["action"] == "watch"


@pytest.mark.parametrize(
    ("run_view", "fault"),
    [
        (view(SLOW, verdict="passed"), "none"),
        (view(verdict="could_not_measure"), "rig"),
        (view(NO_TRACE, SLOW, verdict="could_not_measure"), "rig"),
        (view(NO_TRACE, SLOW), "cluster"),
        (view(SLOW, verdict="interrupted"), "none"),
        (view(DIED, ECC), "cluster"),
        (view(DIED, SLOW), "workload"),
    ],
)
def test_verdict_fault(run_view: RunView, fault: str) -> None:
    assert verdict_document(run_view)["fault"] == fault


def test_what_a_host_is_blamed_for_says_what_to_do_with_it() -> None:
    (suspect,) = verdict_document(view(DIED, ECC))["hosts"]
    assert suspect["action"] == "drain"
    assert [line.split(":")[0] for line in suspect["evidence"]] == ["[execution]", "[evidence] (host=c, check=ecc)"]


def test_only_the_clusters_failures_condemn_a_host_and_only_a_measured_run_clears_one() -> None:
    measured = {"step_time_ms_median": Metric(value=1.0, unit="ms", source="step log")}
    assert sort_hosts(view(ECC, NO_TRACE, WARM), ["a", "b", "c"]) == (("c",), ("a",))
    assert sort_hosts(view(DIED, metrics=measured), ["b", "c"]) == ((), ("b",))
    assert sort_hosts(view(ECC, verdict="could_not_measure"), ["a", "c"]) == (("c",), ())
    no_such_script = Check(label="[execution]", state="failed", reason="exited 2", fault="workload", subtest=False)
    assert sort_hosts(view(no_such_script), ["a", "b"]) == ((), ())
    of_some_rank = Check(label="[evidence] (check=step_log)", state="failed", reason="rank 1 ...", fault="workload")
    assert sort_hosts(view(of_some_rank, metrics=measured), ["a", "b"]) == ((), ())
    assert sort_hosts(view(no_such_script, metrics=measured), ["a", "b"]) == ((), ("a", "b"))
    unproven = Check(label="[trace collection] (host=a)", state="not_judged", host="a", reason="whether a trained")
    assert sort_hosts(view(unproven, verdict="passed", metrics=measured), ["a", "b"]) == ((), ("b",))
    apart = Check(label="[evidence] (check=communication)", state="failed", fault="workload", subtest=False)
    assert sort_hosts(view(apart, metrics=measured), ["a", "b"]) == ((), ())
    assert host_lines(["a1", "a2", "b"]) == "a[1-2],b\n"
    assert host_lines([]) == ""


def test_write_json_is_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "verdict.json"
    write_json(path, {"a": 1, "ä": "\ud800"})
    assert path.read_text(encoding="utf-8").endswith("}\n")
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1, "ä": "\ud800"}
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": math.inf})
    assert json.loads(path.read_text(encoding="utf-8"))["a"] == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["verdict.json"]


def test_write_json_leaves_no_part_when_the_place_is_taken(tmp_path: Path) -> None:
    (tmp_path / "verdict.json").mkdir()
    with pytest.raises(OSError, match=r"verdict\.json"):
        write_json(tmp_path / "verdict.json", {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["verdict.json"]
