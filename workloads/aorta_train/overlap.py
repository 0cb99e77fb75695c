"""How the streams of one step lie over each other: arithmetic on ranges, without any device.

Several ranges of one stream may be open at once, so each stream has a counter: it is active while its counter is above
zero. Time in which no stream is active is idle, also before the first range and after the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COMPUTE = "compute"
COMMUNICATION = ("allreduce", "reducescatter", "allgather")
AUXILIARY = "aux"
STREAMS = (COMPUTE, *COMMUNICATION, AUXILIARY)


@dataclass(frozen=True)
class Range:
    """A piece of work on one stream; times are in ms since the beginning of the step."""

    stream: str
    tag: str
    start_ms: float
    end_ms: float
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Segment:
    """A time in which the same streams were active, none of them perhaps."""

    start_ms: float
    end_ms: float
    streams: frozenset[str]

    @property
    def duration_ms(self) -> float:
        """Give its length."""
        return self.end_ms - self.start_ms


def segments_of(ranges: Iterable[Range], total_ms: float) -> list[Segment]:
    """Cut a step at every begin and end of a range; neighbours differ in their streams, and all add up to the step.

    What lies before the step or after it is cut off.
    """
    changes: dict[float, Counter[str]] = {0.0: Counter(), total_ms: Counter()}
    for one in ranges:
        start, end = (min(max(0.0, at), total_ms) for at in (one.start_ms, one.end_ms))
        if start < end:
            changes.setdefault(start, Counter())[one.stream] += 1
            changes.setdefault(end, Counter())[one.stream] -= 1
    return list(_sweep(changes))


def _sweep(changes: Mapping[float, Counter[str]]) -> Iterator[Segment]:
    times = sorted(changes)
    open_ranges: Counter[str] = Counter()
    begin, active = times[0], frozenset[str]()
    for time in times[:-1]:
        open_ranges.update(changes[time])
        streams = frozenset(stream for stream, count in open_ranges.items() if count > 0)
        if streams != active:
            if time > begin:
                yield Segment(begin, time, active)
            begin, active = time, streams
    if times[-1] > begin:
        yield Segment(begin, times[-1], active)


def overlap_of(ranges: Iterable[Range], total_ms: float, measured: Sequence[str] = STREAMS) -> dict[str, Any]:
    """Sum up a step; what needs a stream that was not `measured` is null."""
    segments = segments_of(ranges, total_ms)
    per_stream = {
        stream: _sum(one for one in segments if stream in one.streams) if stream in measured else None
        for stream in STREAMS
    }
    return {
        "per_stream_ms": {stream: _rounded(ms) for stream, ms in per_stream.items()},
        "overlap_ms": {
            **{
                f"{COMPUTE}_{name}": _rounded(_common_ms(segments, partners, measured))
                for name, partners in {
                    "allreduce": ("allreduce",),
                    "reducescatter": ("reducescatter",),
                    "comm": COMMUNICATION,
                }.items()
            },
            "idle": _rounded(_sum(one for one in segments if not one.streams)),
        },
        "active_segments": [
            {"start_ms": _rounded(one.start_ms), "end_ms": _rounded(one.end_ms), "active_streams": sorted(one.streams)}
            for one in segments
            if one.streams
        ],
        "utilization": {
            stream: _rounded(ms / total_ms if total_ms else 0.0) if ms is not None else None
            for stream, ms in per_stream.items()
        },
    }


def _common_ms(segments: Iterable[Segment], partners: Sequence[str], measured: Sequence[str]) -> float | None:
    """Give the time in which there was computation and any of `partners`."""
    if not set(partners) <= set(measured):
        return None
    return _sum(one for one in segments if COMPUTE in one.streams and not one.streams.isdisjoint(partners))


def _sum(segments: Iterable[Segment]) -> float:
    return sum((one.duration_ms for one in segments), 0.0)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
