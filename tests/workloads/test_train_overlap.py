"""How ranges of one step lie over each other; every answer is worked out by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from aorta_train.overlap import STREAMS, Range, overlap_of, segments_of
from hypothesis import given
from hypothesis import strategies as st


def ranges(*given: tuple[str, float, float]) -> list[Range]:
    return [Range(stream, "x", start, end) for stream, start, end in given]


def test_computation_over_an_all_gather_and_a_reduce_scatter() -> None:
    seen = overlap_of(
        ranges(("compute", 0, 4), ("allgather", 2, 5), ("compute", 6, 9), ("reducescatter", 8, 11), ("aux", 11, 12)), 12
    )
    assert seen["per_stream_ms"] == {"compute": 7, "allreduce": 0, "reducescatter": 3, "allgather": 3, "aux": 1}
    assert seen["overlap_ms"] == {"compute_allreduce": 0, "compute_reducescatter": 1, "compute_comm": 3, "idle": 1}
    assert seen["utilization"]["compute"] == pytest.approx(7 / 12, abs=1e-4)
    assert seen["active_segments"] == [
        {"start_ms": 0, "end_ms": 2, "active_streams": ["compute"]},
        {"start_ms": 2, "end_ms": 4, "active_streams": ["allgather", "compute"]},
        {"start_ms": 4, "end_ms": 5, "active_streams": ["allgather"]},
        {"start_ms": 6, "end_ms": 8, "active_streams": ["compute"]},
        {"start_ms": 8, "end_ms": 9, "active_streams": ["compute", "reducescatter"]},
        {"start_ms": 9, "end_ms": 11, "active_streams": ["reducescatter"]},
        {"start_ms": 11, "end_ms": 12, "active_streams": ["aux"]},
    ]


def test_a_stream_stays_active_until_the_last_of_its_ranges_ends() -> None:
    seen = overlap_of(ranges(("allreduce", 0, 10), ("allreduce", 2, 3), ("compute", 5, 8)), 10)
    assert seen["per_stream_ms"]["allreduce"] == 10
    assert seen["overlap_ms"]["compute_allreduce"] == 3
    assert seen["overlap_ms"]["idle"] == 0


def test_two_kinds_of_communication_at_once_count_once() -> None:
    seen = overlap_of(ranges(("compute", 0, 10), ("allgather", 2, 6), ("reducescatter", 4, 9)), 10)
    assert seen["overlap_ms"]["compute_comm"] == 7


def test_idle_time_is_counted_before_between_and_after() -> None:
    seen = overlap_of(ranges(("compute", 1, 2), ("aux", 4, 5)), 9)
    assert seen["overlap_ms"]["idle"] == 1 + 2 + 4


def test_an_empty_step_is_idle() -> None:
    assert overlap_of([], 3)["overlap_ms"]["idle"] == 3
    assert overlap_of([], 0)["utilization"]["compute"] == 0


def test_what_lies_outside_the_step_is_cut_off() -> None:
    seen = overlap_of(ranges(("allgather", -2, 1), ("reducescatter", 8, 15), ("allreduce", 11, 12)), 10)
    assert seen["per_stream_ms"] == {"compute": 0, "allreduce": 0, "reducescatter": 2, "allgather": 1, "aux": 0}


def test_what_was_not_measured_is_null() -> None:
    seen = overlap_of(ranges(("compute", 0, 4)), 5, measured=("compute", "aux"))
    assert seen["per_stream_ms"] == {
        "compute": 4,
        "allreduce": None,
        "reducescatter": None,
        "allgather": None,
        "aux": 0,
    }
    assert seen["overlap_ms"] == {
        "compute_allreduce": None,
        "compute_reducescatter": None,
        "compute_comm": None,
        "idle": 1,
    }
    assert seen["utilization"]["allgather"] is None


RANGES = st.lists(
    st.tuples(st.sampled_from(STREAMS), st.integers(0, 20), st.integers(0, 20)).map(
        lambda drawn: (drawn[0], min(drawn[1:]), max(drawn[1:]))
    ),
    max_size=12,
)


@given(drawn=RANGES)
def test_segments_fill_the_step_and_agree_with_a_count_of_milliseconds(drawn: list[tuple[str, int, int]]) -> None:
    total = 20
    segments = segments_of(ranges(*drawn), total)
    assert [one.start_ms for one in segments] == [0, *(one.end_ms for one in segments[:-1])]
    assert segments[-1].end_ms == total
    assert all(left.streams != right.streams for left, right in itertools.pairwise(segments))
    active: list[Any] = [{stream for stream, start, end in drawn if start <= at < end} for at in range(total)]
    by_segments = [next(one.streams for one in segments if one.start_ms <= at < one.end_ms) for at in range(total)]
    assert by_segments == active
