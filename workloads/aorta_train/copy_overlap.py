"""Copies to the host beside matrix products: what each takes alone, one after the other, and both at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

BYTES_OF_MB = 1_000_000


@dataclass(frozen=True)
class CopyOverlap:
    """Milliseconds an iteration of each kind of work alone, one after the other, and both at once.

    `activity` is what the device's profiler calls the copy: a copy engine's work, or a kernel that copies.
    """

    compute_ms: float
    copy_ms: float
    sequential_ms: float
    overlapped_ms: float
    copy_bytes: int
    activity: str | None

    @property
    def savings_percent(self) -> float:
        """Share of the sequential time that overlapping saves; negative when it costs time."""
        return 100 * (self.sequential_ms - self.overlapped_ms) / self.sequential_ms

    @property
    def overlap_fraction(self) -> float:
        """Share of the shorter work that ran while the other did: 1 is all of it, 0 and below none."""
        return (self.compute_ms + self.copy_ms - self.overlapped_ms) / min(self.compute_ms, self.copy_ms)

    @property
    def copy_gb_per_s(self) -> float:
        """Rate of the copies when nothing else runs."""
        return self.copy_bytes / self.copy_ms / 1e6


class Bench:
    """The matrices, the buffers and the two streams of a measurement.

    Raises:
        torch.cuda.OutOfMemoryError: they do not fit into the device.
    """

    def __init__(self, device: torch.device, matrix_size: int, copy_mb: int) -> None:
        self._device = device
        shape = (matrix_size, matrix_size)
        self._left, self._right, self._product = (
            torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(3)
        )
        self._source = torch.ones(copy_mb * BYTES_OF_MB, device=device, dtype=torch.uint8)
        self._target = torch.empty(self._source.shape, dtype=torch.uint8, pin_memory=True)
        self._computing, self._copying = (torch.cuda.Stream(device, priority=priority) for priority in (0, -1))  # type: ignore[no-untyped-call]

    def measure(self, iterations: int, cold_iterations: int) -> CopyOverlap:
        """Time each kind of work after some cold iterations of it; the host enqueues all and waits once."""
        compute, copy = (self._computing, self._compute), (self._copying, self._copy)

        def timed(*work: tuple[torch.cuda.Stream, Callable[[], None]]) -> float:
            self._time_ms(work, cold_iterations)
            return self._time_ms(work, iterations) / iterations

        found = CopyOverlap(
            compute_ms=timed(compute),
            copy_ms=timed(copy),
            sequential_ms=timed(compute, (self._computing, self._copy)),
            overlapped_ms=timed(compute, copy),
            copy_bytes=self._source.nbytes,
            activity=self._activity(),
        )
        if not bool((self._target == 1).all()):
            raise RuntimeError("the copies did not bring the bytes of the device")
        return found

    def _compute(self) -> None:
        torch.mm(self._left, self._right, out=self._product)
        self._product.relu_()

    def _copy(self) -> None:
        self._target.copy_(self._source, non_blocking=True)

    def _time_ms(self, work: tuple[tuple[torch.cuda.Stream, Callable[[], None]], ...], times: int) -> float:
        """Enqueue all work `times` times, each on its stream, and give the milliseconds from first to last."""
        here = torch.cuda.current_stream(self._device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record(here)
        for stream, _ in work:
            stream.wait_stream(here)
        for _ in range(times):
            for stream, do in work:
                with torch.cuda.stream(stream):
                    do()
        for stream, _ in work:
            here.wait_stream(stream)
        end.record(here)
        end.synchronize()
        return float(begin.elapsed_time(end))

    def _activity(self) -> str | None:
        with profile(activities=[ProfilerActivity.CUDA]) as recorded:
            self._copy()
            torch.cuda.synchronize(self._device)
        names = [event.name for event in recorded.events() if not str(event.device_type).endswith("CPU")]
        return names[0] if names else None
