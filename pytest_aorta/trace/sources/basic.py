"""Basic: the documented scan that adds up durations by name, everything with everything, nested or not.

Its total is no time that passed: ranges of the CPU count once more for all that runs inside them. It is here because
its numbers are published, and for what TraceLens cannot read. Source: the published fallback of the raw-trace parser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from pytest_aorta.trace.events import AnyEvent
from pytest_aorta.trace.intervals import MAX_NS, Nanoseconds
from pytest_aorta.trace.kernels import us_of
from pytest_aorta.trace.numbers import InexactError, many_to_ns
from pytest_aorta.trace.reading import Trace, read
from pytest_aorta.trace.sources.raw import summary_with
from pytest_aorta.trace.summary import RankSummary

_COMMUNICATION = ("nccl", "allreduce", "allgather", "broadcast", "reduce_scatter")
_MEMORY = ("memcpy", "memset")
_MAX_NAMES = 1 << 16


class Part(IntEnum):
    """What an event's duration is added to, besides the total."""

    OTHER = 0
    COMPUTE = 1
    COMMUNICATION = 2
    MEMORY = 3


def summarize_file(path: Path, name: str) -> tuple[RankSummary, ...]:
    """Summarize one trace file, which is called `name`, all its devices together.

    Raises:
        TraceError: nothing in the file can be read.
    """
    trace, scan = scan_file(path)
    return (summary_of(trace, scan, name),)


def scan_file(path: Path) -> tuple[Trace, Scan]:
    """Read a file once: as our own reader does, and as the basic scan does.

    Raises:
        TraceError: nothing in the file can be read.
    """
    scan = Scan()
    return read(path, scan.see), scan


def summary_of(trace: Trace, scan: Scan, name: str, warnings: tuple[str, ...] = ()) -> RankSummary:
    """Give the summary of a scanned file; `warnings` are put to its own."""
    return summary_with(trace, name, "basic", scan.times_us(trace.metadata.base_ns or 0), warnings)


class Scan:
    """Sums of the positive durations of a trace, in ns, by what the names and categories of events say."""

    def __init__(self) -> None:
        self.sums_ns = dict.fromkeys(Part, 0)
        self.total_ns = 0
        self._first_ns: int | None = None
        self._last_ns = 0
        self._parts: dict[tuple[str | None, str | None], Part] = {}

    def see(self, events: Sequence[AnyEvent]) -> None:
        """Add the events of one block; one without a positive duration only tells when something happened."""
        timed = [event for event in events if event.ph != "M"]
        start_ns, duration_ns = _ns(timed, lambda event: event.ts), _ns(timed, lambda event: event.dur)
        duration_ns = np.where(duration_ns <= MAX_NS - start_ns, np.maximum(duration_ns, 0), 0)
        happened = start_ns >= 0
        if happened.any():
            first = int(start_ns[happened].min())
            self._first_ns = first if self._first_ns is None else min(self._first_ns, first)
            self._last_ns = max(self._last_ns, int((start_ns + duration_ns)[happened].max()))
        for event, duration in zip(timed, duration_ns.tolist(), strict=True):
            if duration > 0:
                self.sums_ns[self._part(event.cat, event.name)] += duration
                self.total_ns += duration

    def times_us(self, base_ns: int) -> dict[str, Any]:
        """Give the times by the names of RankSummary; without any duration the total is the span of the events."""
        first_ns = self._first_ns or 0
        span_ns = max(0, self._last_ns - first_ns)
        return {
            "start_ns": base_ns + first_ns,
            "end_ns": base_ns + first_ns + span_ns,
            "total_time_us": us_of(self.total_ns or span_ns),
            "computation_time_us": us_of(self.sums_ns[Part.COMPUTE]),
            "total_comm_time_us": us_of(self.sums_ns[Part.COMMUNICATION]),
        }

    def _part(self, category: str | None, name: str | None) -> Part:
        found = self._parts.get((category, name))
        if found is None:
            found = part_of(category or "", name or "")
            if len(self._parts) < _MAX_NAMES:
                self._parts[category, name] = found
        return found


def part_of(category: str, name: str) -> Part:
    """Tell what an event counts as, by the first rule that fits; calls that launch kernels count as computation too."""
    name = name.lower()
    if any(word in name for word in _COMMUNICATION):
        return Part.COMMUNICATION
    if any(word in name for word in _MEMORY):
        return Part.MEMORY
    if "kernel" in name or category.lower() in ("kernel", "gpu"):
        return Part.COMPUTE
    return Part.OTHER


def _ns(events: Sequence[AnyEvent], field: Callable[[AnyEvent], Any]) -> Nanoseconds:
    values = [field(event) for event in events]
    try:
        return many_to_ns(values)
    except InexactError:
        return many_to_ns([repr(value) if isinstance(value, float) else value for value in values])
