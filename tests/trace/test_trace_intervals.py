"""Unions of intervals against counting each nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.trace.intervals import covered_ns, gaps_before_ns

Pairs = list[tuple[int, int]]
intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12).map(
    lambda pairs: sorted((start, start + length) for start, length in pairs)
)


def columns(pairs: Pairs) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]:
    return tuple(np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))


@given(intervals)
def test_covered_is_the_number_of_nanoseconds_in_any_interval(pairs: Pairs) -> None:
    start, end = columns(pairs)
    assert covered_ns(start, end) == len({at for pair in pairs for at in range(*pair)})


@given(intervals.filter(bool))
def test_gaps_are_what_is_not_covered_between_first_and_last(pairs: Pairs) -> None:
    start, end = columns(pairs)
    reached, gaps = gaps_before_ns(start, end)
    assert gaps.sum() == end.max() - start[0] - covered_ns(start, end)
    assert reached.tolist() == [max(end[: at + 1]) for at in range(len(pairs) - 1)]
