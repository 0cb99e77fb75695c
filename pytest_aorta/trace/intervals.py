"""Intervals: how much time a set of intervals covers, in exact integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]

MAX_NS = 1 << 62
"""The last moment that a trace can tell of, 146 years after its time base: two of them still add up to an int64."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """How much of the time up to a moment is covered by intervals: linear between knots, level outside of them.

    `at_ns`: (K,) int64, rising. `covered_ns`: (K,) int64, covered until there.
    """

    at_ns: Nanoseconds
    covered_ns: Nanoseconds

    def until(self, moment_ns: Nanoseconds) -> Nanoseconds:
        """Give the covered time up to each moment, exact where the intervals between the knots were not merged."""
        if not self.at_ns.size:
            return np.zeros(np.shape(moment_ns), np.int64)
        return np.rint(np.interp(moment_ns, self.at_ns, self.covered_ns)).astype(np.int64)

    def between(self, start_ns: Nanoseconds, end_ns: Nanoseconds) -> Nanoseconds:
        """Give the covered time from each start to each end."""
        return self.until(end_ns) - self.until(start_ns)

    def within(self, start_ns: Nanoseconds, end_ns: Nanoseconds) -> Cover:
        """Keep what is needed inside of intervals, by start: all knots there, and one at each start and end."""
        windows = union(start_ns, end_ns)
        inside = np.searchsorted(windows[0], self.at_ns, side="right") > np.searchsorted(windows[1], self.at_ns)
        kept_ns = np.unique(np.concatenate((self.at_ns[inside], start_ns, end_ns)))
        return Cover(kept_ns, self.until(kept_ns))

    def coarser(self, tolerance_ns: int) -> Cover:
        """Leave knots out, so that no covered time is wrong by `tolerance_ns` or more.

        Uncovered time grows by less than the tolerance between two knots of which those between are left out, and it
        never shrinks, so neither the truth nor the straight line leaves that band.
        """
        band = (self.at_ns - self.covered_ns) // tolerance_ns
        changes = np.diff(band) != 0
        kept = np.concatenate(([True], changes)) | np.concatenate((changes, [True]))
        return Cover(self.at_ns[kept], self.covered_ns[kept])


def union(start_ns: Nanoseconds, end_ns: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    """Give starts and ends of the union of intervals, (U,) int64 each; `start_ns` must rise."""
    if not start_ns.size:
        return start_ns, end_ns
    reached_ns = np.maximum.accumulate(end_ns)
    begins = np.concatenate(([True], start_ns[1:] > reached_ns[:-1]))
    ends = np.concatenate((begins[1:], [True]))
    return start_ns[begins], reached_ns[ends]


def cover(start_ns: Nanoseconds, end_ns: Nanoseconds) -> Cover:
    """Give how much of the time up to any moment intervals cover; `start_ns` must rise."""
    starts_ns, ends_ns = union(start_ns, end_ns)
    covered_ns = np.cumsum(ends_ns - starts_ns)
    return Cover(
        at_ns=np.stack((starts_ns, ends_ns), axis=1).ravel(),
        covered_ns=np.stack((covered_ns - (ends_ns - starts_ns), covered_ns), axis=1).ravel(),
    )
