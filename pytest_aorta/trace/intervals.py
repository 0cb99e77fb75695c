"""Intervals: how much time a set of intervals covers, in exact integer nanoseconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]


def covered_ns(start_ns: Nanoseconds, end_ns: Nanoseconds) -> int:
    """Give the measure of the union of intervals.

    `start_ns`: (E,) int64, rising. `end_ns`: (E,) int64, each at or after its start. Time covered twice counts once.
    """
    if not start_ns.size:
        return 0
    reached_ns = np.maximum.accumulate(end_ns)
    gaps_ns = start_ns[1:] - reached_ns[:-1]
    return int(reached_ns[-1] - start_ns[0] - gaps_ns[gaps_ns > 0].sum())


def gaps_before_ns(start_ns: Nanoseconds, end_ns: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    """Give for each interval but the first where everything before it had ended, and the gap from there to its start.

    Both (E - 1,) int64; a gap is 0 where the interval begins before the others ended.
    """
    reached_ns = np.maximum.accumulate(end_ns)[:-1]
    return reached_ns, np.maximum(start_ns[1:] - reached_ns, 0)
