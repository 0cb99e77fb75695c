from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.checks import GateKind, Over
from pytest_aorta.errors import ConfigError
from pytest_aorta.gates.rules import Rule, judge
from pytest_aorta.metric import Metric, RankValue

values = st.floats(min_value=0, max_value=1e9, allow_nan=False)


def _metric(value: float | None, *ranks: float | None, unit: str = "ms", why: str = "") -> Metric:
    per_rank = tuple(RankValue(rank=rank, value=one) for rank, one in enumerate(ranks))
    return Metric(value=value, unit=unit, source="test", per_rank=per_rank, why=why)


@pytest.mark.parametrize(
    ("kind", "limit", "tolerance", "value", "state"),
    [
        ("max", 10.0, None, 10.0, "passed"),
        ("max", 10.0, None, 10.000001, "failed"),
        ("min", 0.25, None, 0.25, "passed"),
        ("min", 0.25, None, 0.2499, "failed"),
        ("within", 1.0, 0.1, 1.1, "passed"),
        ("within", 0.8, 0.1, 0.7, "passed"),
        ("within", 1.0, 0.1, 1.11, "failed"),
        ("within", 1.0, 0.1, 0.89, "failed"),
    ],
)
def test_the_limit_itself_passes(
    kind: GateKind, limit: float, tolerance: float | None, value: float, state: str
) -> None:
    (check,) = judge(Rule("step_time_ms_median", kind, limit, tolerance), _metric(value))

    assert check.state == state
    assert check.actual == value
    assert check.gate is not None
    assert (check.gate.kind, check.gate.limit, check.gate.unit) == (kind, limit, "ms")


@pytest.mark.parametrize(
    ("rule", "value", "reason"),
    [
        (Rule("avg_iteration_time_ms", "max", 10.0), 20.0, "mean time of a trace 20.00 ms is above 10 ms"),
        (Rule("avg_iteration_time_ms", "max", 10.5), 20.0, "mean time of a trace 20.00 ms is above 10.5 ms"),
        (Rule("avg_compute_ratio", "min", 0.5), 0.31234, "mean compute ratio 31.23% is below 50.00%"),
        (Rule("gpu_idle_ratio", "max", 0.1), 0.2, "gpu_idle_ratio 20.00% is above 10.00%"),
        (
            Rule("step_time_ms_p95", "within", 80.0, 2.5),
            90.0,
            "step_time_ms_p95 90.00 ms is further than 2.5 ms from 80 ms",
        ),
        (Rule("kernel_log_notes", "max", 3.0), 4.0, "kernel_log_notes 4 is above 3"),
        (Rule("avg_compute_ratio", "min", 0.5), 0.4999999, "mean compute ratio 0.4999999 is below 0.5"),
    ],
)
def test_a_failure_says_both_numbers_in_one_sentence(rule: Rule, value: float, reason: str) -> None:
    unit = "ms" if rule.metric.endswith(("_ms", "_p95")) else ""
    (check,) = judge(rule, _metric(value, unit=unit))

    assert check.state == "failed"
    assert check.reason == reason


def test_a_time_of_whole_traces_says_how_many_steps_it_spans() -> None:
    metric = Metric(value=100.08, unit="ms", source="Timeline of raw traces; whole trace, 3 profiled steps")
    (check,) = judge(Rule("avg_iteration_time_ms", "max", 1.0), metric)
    assert check.reason == "mean time of a trace (3 profiled steps) 100.08 ms is above 1 ms"


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (_metric(None, why="the traces have no GPU events"), "not measured: the traces have no GPU events"),
        (_metric(None), "not measured: it has no value"),
        (_metric(math.nan), "not measured: its value is nan"),
        (_metric(math.inf), "not measured: its value is inf"),
        (None, "not measured: the run gave no such metric"),
    ],
)
def test_what_was_not_measured_fails_on_the_rigs_account(metric: Metric | None, reason: str) -> None:
    (check,) = judge(Rule("step_time_ms_median", "max", 10.0), metric)

    assert (check.state, check.fault, check.reason) == ("failed", "rig", reason)
    assert check.actual is None
    assert "actual=n/a" in check.line()


@pytest.mark.parametrize(
    ("rule", "cannot_fail"),
    [
        (Rule("avg_overlap_ratio", "min", 0.0), True),
        (Rule("avg_overlap_ratio", "min", 0.001), False),
        (Rule("gpu_idle_ratio", "max", 1.0), True),
        (Rule("gpu_idle_ratio", "max", 0.99), False),
        (Rule("time_variance_ratio", "max", 1.0), False),
        (Rule("step_time_ms_median", "min", 0.0), True),
        (Rule("kernel_log_notes", "min", -1.0), True),
        (Rule("kernel_log_notes", "max", 0.0), False),
        (Rule("loss", "min", 0.0), False),
        (Rule("gpu_idle_ratio", "within", 0.5, 0.5), True),
        (Rule("gpu_idle_ratio", "within", 0.5, 0.4), False),
    ],
)
@pytest.mark.parametrize("metric", [_metric(0.3, unit=""), None])
def test_a_limit_at_the_metrics_bound_is_not_judged(rule: Rule, cannot_fail: bool, metric: Metric | None) -> None:
    (check,) = judge(rule, metric)

    assert (check.state == "not_judged") == cannot_fail
    if cannot_fail:
        assert check.reason.startswith("no limit: ")
        assert check.label == f"[threshold] (metric={rule.metric})"


def test_each_rank_is_a_check_of_its_own() -> None:
    checks = judge(Rule("step_time_ms_median", "max", 10.0, over="each"), _metric(9.0, 8.0, 11.0, None))

    assert [(check.label, check.state) for check in checks] == [
        ("[threshold] (metric=step_time_ms_median, rank=0)", "passed"),
        ("[threshold] (metric=step_time_ms_median, rank=1)", "failed"),
        ("[threshold] (metric=step_time_ms_median, rank=2)", "failed"),
    ]
    assert checks[1].reason == "step_time_ms_median of rank 1 11.00 ms is above 10 ms"
    assert checks[2].reason == "not measured: it has no value"


def test_a_rank_is_told_with_its_host() -> None:
    metric = _metric(9.0, 8.0, 11.0, None)
    hosts = ["node1", "node1", "node2"]

    checks = judge(Rule("step_time_ms_median", "max", 10.0, over="each"), metric, lambda rank: hosts[rank])
    assert [check.host for check in checks] == ["node1", "node1", "node2"]
    (extreme,) = judge(Rule("step_time_ms_median", "min", 8.5, over="min"), _metric(9.0, 9.0, 8.0), lambda _: "node2")

    assert checks[1].reason == "step_time_ms_median of rank 1 on node1 11.00 ms is above 10 ms"
    assert extreme.reason == "step_time_ms_median of rank 1 on node2 (the min over ranks) 8.00 ms is below 8.5 ms"


@pytest.mark.parametrize(
    ("over", "kind", "limit", "state", "reason"),
    [
        ("max", "max", 10.0, "failed", "step_time_ms_median of rank 1 (the max over ranks) 12.00 ms is above 10 ms"),
        ("min", "max", 10.0, "passed", ""),
        ("min", "min", 8.5, "failed", "step_time_ms_median of rank 0 (the min over ranks) 8.00 ms is below 8.5 ms"),
        ("mean", "max", 9.0, "passed", ""),
    ],
)
def test_over_says_which_rank_counts(over: Over, kind: GateKind, limit: float, state: str, reason: str) -> None:
    (check,) = judge(Rule("step_time_ms_median", kind, limit, over=over), _metric(9.0, 8.0, 12.0))

    assert (check.state, check.reason) == (state, reason)


@pytest.mark.parametrize("over", ["max", "min", "each"])
def test_ranks_without_values_are_not_measured(over: Over) -> None:
    (check,) = judge(Rule("step_time_ms_median", "max", 10.0, over=over), _metric(1.0))

    assert check.reason == "not measured: step_time_ms_median has no value for each rank"


def test_one_missing_rank_spoils_the_extreme() -> None:
    (check,) = judge(Rule("step_time_ms_median", "max", 10.0, over="max"), _metric(1.0, 1.0, None, math.nan))

    assert check.reason == "not measured: no value of rank 1, 2"


@pytest.mark.parametrize(
    ("kind", "limit", "tolerance", "words"),
    [
        ("max", math.nan, None, "finite number"),
        ("min", math.inf, None, "finite number"),
        ("within", 1.0, None, "needs a tolerance"),
        ("within", 1.0, -0.1, "needs a tolerance"),
        ("within", 1.0, math.inf, "needs a tolerance"),
        ("max", 1.0, 0.1, "takes no tolerance"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(kind: GateKind, limit: float, tolerance: float | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Rule("step_time_ms_median", kind, limit, tolerance)


@given(values, values, values)
def test_loosening_a_max_never_turns_pass_into_fail(value: float, limit: float, more: float) -> None:
    tight, loose = Rule("loss", "max", limit), Rule("loss", "max", limit + more)

    assert not tight.accepts(value) or loose.accepts(value)


@given(values, values, values)
def test_loosening_a_min_never_turns_pass_into_fail(value: float, limit: float, less: float) -> None:
    tight, loose = Rule("loss", "min", limit), Rule("loss", "min", limit - less)

    assert not tight.accepts(value) or loose.accepts(value)


@given(values, values, values, values)
def test_a_wider_tolerance_never_turns_pass_into_fail(
    value: float, limit: float, tolerance: float, more: float
) -> None:
    tight, loose = Rule("loss", "within", limit, tolerance), Rule("loss", "within", limit, tolerance + more)

    assert not tight.accepts(value) or loose.accepts(value)


@given(values)
def test_equality_passes_for_every_kind(value: float) -> None:
    assert Rule("loss", "max", value).accepts(value)
    assert Rule("loss", "min", value).accepts(value)
    assert Rule("loss", "within", value, 0.0).accepts(value)


@given(st.sampled_from(["max", "min"]), st.floats(0, 1), st.floats(0, 1))
def test_a_rule_that_cannot_fail_accepts_every_value_of_its_metric(kind: GateKind, limit: float, value: float) -> None:
    rule = Rule("gpu_idle_ratio", kind, limit)

    assert not rule.cannot_fail or rule.accepts(value)
