"""Steps: how long each profiled training step took, on the GPU where there is one, else on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.links import NONE
from pytest_aorta.trace.timeline import Timeline

_MAX_NUMBER = 1 << 62

Steps = Mapping[int, tuple[int, int]]  # number of a ProfilerStep: its start and end on the CPU, in ns


def gpu_step_times_ns(timeline: Timeline, steps: Steps) -> tuple[int, ...]:
    """Give the GPU time of each step but the first: from the last GPU end launched in the step before to that in it.

    Work belongs to the step in whose range its launch call began, whatever thread made the call. A step that launched
    nothing has no end; neither it nor the step after it is given.
    """
    ends_ns = [_last_end_ns(timeline, *steps[number]) for number in sorted(steps)]
    return tuple(max(0, end - before) for before, end in pairwise(ends_ns) if before is not None and end is not None)


def step_of_launches(launch_start_ns: NDArray[np.int64], steps: Steps) -> NDArray[np.int64]:
    """Give the number of the step in whose range each launch call began, NONE where it is no step's, (E,) int64."""
    known = sorted((start, end, number) for number, (start, end) in steps.items() if 0 <= number < _MAX_NUMBER)
    if not known or not launch_start_ns.size:
        return np.full(launch_start_ns.size, NONE, np.int64)
    starts, ends, numbers = (np.array(values, np.int64) for values in zip(*known, strict=True))
    place = np.maximum(np.searchsorted(starts, launch_start_ns, side="right") - 1, 0)
    inside = (launch_start_ns >= starts[place]) & (launch_start_ns < ends[place])
    return np.where(inside, numbers[place], NONE)


def cpu_step_times_ns(steps: Steps) -> tuple[int, ...]:
    """Give the length of each step's range on the CPU, for traces without GPU events."""
    return tuple(end - start for _, (start, end) in sorted(steps.items()))


def _last_end_ns(timeline: Timeline, start: int, end: int) -> int | None:
    launched = timeline.end_ns[(timeline.launch_start_ns >= start) & (timeline.launch_start_ns < end)]
    return int(np.max(launched)) if launched.size else None
