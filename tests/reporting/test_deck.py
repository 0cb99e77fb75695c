"""The deck's document: verdicts, cards and keys, of runs made with the product's own models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.checks import Bound, Check
from pytest_aorta.reporting.deck import ALL_PASSED, SOME_FAILED, build_deck
from pytest_aorta.reporting.deck_document import DeckDocument
from pytest_aorta.reporting.deck_gates import Limit, gate_text
from pytest_aorta.reporting.deck_page import DeckPlace, render_deck
from pytest_aorta.run.deck import draw, facts_of
from pytest_aorta.run.products import Execution, Result, Straggler
from tests.reporting.deck_runs import LABELS, MadeRun, begin, broken_run, make_run
from tests.reporting.json_schema import faults

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "deck.schema.json"
THRESHOLDS = "test_validate_thresholds"
# The keys that readers of the published document rely on.
KEYS = {
    "schema_version", "suite_id", "generated_at", "cvs_version", "overall_status", "report", "run_card_display",
    "run_card_notes", "provenance", "lifecycle", "cells", "gate_matrix", "results_table", "datasets", "panels",
    "deck_profile", "summary",
}  # fmt: skip


def deck_of(run: MadeRun, page: str = "deck.html") -> DeckDocument:
    return build_deck(facts_of(run.record, run.folder, DeckPlace(run.folder.path / page, LABELS)))


def card(deck: DeckDocument) -> dict[str, str]:
    return {label: value for label, value, _ in deck.run_card_display}


@pytest.mark.parametrize(
    ("state", "status", "thresholds", "tiers"),
    [
        ("pass", "pass", "enforced", ["pass", "pass", "pass", "pass", "record"]),
        ("fail", "fail", "enforced", ["fail", "fail", "fail", "pass", "record"]),
        ("record", "record", "record-only", ["record"] * 5),
    ],
)
def test_status_follows_the_thresholds(
    tmp_path: Path, state: Any, status: str, thresholds: str, tiers: list[str]
) -> None:
    deck = deck_of(make_run(tmp_path, ranks=64, state=state))
    assert (deck.overall_status, card(deck)["Thresholds"]) == (status, thresholds)
    (row,) = deck.gate_matrix.rows
    assert [row.values[tier] for tier in deck.gate_matrix.tiers] == tiers
    assert deck.gate_matrix.tiers == ("iteration_time", "compute_ratio", "overlap_ratio", "rank_balance", "record")


def test_a_run_without_metrics_has_a_deck_that_says_na(tmp_path: Path) -> None:
    deck = deck_of(broken_run(tmp_path))
    assert (deck.overall_status, deck.thresholds_state) == ("na", "not evaluated")
    assert (deck.cells, deck.gate_matrix.rows, deck.results_table.rows) == ((), (), ())
    shown = card(deck)
    assert shown["Metrics source"] == "—"
    assert shown["max_avg_iteration_ms"] == "NOT EVALUATED · n/a (limit ≤ 1,500.00 ms)"
    assert "Nodes" not in shown
    assert [panel.id for panel in deck.panels] == ["next-steps", "run-card", "lifecycle", "environment"]
    (failure,) = deck.summary.failures
    assert (failure.host, failure.next_step) == ("gpu-0002", "drain gpu-0002 and look for Xid 79")


@pytest.mark.parametrize("outcome", ["failed", "skipped", "interrupted"])
def test_a_judging_that_broke_off_is_not_evaluated(tmp_path: Path, outcome: Any) -> None:
    run = make_run(tmp_path, ranks=16)
    run.stage(THRESHOLDS, outcome, "could not measure: unexpected")
    deck = deck_of(run)
    assert (deck.overall_status, deck.thresholds_state) == ("record", "not evaluated")
    assert set(deck.gate_matrix.rows[0].values.values()) == {"record"}
    assert card(deck)["min_compute_ratio"].startswith("NOT EVALUATED · 0.")


def test_another_stage_that_failed_leaves_the_status(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=16)
    assert card(deck_of(run))["Pytest stages"] == ALL_PASSED
    run.stage("test_teardown", "failed", "measured, bad: gpu-0001: chown failed")
    deck = deck_of(run)
    assert (deck.overall_status, card(deck)["Pytest stages"]) == ("pass", SOME_FAILED)


def test_a_tier_without_threshold_is_na_and_own_gates_have_a_tier_of_their_own(tmp_path: Path) -> None:
    gates = [{"metric": "step_time_ms_p95", "kind": "max", "value": 1.0}]
    deck = deck_of(make_run(tmp_path, ranks=16, limits={"min_compute_ratio": 0.6}, gates=gates))
    values = deck.gate_matrix.rows[0].values
    assert values == {
        "iteration_time": "na", "compute_ratio": "pass", "overlap_ratio": "na", "rank_balance": "na", "gates": "fail",
        "record": "record",
    }  # fmt: skip
    assert deck.overall_status == "fail"
    assert card(deck)["step_time_ms_p95"].startswith("FAIL · 20")


def test_of_a_gate_over_each_rank_the_worst_is_shown(tmp_path: Path) -> None:
    gates = [{"metric": "profiled_step_time_ms_max", "kind": "max", "value": 200.0, "over": "each"}]
    run = make_run(tmp_path, ranks=16, gates=gates)
    deck = deck_of(run)
    (spec,) = [one.spec for one in deck.cells[0].metrics if one.metric == "training.profiled_step_time_ms_max"]
    assert spec is not None
    values = [one.value for one in run.folder.read_metrics()["profiled_step_time_ms_max"].per_rank if one.value]
    over = sum(value > 200 for value in values)
    assert (spec.verdict, spec.actual) == ("fail", max(values))
    assert f"; and {over - 1} more ranks" in spec.reason
    failures = [one for one in deck.summary.failures if one.rank is not None]
    assert len(failures) == over
    assert all(one.host == f"gpu-000{one.rank // 8}" for one in failures if one.rank is not None)


def test_gates_of_one_limit_over_different_ranks_have_a_verdict_each(tmp_path: Path) -> None:
    gates = [{"metric": "step_time_ms_p95", "kind": "max", "value": 1.5, "over": over} for over in ("min", "max")]
    run = make_run(tmp_path, ranks=2, gates=gates)
    least = Check(label="[threshold] (metric=step_time_ms_p95)", state="passed", actual=1.0, unit="ms",
                  gate=Bound(kind="max", limit=1.5, unit="ms", over="min"))  # fmt: skip
    largest = least.model_copy(
        update={"state": "failed", "actual": 2.0, "gate": Bound(kind="max", limit=1.5, unit="ms", over="max")}
    )
    run.stage(THRESHOLDS, "failed", "measured, bad: 1 of 2 gates failed", (least, largest))
    specs = [one.spec for one in deck_of(run).cells[0].metrics if one.metric == "training.step_time_ms_p95"]
    assert [(spec.verdict, spec.actual) for spec in specs if spec is not None] == [("pass", 1.0), ("fail", 2.0)]


def test_one_more_rank_is_told_as_one(tmp_path: Path) -> None:
    limit = Bound(kind="max", limit=10.0, unit="ms")
    late = tuple(
        Check(label=f"[threshold] (metric=step_time_ms_p95, rank={rank})", state="failed", actual=11.0 + rank,
              unit="ms", gate=limit, reason=f"rank {rank} is late")
        for rank in range(2)
    )  # fmt: skip
    run = make_run(tmp_path, ranks=2)
    run.stage(THRESHOLDS, "failed", "measured, bad: 1 of 1 gates failed", late)
    [spec] = [one.spec for one in deck_of(run).cells[0].metrics if one.metric == "training.step_time_ms_p95"]
    assert spec is not None
    assert spec.reason == "rank 1 is late; and 1 more rank"


def test_a_rank_that_ended_is_told_with_its_host(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=16)
    ended = Check(label="[execution] (phase=benchmark)", state="failed", host="gpu-0001", subtest=False,
                  reason="gpu-0001: rank 9 exited 13: RuntimeError: planned")  # fmt: skip
    run.stage("test_run_benchmark", "failed", f"measured, bad: {ended.reason}", (ended,))
    (failure,) = deck_of(run).summary.failures
    assert (failure.host, failure.rank) == ("gpu-0001", 9)


def test_every_verdict_is_the_check_s_own(tmp_path: Path) -> None:
    """A check that says passed is shown as passed, whatever its numbers are: nothing is judged again."""
    run = make_run(tmp_path, ranks=16, limits={"max_avg_iteration_ms": 10.0})
    label = "[threshold] (metric=max_avg_iteration_ms)"
    gate = Bound(kind="max", limit=10.0, unit="ms")
    run.stage(THRESHOLDS, "passed", checks=(Check(label=label, state="passed", actual=99.0, unit="ms", gate=gate),))
    deck = deck_of(run)
    assert deck.overall_status == "pass"
    assert card(deck)["max_avg_iteration_ms"] == "PASS · 99.00 ms (limit ≤ 10.00 ms)"


def test_run_card_rows_in_order(tmp_path: Path) -> None:
    labels = list(card(deck_of(make_run(tmp_path, ranks=16))))
    assert labels == [
        "Workload", "Framework", "Image", "Nodes", "GPUs/node", "NCCL channels", "RCCL branch", "Metrics source",
        "Thresholds", "max_avg_iteration_ms", "min_compute_ratio", "min_overlap_ratio", "max_time_variance_ratio",
        "Pytest stages", "Pytest report", "Run log", "CVS version", "Generated", "Run", "Config file",
    ]  # fmt: skip


def test_results_and_metrics(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=16)
    deck = deck_of(run)
    assert deck.results_table.headers == (
        "Model", "Nodes", "GPUs/node", "NCCL channels", "RCCL branch", "Ranks", "Avg iter (ms)",
        "Iter std across ranks (ms)", "Min rank iter (ms)", "Max rank iter (ms)", "Time variance", "Compute (ms)",
        "Comm time (ms)", "Compute ratio", "Comm ratio", "Overlap ratio",
    )  # fmt: skip
    (row,) = deck.results_table.rows
    assert row[:6] == ("llama-3-8b-fsdp2", 2, 8, 112, "develop (not built)", 16)
    actuals, metrics = deck.cells[0].actuals, run.folder.read_metrics()
    assert actuals["training.avg_iteration_time_ms"] == metrics["avg_iteration_time_ms"].value
    assert 0 < actuals["training.avg_compute_ratio"] < 1
    times = [one.total_time_us for one in _result_rows(run)]
    ratios = [one.compute_ratio for one in _result_rows(run)]
    by_hand = sum(t * r / 1000 for t, r in zip(times, ratios, strict=True)) / 16
    assert actuals["training.avg_compute_time_ms"] == pytest.approx(by_hand)
    assert [series.key for series in deck.datasets.training_sweep.metric_charts.series] == [
        "iteration_ms", "compute_ms", "comm_ms", "compute_share", "comm_share", "comm_overlap",
    ]  # fmt: skip
    share = deck.datasets.training_sweep.metric_charts.series[3].y[0]
    assert share is not None
    assert ratios[0] is not None
    assert share == pytest.approx(ratios[0] * 100)


def _result_rows(run: MadeRun) -> Any:
    result = run.record.product(Result)
    assert isinstance(result, Result)
    return result.ranks


def test_lifecycle_has_labels_and_no_skipped_stage(tmp_path: Path) -> None:
    deck = deck_of(make_run(tmp_path, ranks=16))
    assert list(deck.lifecycle) == [
        "container_launch", "clone", "rdma_setup", "benchmark", "collect_traces", "parse", "thresholds", "report",
        "teardown",
    ]  # fmt: skip
    assert list(deck.report.session_lifecycle_labels.values()) == [stage.label for stage in deck.stages]


def test_the_straggler_comes_with_its_host(tmp_path: Path) -> None:
    deck = deck_of(make_run(tmp_path, ranks=64, state="fail"))
    assert deck.summary.straggler is not None
    assert (deck.summary.straggler.rank, deck.summary.straggler.host) == (33, "gpu-0004")
    assert (deck.summary.worst_ranks[0].rank, deck.summary.worst_ranks[0].host) == (33, "gpu-0004")
    assert len(deck.summary.worst_ranks) == 10


def test_no_host_is_named_for_a_rank_that_the_workload_placed_itself(tmp_path: Path) -> None:
    own = {"command": ["./train"], "launcher": "none", "traces": "out/*"}
    deck = deck_of(make_run(tmp_path, ranks=64, state="fail", workload=own))
    assert deck.summary.straggler is not None
    assert (deck.summary.straggler.rank, deck.summary.straggler.host) == (33, None)
    assert {rank.host for rank in deck.summary.worst_ranks} == {None}
    assert dict(zip(deck.results_table.headers, deck.results_table.rows[0], strict=True))["GPUs/node"] == 8


def test_straggler_kernel_log_and_commit_come_from_what_stages_handed_on(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=16, state="fail")
    result = Result.model_validate(run.record.products["Result"])
    late = Straggler(rank=3, kind="host", caused_delay_ms_per_step=9.0, text="said in other words")
    run.keeper.product(result.model_copy(update={"straggler": late}))
    execution = Execution.model_validate(run.record.products["Execution"])
    run.keeper.product(execution.model_copy(update={"workload": "git:0123abcd"}))
    deck = deck_of(run)
    assert deck.summary.straggler is not None
    assert (deck.summary.straggler.rank, deck.summary.straggler.text) == (3, "said in other words")
    assert [(line.host, line.state) for line in deck.kernel_log] == [("gpu-0000", "warned")]
    assert deck.provenance.git_commit == "0123abcd"
    assert card(deck)["Workload commit"] == "0123abcd"
    run.keeper.product(execution.model_copy(update={"workload": "sha256:99"}))
    assert deck_of(run).provenance.git_commit is None


def test_the_hint_has_its_likely_cause_and_severity(tmp_path: Path) -> None:
    deck = deck_of(make_run(tmp_path / "bad", ranks=2, state="fail"))
    assert deck.summary.hint is not None
    page = render_deck(deck)
    assert f"<dt>Likely</dt><dd>{deck.summary.hint.cause} " in page
    assert f'severity-{deck.summary.hint.severity}">' in page
    assert deck_of(make_run(tmp_path / "good", ranks=2)).summary.hint is None


def test_step_times_say_how_many_hosts_they_are_of(tmp_path: Path) -> None:
    assert "Of 64 ranks on all hosts, from the step logs." in render_deck(deck_of(make_run(tmp_path / "a", ranks=64)))
    assert "Of 64 ranks on 8 of 10 hosts, from the step logs." in render_deck(
        deck_of(make_run(tmp_path / "b", ranks=80))
    )


def test_differing_hosts_are_told_apart(tmp_path: Path) -> None:
    deck = deck_of(make_run(tmp_path, ranks=64))
    rows = {row.name: row.values for row in deck.host_environment}
    assert [(one.value, len(one.hosts)) for one in rows["kernel"]] == [("6.8.0-60", 7), ("6.8.0-41", 1)]
    assert rows["kernel"][1].hosts == ("gpu-0007",)
    assert [one.value for one in rows["memory_bytes"]] == ["2164 GiB"]
    assert not {"boot_id", "wall_ns", "hostname"} & rows.keys()


def test_one_rank_has_no_breakdown(tmp_path: Path) -> None:
    deck = deck_of(make_run(tmp_path, ranks=1))
    assert deck.datasets.training_sweep.metric_charts.series == ()
    assert "ranks" not in [panel.id for panel in deck.panels]


@pytest.mark.parametrize("what", ["pass", "fail", "record", "broken"])
def test_the_document_is_what_its_schema_says(tmp_path: Path, what: Any) -> None:
    run = broken_run(tmp_path) if what == "broken" else make_run(tmp_path, ranks=16, state=what)
    where = DeckPlace(tmp_path / "deck.html", LABELS, html=tmp_path / "aorta.html")
    assert draw(run.record, run.folder, where) == ""
    document = json.loads(where.data.read_text("utf-8"), parse_constant=pytest.fail)
    schema = json.loads(SCHEMA.read_text("utf-8"))
    assert list(faults(document, schema, schema)) == []
    assert document.keys() >= KEYS
    assert document["schema_version"] == 1
    assert document["provenance"]["pytest_html_href"] == "aorta.html"
    document["overall_status"] = "great"
    del document["cells"]
    said = ["$: no cells", "$.overall_status: 'great' is not one of ['pass', 'fail', 'record', 'na']"]
    assert list(faults(document, schema, schema)) == said


def test_secrets_stay_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=16)
    run.stage("test_teardown", "failed", "measured, bad: login with planted-token-1234 was refused")
    where = DeckPlace(tmp_path / "deck.html", LABELS)
    assert draw(run.record, run.folder, where) == ""
    for path in (where.page, where.data):
        assert "planted-token-1234" not in path.read_text("utf-8")
    assert "<redacted>" in where.data.read_text("utf-8")


def test_a_deck_that_cannot_be_drawn_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = begin(tmp_path, hosts=["a"], ranks_per_host=2)
    (tmp_path / "file").write_text("")
    why = draw(run.record, run.folder, DeckPlace(tmp_path / "file" / "deck.html", LABELS))
    assert why.startswith("deck could not be drawn: ")
    run.record.config["gpus_per_node"] = "many"
    assert "gpus_per_node" in draw(run.record, run.folder, DeckPlace(tmp_path / "deck.html", LABELS))
    assert caplog.text.count("deck could not be drawn") == 2


def test_gate_texts() -> None:
    slow = Limit("max_avg_iteration_ms", "avg_iteration_time_ms", "max", 12500.0)
    assert gate_text(slow, "pass", 12345.678, "ms") == "PASS · 12,345.68 ms (limit ≤ 12,500.00 ms)"
    ratio = Limit("min_compute_ratio", "avg_compute_ratio", "min", 0.01)
    assert gate_text(ratio, "record", 0.4312, "") == "RECORD · 0.4312 (limit ≥ 0.0100)"
    near = Limit("loss", "loss", "within", 5.0, 0.1)
    assert gate_text(near, "not evaluated", None, "") == "NOT EVALUATED · n/a (limit 5.0000 ± 0.1000)"
