"""The metrics of a run: names, sources and reasons."""

from pytest_aorta.gates.metrics import unit_of
from pytest_aorta.gates.rules import Rule, judge
from pytest_aorta.stages.measures import collect_metrics
from pytest_aorta.trace.lateness import analyze
from tests.trace.simulated import Job, Planted, columns, simulate

ACROSS_RANKS = {
    *("matched_ratio", "hidden_transfer_ratio", "exposed_transfer_ms", "exposed_wait_ms", "caused_delay_ms_per_step"),
    *("rank_imbalance_ratio", "kernel_slowdown_ratio", "all_reduce_bus_bandwidth_gbps"),
    *("all_gather_bus_bandwidth_gbps", "reduce_scatter_bus_bandwidth_gbps", "all_to_all_bus_bandwidth_gbps"),
}


def test_lateness_gives_metrics_that_gates_can_judge() -> None:
    lateness = analyze(columns(simulate(Job(num_ranks=4, planted=(Planted(2, "host", 0.1),)))))
    found = collect_metrics((), (), None, lateness)
    delay = found["caused_delay_ms_per_step"]
    # The value is that of the rank that caused most: a tenth of 10 segments of 1 ms.
    assert delay.value is not None
    assert abs(delay.value - 1.0) < 0.05  # and what launching it took
    assert [(row.rank, row.value) for row in delay.per_rank] == [(0, 0.0), (1, 0.0), (2, delay.value), (3, 0.0)]
    assert delay.source == "collectives matched between ranks; 3 profiled steps"
    (check,) = judge(Rule("caused_delay_ms_per_step", "max", 0.5), delay)
    assert (check.state, check.unit) == ("failed", "ms")
    assert found["matched_ratio"].value == 1.0
    # 4 MiB of four ranks, 3/4 of it twice, in 200 µs.
    bandwidth = found["all_reduce_bus_bandwidth_gbps"]
    assert bandwidth.value == 1.5 * (4 << 20) / 200_000
    assert bandwidth.unit == unit_of("all_reduce_bus_bandwidth_gbps") == "GB/s"
    assert "no all_gather" in found["all_gather_bus_bandwidth_gbps"].why


def test_without_a_comparison_every_metric_across_ranks_says_why() -> None:
    found = collect_metrics((), (), None)
    assert found.keys() >= ACROSS_RANKS
    assert {found[name].value for name in ACROSS_RANKS} == {None}
    assert {found[name].why for name in ACROSS_RANKS} == {"the collectives of the ranks were not compared"}
    (check,) = judge(Rule("exposed_wait_ms", "max", 5), found["exposed_wait_ms"])
    assert (check.state, check.reason is not None and "not measured" in check.reason) == ("failed", True)
