"""Marks in time on a device: events in the order of a GPU's stream, or the host's clock for the CPU."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """Places marks, and tells later how far apart they are."""

    def mark(self) -> Any:
        """Mark the end of what the current stream was given so far, without waiting for it."""
        ...

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        """Give the time between two marks, once `end` has been reached; waits for that."""
        ...


class HostClock:
    """Marks of the host's clock: on the CPU work is done when its call returns."""

    def mark(self) -> int:
        """Give the time, in ns."""
        return time.perf_counter_ns()

    def elapsed_ms(self, begin: int, end: int) -> float:
        """Subtract."""
        return (end - begin) / 1e6


class GpuClock:
    """Events: the GPU stamps them when its stream gets there."""

    def mark(self) -> torch.cuda.Event:
        """Enqueue an event on the current stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def elapsed_ms(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Wait for both events (they may be of different streams) and subtract."""
        begin.synchronize()
        end.synchronize()
        return float(begin.elapsed_time(end))


def clock_of(device: torch.device) -> Clock:
    """Give the clock of a device."""
    return HostClock() if device.type == "cpu" else GpuClock()
