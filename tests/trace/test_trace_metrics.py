"""The documented metrics and their aggregation, worked out by hand."""

from dataclasses import replace

import pytest

from pytest_aorta.trace.metrics import aggregate, quantities, shares
from pytest_aorta.trace.summary import RankSummary


def rank(
    number: int, total_us: float | None, compute_us: float = 0, comm_us: float = 0, steps_ms: tuple[float, ...] = ()
) -> RankSummary:
    return RankSummary(
        rank=number,
        device=0,
        files=(f"rank{number}.json",),
        source="timeline",
        world_size=2,
        start_ns=0,
        end_ns=0,
        total_time_us=total_us,
        computation_time_us=compute_us,
        total_comm_time_us=comm_us,
        idle_time_us=5,
        overlap_time_us=comm_us / 2,
        step_times_ms=steps_ms,
    )


CPU = replace(rank(0, 100), source="cpu-steps", computation_time_us=None, total_comm_time_us=None, idle_time_us=None)


def test_shares_of_one_rank() -> None:
    found = shares(rank(0, 100, compute_us=80, comm_us=40))
    assert (found.compute_ratio, found.comm_ratio, found.overlap_ratio) == (0.8, 0.4, 0.5)  # 80 + 40 - 100 of 40
    assert shares(rank(0, 100, compute_us=20, comm_us=40)).overlap_ratio == 0
    assert shares(rank(0, 100, compute_us=20)).overlap_ratio == 0
    assert shares(rank(0, 0)).compute_ratio == 0


def test_aggregate_over_ranks() -> None:
    found = aggregate([rank(0, 8_000, 4_000, 8_000), rank(1, 12_000, 12_000, 3_000)])
    assert found.avg_iteration_time_us == 10_000
    assert found.std_iteration_time_us == pytest.approx(8_000_000**0.5)  # 2 * 2000² over n - 1
    assert (found.min_iteration_time_us, found.max_iteration_time_us) == (8_000, 12_000)
    assert found.time_variance_ratio == pytest.approx(8_000_000**0.5 / 10_000)
    assert (found.avg_compute_ratio, found.avg_comm_ratio) == (0.75, 0.625)
    assert found.avg_overlap_ratio == 0.75  # 4000 of 8000, all of 3000
    assert (found.num_ranks, found.source, found.why) == (2, "timeline", "")


def test_one_rank_does_not_spread_and_a_mean_of_zero_has_no_variance_ratio() -> None:
    assert aggregate([rank(0, 5)]).std_iteration_time_us == 0
    assert aggregate([rank(0, 5)]).time_variance_ratio == 0
    assert aggregate([rank(0, 0)]).time_variance_ratio is None
    assert quantities([rank(0, 0)])["time_variance_ratio"].why == "the mean time is 0"


def test_without_gpu_events_only_times_are_given() -> None:
    found = aggregate([CPU, replace(CPU, rank=1, total_time_us=300)])
    assert (found.avg_iteration_time_us, found.avg_compute_ratio) == (200, None)
    compute = quantities([CPU])["avg_compute_ratio"]
    assert (compute.value, compute.why) == (None, "the traces hold no GPU events")
    assert quantities([CPU])["gpu_idle_ratio"].why == "the traces hold no GPU events"
    assert quantities([CPU])["true_overlap_ratio"].why == "the traces hold no GPU events"
    assert quantities([CPU])["avg_iteration_time_ms"].why == ""
    assert quantities([replace(CPU, total_time_us=None)])["avg_iteration_time_ms"].why == (
        "the traces hold neither GPU events nor profiler steps"
    )


def test_numbers_of_different_sources_are_not_averaged() -> None:
    found = quantities([CPU, rank(1, 100, 50, 20)])
    assert all(quantity.value is None for quantity in found.values())
    assert all("not mixed" in quantity.why for quantity in found.values())
    assert dict(found["total_time_us"].per_rank) == {0: 100, 1: 100}


def test_a_mean_is_that_of_all_ranks_or_none() -> None:
    waited = replace(rank(0, 100, steps_ms=(1,)), host_wait_time_us=10.0)
    found = quantities([waited, rank(1, 100), replace(waited, rank=2)])
    for name in ("host_wait_ratio", "profiled_step_time_ms_median", "profiled_step_time_ms_p95"):
        assert (found[name].value, found[name].why) == (None, "no value of rank 1")
    assert dict(found["host_wait_ratio"].per_rank) == {0: 0.1, 1: None, 2: 0.1}


def test_times_are_those_of_all_ranks_or_none() -> None:
    found = quantities([CPU, replace(CPU, rank=1, total_time_us=None)])
    for name in ("avg_iteration_time_ms", "max_iteration_time_ms", "time_variance_ratio", "total_time_us"):
        assert (found[name].value, found[name].why) == (None, "no time of rank 1")


def test_a_rank_that_does_not_communicate_takes_no_part_in_the_mean_overlap() -> None:
    assert quantities([rank(0, 100, comm_us=40), rank(1, 100)])["true_overlap_ratio"].value == 0.5


def test_no_rank_gives_no_value_and_a_reason() -> None:
    assert {(quantity.value, quantity.why) for quantity in quantities([]).values()} == {(None, "no trace was read")}


def test_quantities_are_means_with_the_value_of_each_rank() -> None:
    found = quantities([rank(0, 8_000, 1, 2, steps_ms=(1, 2, 9)), rank(1, 12_000, 3, 4, steps_ms=(4, 4))])
    assert found["avg_iteration_time_ms"].value == 10
    assert dict(found["avg_iteration_time_ms"].per_rank) == {0: 8, 1: 12}
    assert (found["computation_time_us"].value, found["computation_time_us"].unit) == (2, "us")
    assert dict(found["profiled_step_time_ms_median"].per_rank) == {0: 2, 1: 4}
    assert found["profiled_step_time_ms_max"].value == 6.5
    assert dict(found["profiled_step_time_ms_p95"].per_rank) == {0: pytest.approx(8.3), 1: 4}
    assert found["true_overlap_ratio"].value == 0.5
    assert quantities([rank(0, 5)])["true_overlap_ratio"].why == "no GPU time was spent in communication"
