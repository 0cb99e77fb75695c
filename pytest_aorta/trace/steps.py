"""Steps: how long each profiled training step took, on the GPU where there is one, else on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from pytest_aorta.trace.timeline import Timeline

Steps = Mapping[int, tuple[int, int]]  # number of a ProfilerStep: its start and end on the CPU, in ns


def gpu_step_times_ns(timeline: Timeline, steps: Steps) -> tuple[int, ...]:
    """Give the GPU time of each step but the first: from the last GPU end launched in the step before to that in it.

    Work belongs to the step in whose range its launch call began, whatever thread made the call. A step that launched
    nothing has no end; neither it nor the step after it is given.
    """
    ends_ns = gpu_step_ends_ns(timeline, steps)
    return tuple(max(0, end - before) for before, end in pairwise(ends_ns) if before is not None and end is not None)


def gpu_step_ends_ns(timeline: Timeline, steps: Steps) -> tuple[int | None, ...]:
    """Give the last GPU end launched in each step, None for one that launched nothing."""
    return tuple(_last_end_ns(timeline, *steps[number]) for number in sorted(steps))


def cpu_step_times_ns(steps: Steps) -> tuple[int, ...]:
    """Give the length of each step's range on the CPU, for traces without GPU events."""
    return tuple(end - start for _, (start, end) in sorted(steps.items()))


def _last_end_ns(timeline: Timeline, start: int, end: int) -> int | None:
    launched = timeline.end_ns[(timeline.launch_start_ns >= start) & (timeline.launch_start_ns < end)]
    return int(np.max(launched)) if launched.size else None
