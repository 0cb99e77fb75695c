from __future__ import annotations

import pytest

from pytest_aorta.checks import Check
from pytest_aorta.errors import ConfigError
from pytest_aorta.gates.thresholds import gate, judge_all, rules, tally
from pytest_aorta.metric import Metric, RankValue


def _metrics(**values: float | None) -> dict[str, Metric]:
    return {
        name: Metric(
            value=value,
            unit="ms" if name.endswith("_ms") else "",
            source="test",
            why="" if value is not None else "none",
        )
        for name, value in values.items()
    }


MEASURED = _metrics(avg_iteration_time_ms=20.0, avg_compute_ratio=0.5, avg_overlap_ratio=0.1, time_variance_ratio=0.02)


def test_thresholds_become_rules_in_table_order_and_null_is_left_out() -> None:
    found = rules(
        {
            "max_time_variance_ratio": 0.5,
            "min_overlap_ratio": None,
            "min_compute_ratio": 0.01,
            "max_avg_iteration_ms": 12000,
        }
    )

    assert [(rule.name, rule.metric, rule.kind, rule.limit) for rule in found] == [
        ("max_avg_iteration_ms", "avg_iteration_time_ms", "max", 12000.0),
        ("min_compute_ratio", "avg_compute_ratio", "min", 0.01),
        ("max_time_variance_ratio", "time_variance_ratio", "max", 0.5),
    ]


def test_an_unknown_threshold_is_refused_with_the_near_one() -> None:
    with pytest.raises(ConfigError, match="did you mean min_compute_ratio"):
        rules({"min_compute_rati": 0.1})


def test_judged_checks_read_as_in_the_junit_file() -> None:
    checks = judge_all(rules({"max_avg_iteration_ms": 10.0, "min_compute_ratio": 0.01}), MEASURED)

    assert [check.line() for check in checks] == [
        (
            "[threshold] (metric=max_avg_iteration_ms): failed; actual=20.00 ms; gate=max 10 ms; "
            "mean time of a trace 20.00 ms is above 10 ms (1 of 2 gates failed: max_avg_iteration_ms)"
        ),
        "[threshold] (metric=min_compute_ratio): passed; actual=0.5000; gate=min 0.01",
    ]


def test_every_failing_check_names_all_failing_gates() -> None:
    chosen = [
        *rules({"max_avg_iteration_ms": 10.0, "min_compute_ratio": 0.01, "min_overlap_ratio": 0.3}),
        gate("time_variance_ratio", "max", 0.5),
    ]
    checks = judge_all(chosen, MEASURED)

    ending = "(2 of 4 gates failed: max_avg_iteration_ms, min_overlap_ratio)"
    assert [check.reason.endswith(ending) for check in checks] == [True, False, True, False]
    assert tally(checks) == ending.strip("()")


def test_what_was_not_measured_is_not_said_to_have_failed() -> None:
    chosen = [gate("a_ms", "max", 1.0), gate("b_ms", "max", 1.0), gate("c_ms", "max", 1.0)]
    checks = judge_all(chosen, _metrics(a_ms=0.5, b_ms=None))
    assert tally(checks) == "2 of 3 gates could not be measured: b_ms, c_ms"
    both = judge_all(chosen, _metrics(a_ms=2.0, b_ms=None))
    assert tally(both) == "1 of 3 gates failed: a_ms; 2 of 3 gates could not be measured: b_ms, c_ms"


def test_gates_follow_in_the_order_of_the_configuration() -> None:
    checks = judge_all([gate("b_ms", "max", 1.0), gate("a_ms", "min", 1.0)], _metrics(a_ms=2.0, b_ms=2.0))

    assert [check.label for check in checks] == ["[threshold] (metric=b_ms)", "[threshold] (metric=a_ms)"]


def test_the_ranks_of_one_gate_count_as_one_gate() -> None:
    per_rank = tuple(RankValue(rank=rank, value=10.0 + rank) for rank in range(4))
    metrics = {"step_time_ms_median": Metric(value=11.5, unit="ms", source="test", per_rank=per_rank)}
    checks = judge_all(
        [gate("step_time_ms_median", "max", 11.0, over="each"), gate("step_time_ms_median", "max", 12.0)], metrics
    )

    assert len(checks) == 5
    assert tally(checks) == "1 of 2 gates failed: step_time_ms_median (max 11 ms, each rank)"


def test_gates_of_one_limit_over_different_ranks_are_two() -> None:
    per_rank = tuple(RankValue(rank=rank, value=value) for rank, value in enumerate((8.0, 12.0)))
    metrics = {"gpu_time_ms": Metric(value=10.0, unit="ms", source="test", per_rank=per_rank)}
    chosen = [gate("gpu_time_ms", "max", 11.0, over=over) for over in ("mean", "max", "min")]

    assert tally(judge_all(chosen, metrics)) == "1 of 3 gates failed: gpu_time_ms (max 11 ms, largest rank)"


def test_a_gate_for_an_unknown_metric_fails_with_the_near_name() -> None:
    (check,) = judge_all([gate("avg_iteration_time", "min", 0.0)], MEASURED)

    assert (check.state, check.fault) == ("failed", "rig")
    assert check.reason == (
        "not measured: no metric of the name avg_iteration_time, did you mean avg_iteration_time_ms? "
        "(1 of 1 gates could not be measured: avg_iteration_time)"
    )
    assert "metrics.json" in check.next_step


def test_a_threshold_of_a_metric_that_the_run_did_not_give_fails() -> None:
    (check,) = judge_all(rules({"min_compute_ratio": 0.2}), {})

    assert check.reason.startswith("not measured: the run gave no such metric")


def test_a_limit_that_cannot_fail_keeps_its_label_and_counts_as_not_judged() -> None:
    checks = judge_all(rules({"max_avg_iteration_ms": 30.0, "min_overlap_ratio": 0.0}), MEASURED)

    assert [check.state for check in checks] == ["passed", "not_judged"]
    assert checks[1].label == "[threshold] (metric=min_overlap_ratio)"
    assert checks[1].reason == "no limit: avg_overlap_ratio is always between 0 and 1, so min 0 cannot fail"


@pytest.mark.parametrize("variance", [{"time_variance_ratio": None}, {}])
def test_a_variance_without_a_mean_is_not_evaluated_and_passes(variance: dict[str, float | None]) -> None:
    (check,) = judge_all(rules({"max_time_variance_ratio": 0.1}), _metrics(avg_iteration_time_ms=0.0, **variance))

    assert check.state == "passed"
    assert check.reason.startswith("not evaluated: the mean iteration time is 0")


def test_a_variance_that_is_missing_for_another_reason_fails() -> None:
    (check,) = judge_all(
        rules({"max_time_variance_ratio": 0.1}), _metrics(avg_iteration_time_ms=5.0, time_variance_ratio=None)
    )

    assert check.failed


def test_nothing_to_judge_gives_nothing() -> None:
    none: tuple[Check, ...] = judge_all((), MEASURED)

    assert none == ()
    assert tally(none) == "0 of 0 gates failed"
