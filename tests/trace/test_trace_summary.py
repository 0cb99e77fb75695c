"""Every metric of a rank on traces made by hand, the answer worked out in the test."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_aorta.trace.reading import read
from pytest_aorta.trace.summary import RankSummary, summaries_of
from tests.trace import synthetic
from tests.trace.synthetic import COMMUNICATION, copy, kernel, launch, memset, operator, step


def summarized(path: Path, content: Any) -> tuple[RankSummary, ...]:
    synthetic.write(path, content)
    trace = read(path)
    return summaries_of(trace, file=path.name, rank=trace.metadata.rank)


# 0         10        20        30        40        50
# |compute------------|                   |set-|          [0, 20) and [40, 45)
#           |communication------|                         [10, 30)
#                          |copy-----|                    [25, 35)
#                               idle |----|              [35, 40)
TIMELINE = [
    kernel(0, 20, correlation=1),
    kernel(10, 20, COMMUNICATION, correlation=2),
    copy(25, 10),
    memset(40, 5),
]


def test_where_the_time_went(tmp_path: Path) -> None:
    (found,) = summarized(tmp_path / "t.json", synthetic.document(TIMELINE, rank=3, world_size=8, base_ns=5_000))
    assert (found.rank, found.device, found.world_size, found.source) == (3, 0, 8, "timeline")
    assert found.label == "Timeline of raw traces"
    assert found.total_time_us == 45
    assert found.computation_time_us == 25
    assert found.total_comm_time_us == 20
    assert found.exposed_comm_time_us == 10  # [20, 30)
    assert found.exposed_memcpy_time_us == 5  # [30, 35)
    assert found.busy_time_us == 40
    assert found.idle_time_us == 5
    assert found.overlap_time_us == 10  # [10, 20)
    assert found.true_overlap_ratio == 0.5
    assert found.gpu_idle_ratio == 5 / 45
    assert (found.total_memcpy_time_us, found.memset_time_us) == (10, 5)
    assert (found.num_comm_kernels, found.num_gpu_events) == (1, 4)
    assert (found.start_ns, found.end_ns) == (5_000, 50_000)
    assert [(row.name, row.total_us) for row in found.top_kernels[:2]] == [("gemm", 20), (COMMUNICATION, 20)]
    assert [(row.name, row.total_us, row.num_events) for row in found.copies] == [("HtoD", 10, 1)]


def test_without_communication_the_overlap_is_not_measured(tmp_path: Path) -> None:
    (found,) = summarized(tmp_path / "t.json", synthetic.document([kernel(0, 1)]))
    assert (found.total_comm_time_us, found.true_overlap_ratio) == (0, None)


def test_host_wait_is_the_part_of_a_gap_in_which_nothing_was_asked_for(tmp_path: Path) -> None:
    events = [
        kernel(0, 10, correlation=1),
        *[launch(0, 1, 1), launch(9, 5, 2), launch(15, 2, 3), launch(16, 90, 4)],
        kernel(20, 10, correlation=2),  # gap [10, 20), launch ended at 14: 4
        kernel(30, 10, correlation=3),  # no gap
        kernel(50, 10, correlation=4),  # gap [40, 50), launch ended after it began: 10
        kernel(70, 10, correlation=99),  # gap without a known launch: not the host's
        kernel(90, 10, correlation=1),  # gap [80, 90), launched long before: 0
    ]
    (found,) = summarized(tmp_path / "t.json", synthetic.document(events))
    assert found.host_wait_time_us == 14
    assert found.host_wait_ratio == 14 / 100
    events = [kernel(0, 10), kernel(20, 10, correlation=2), *[launch(8, 4, 2), launch(9, 8, 2), launch(10, 1, 2)]]
    (repeated,) = summarized(tmp_path / "r.json", synthetic.document(events))
    assert repeated.host_wait_time_us == 7  # the last of its calls ended at 17
    (unlinked,) = summarized(tmp_path / "u.json", synthetic.document([kernel(0, 10), kernel(20, 10)]))
    assert unlinked.host_wait_ratio is None


def test_events_that_start_together_have_an_order_of_their_own(tmp_path: Path) -> None:
    events = [
        synthetic.copy(0.0, 0.0, "HtoD"),
        synthetic.copy(0.001, 0.0, "HtoD"),
        synthetic.kernel(0.001, 0.0, "gemm", correlation=0),
        synthetic.launch(0.0, 0.001, 0),
    ]
    found = [summarized(tmp_path / "t.json", synthetic.document(order)) for order in (events, events[::-1])]

    assert found[0] == found[1]


def test_a_step_lasts_from_the_last_gpu_end_of_the_step_before_to_its_own(tmp_path: Path) -> None:
    events = [
        *[step(7, 0, 10), step(8, 10, 10), step(9, 20, 10), step(10, 30, 10), step(11, 40, 10)],
        step(8, 5, 90),  # the same step again, of another thread: not counted
        *[launch(1, 1, 1), launch(2, 1, 2), launch(11, 1, 3), launch(20, 1, 4), launch(45, 1, 5)],
        *[kernel(5, 10, correlation=1), kernel(6, 20, correlation=2)],  # step 7 ends at 26
        kernel(30, 7, correlation=3),  # step 8 ends at 37
        kernel(40, 10, correlation=4),  # step 9 ends at 50; step 10 launches nothing
        kernel(60, 10, correlation=5),  # step 11 follows a step without an end
    ]
    (found,) = summarized(tmp_path / "t.json", synthetic.document(events))
    assert found.num_profiled_steps == 5
    assert found.step_times_ms == (0.011, 0.013)


def test_devices_of_one_file_are_told_apart(tmp_path: Path) -> None:
    events = [kernel(0, 10, device=1), kernel(5, 10, device=0), kernel(100, 1, COMMUNICATION, device=1)]
    first, second = summarized(tmp_path / "t.json", synthetic.document(events, rank=0))
    assert (first.device, first.total_time_us, first.total_comm_time_us) == (0, 10, 0)
    assert (second.device, second.total_time_us, second.total_comm_time_us) == (1, 101, 1)


def test_without_gpu_events_only_the_steps_of_the_cpu_are_given(tmp_path: Path) -> None:
    events = [step(1, 100, 50), step(2, 150, 70.5), operator(100, 20, "aten::mm")]
    (found,) = summarized(tmp_path / "t.json", synthetic.document(events, rank=1))
    assert (found.source, found.label) == ("cpu-steps", "CPU steps of raw traces (no GPU events)")
    assert found.total_time_us == 120.5
    assert found.step_times_ms == (0.05, 0.0705)
    assert found.computation_time_us is None
    assert found.gpu_idle_ratio is None
    assert not found.lacks_communication(2)


def test_a_trace_with_nothing_to_measure_says_so(tmp_path: Path) -> None:
    (found,) = summarized(tmp_path / "t.json", synthetic.document([operator(0, 1, "aten::mm")]))
    assert found.total_time_us is None
    assert found.warnings == ("t.json: has neither GPU events nor profiler steps, so nothing is measured",)


@pytest.mark.parametrize(
    ("world_size", "launched", "extra", "lacks"),
    [
        (2, 0, [], True),
        (1, 0, [], False),
        (None, 0, [], False),
        (None, 1, [], False),
        (None, 2, [], True),
        (2, 0, [kernel(50, 1, COMMUNICATION)], False),
        (None, 2, [kernel(50, 1, COMMUNICATION)], False),
        (2, 0, [operator(0, 1, "record_param_comms")], False),
        (2, 0, [operator(0, 1, "c10d::allreduce_")], False),
    ],
)
def test_ranks_of_several_must_communicate(
    tmp_path: Path, world_size: int | None, launched: int, extra: list[Any], lacks: bool
) -> None:
    content = synthetic.document([kernel(0, 1), *extra], rank=0, world_size=world_size)
    assert summarized(tmp_path / "t.json", content)[0].lacks_communication(launched) is lacks


def test_peak_memory_is_that_of_the_device(tmp_path: Path) -> None:
    events = [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1, "args": {"Device Type": kind, **total}}
        for kind, total in [(0, {"Total Allocated": 999}), (1, {"Total Allocated": 70}), (1, {"Total Allocated": 50})]
    ]
    assert summarized(tmp_path / "t.json", synthetic.document([kernel(0, 1), *events]))[0].peak_memory_bytes == 70


microseconds = st.integers(0, 5_000).map(lambda ns: ns / 1000)
gpu_events = st.one_of(
    st.builds(kernel, microseconds, microseconds, correlation=st.integers(0, 5)),
    st.builds(kernel, microseconds, microseconds, st.just(COMMUNICATION), correlation=st.integers(0, 5)),
    st.builds(copy, microseconds, microseconds),
    st.builds(memset, microseconds, microseconds),
)
whole_traces = st.tuples(
    st.lists(gpu_events, min_size=1, max_size=15),
    st.lists(
        st.builds(launch, microseconds, microseconds, st.integers(0, 5)),
        max_size=8,
        unique_by=lambda e: e["args"]["correlation"],
    ),
    st.lists(st.builds(step, st.integers(1, 4), microseconds, microseconds), max_size=4, unique_by=lambda e: e["name"]),
).map(lambda parts: [event for part in parts for event in part])


def times_ns(found: RankSummary) -> list[int | None]:
    times = [getattr(found, name) for name in RankSummary.__slots__ if name.endswith("_time_us")]
    steps = [round(step_ms * 1_000_000) for step_ms in found.step_times_ms]
    return [None if time is None else round(time * 1000) for time in times] + steps


def moved(events: list[Any], *, by_ns: int = 0, factor: int = 1) -> list[Any]:
    def time(value_us: float) -> int:
        return round(value_us * 1000) * factor

    return [{**event, "ts": (time(event["ts"]) + by_ns) / 1000, "dur": time(event["dur"]) / 1000} for event in events]


@settings(max_examples=60, deadline=None)
@given(whole_traces, st.integers(0, 8_000_000_000_000_000), st.integers(2, 9), st.randoms(use_true_random=False))
def test_shift_scale_and_order_change_nothing_they_should_not(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any], by_ns: int, factor: int, random: Any
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (found,) = summarized(folder / "t.json", synthetic.document(events))
    (shifted,) = summarized(folder / "t.json", synthetic.document(moved(events, by_ns=by_ns)))
    assert times_ns(shifted) == times_ns(found)
    (scaled,) = summarized(folder / "t.json", synthetic.document(moved(events, factor=factor)))
    assert times_ns(scaled) == [None if time is None else time * factor for time in times_ns(found)]
    shuffled = random.sample(events, len(events))
    (permuted,) = summarized(folder / "t.json", synthetic.document(shuffled))
    assert permuted == found


CENTURY_US = 100 * 365 * 86_400 * 1_000_000


def test_sums_of_many_long_events_do_not_overflow(tmp_path: Path) -> None:
    content = [kernel(start, CENTURY_US) for start in range(5)] + [copy(start, CENTURY_US) for start in range(5)]
    (found,) = summarized(tmp_path / "t.json", synthetic.document(content, base_ns=1 << 63))
    assert found.start_ns == 0
    assert (found.total_time_us, found.computation_time_us) == (CENTURY_US + 4, CENTURY_US + 4)
    assert [row.total_us for row in (*found.top_kernels, *found.copies)] == [pytest.approx(5 * CENTURY_US)] * 3
