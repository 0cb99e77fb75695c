"""Kernels: time and number of GPU events by name, and of copies by direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pytest_aorta.trace.kinds import Kind, direction_of
from pytest_aorta.trace.timeline import Timeline

NUM_LONGEST = 10
_MAX_NAME_LENGTH = 160


@dataclass(frozen=True, slots=True)
class NameTime:
    """The sum of the durations, which may overlap each other, and the number of the GPU events of one name."""

    name: str
    total_us: float
    num_events: int


def us_of(time_ns: int) -> float:
    """Give whole nanoseconds as µs, to the float nearest to the exact value."""
    return time_ns / 1000


def sum_us(first_us: float, second_us: float) -> float:
    """Add two times that are whole nanoseconds, without the rounding of float sums."""
    return us_of(round(first_us * 1000) + round(second_us * 1000))


def times_by_name(timeline: Timeline, names: list[str], kind: Kind | None = None) -> list[NameTime]:
    """Give time and number for each name that occurs, of one kind or of all; sums are exact up to 2^53 ns."""
    chosen = slice(None) if kind is None else timeline.kind == kind
    name, duration_ns = timeline.name[chosen], (timeline.end_ns - timeline.start_ns)[chosen]
    total_ns = np.zeros(len(names))
    np.add.at(total_ns, name, duration_ns)
    counts = np.bincount(name, minlength=len(names)).tolist()
    return [NameTime(names[i], us_of(int(total_ns[i])), count) for i, count in enumerate(counts) if count]


def copies_by_direction(timeline: Timeline, names: list[str]) -> tuple[NameTime, ...]:
    """Give time and number of copies for each direction: HtoD, DtoH, DtoD, PtoP, other."""
    rows = times_by_name(timeline, names, Kind.COPY)
    return united(NameTime(direction_of(row.name), row.total_us, row.num_events) for row in rows)


def longest(rows: Iterable[NameTime]) -> tuple[NameTime, ...]:
    """Give the ten names with the most time, long names cut."""
    short = united(NameTime(_cut(row.name), row.total_us, row.num_events) for row in rows)
    return short[:NUM_LONGEST]


def united(rows: Iterable[NameTime]) -> tuple[NameTime, ...]:
    """Put rows of one name together; the names with the most time come first."""
    found: dict[str, NameTime] = {}
    for row in rows:
        before = found.get(row.name, NameTime(row.name, 0.0, 0))
        found[row.name] = NameTime(row.name, sum_us(before.total_us, row.total_us), before.num_events + row.num_events)
    return tuple(sorted(found.values(), key=lambda row: (-row.total_us, row.name)))


def _cut(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 1]}…"
