"""`profiling.stream_timing`: how long the phases of a step take, and in `full` its computation and its collectives.

Marks are enqueued while the step is, and read when a later one runs, so neither kind makes the host wait. Phases follow
each other on the stream that computes, which waits there for collectives: a phase holds these waits. In `full` the
computation is cut where it can wait, between the parts of the model, and each collective is a range of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from aorta_train.clock import Clock, clock_of
from aorta_train.overlap import AUXILIARY, COMPUTE, STREAMS
from aorta_train.recording import Recording

CUT_PHASES = ("forward", "backward")


class StepTimer(Protocol):
    """Watches the steps of one rank."""

    def begin_step(self) -> None:
        """Begin a step, before its data is there."""
        ...

    def phase(self, tag: str, **metadata: Any) -> AbstractContextManager[None]:
        """Surround a phase: data, forward, backward, clip, optimizer, stress."""
        ...

    def watch_loss(self, loss: Tensor) -> None:
        """Say which tensor the backward pass begins with."""
        ...

    def end_step(self) -> Recording | None:
        """End the step; gives what is to be read later."""
        ...


class Untimed:
    """stream_timing: off."""

    def begin_step(self) -> None:
        """Mark nothing."""

    def phase(self, tag: str, **metadata: Any) -> AbstractContextManager[None]:
        """Surround nothing."""
        return nullcontext()

    def watch_loss(self, loss: Tensor) -> None:
        """Watch nothing."""

    def end_step(self) -> None:
        """Give nothing."""


class PhaseTimer:
    """stream_timing: light. Two marks a phase."""

    measured: tuple[str, ...] = (COMPUTE, AUXILIARY)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.recording: Recording | None = None
        self._num_steps = 0

    def begin_step(self) -> None:
        """Begin a recording."""
        self.recording = Recording(self.clock, self._num_steps, self.measured, begin=self.clock.mark())
        self._num_steps += 1

    @contextmanager
    def phase(self, tag: str, **metadata: Any) -> Iterator[None]:
        """Mark both ends; outside of a step there is nothing to time."""
        if self.recording is None:
            yield
            return
        begin = self.clock.mark()
        yield
        stream = COMPUTE if tag in CUT_PHASES else AUXILIARY
        self.recording.ranges.append((stream, tag, begin, self.clock.mark(), metadata))

    def watch_loss(self, loss: Tensor) -> None:
        """Watch nothing: the backward phase is one range."""

    def end_step(self) -> Recording | None:
        """Mark the end."""
        recording, self.recording = self.recording, None
        if recording:
            recording.end = self.clock.mark()
        return recording


class StreamTimer(PhaseTimer):
    """stream_timing: full. Forward and backward are cut into the parts of the model, and leave a marker each."""

    measured = STREAMS

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._open: tuple[str, Any] | None = None

    @contextmanager
    def phase(self, tag: str, **metadata: Any) -> Iterator[None]:
        """Leave a marker where a cut phase begins; its ranges are those between `open` and `close`."""
        if tag not in CUT_PHASES or self.recording is None:
            with super().phase(tag, **metadata):
                yield
            return
        self.recording.markers.append((COMPUTE, tag, self.clock.mark(), metadata))
        yield
        self.close()

    def open(self, tag: str) -> None:
        """Begin a piece of computation, unless one is open."""
        if self.recording and self._open is None:
            self._open = (tag, self.clock.mark())

    def close(self) -> None:
        """End the piece that is open."""
        if self.recording and self._open:
            tag, begin = self._open
            self.recording.ranges.append((COMPUTE, tag, begin, self.clock.mark(), {}))
        self._open = None

    def watch_loss(self, loss: Tensor) -> None:
        """Open the first piece of the backward pass when it begins, and close the last before anyone waits after it.

        What is queued first runs first at the end of the backward pass; the waits for gradients are queued later.
        """
        node: Any = loss.grad_fn
        engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001

        def begin(gradients: Any) -> None:
            self.open("backward.head")
            engine.queue_callback(self.close)

        node.register_prehook(begin)


def timer_of(stream_timing: str, device: torch.device) -> Untimed | PhaseTimer | StreamTimer:
    """Give the timer that the configuration asks for."""
    if stream_timing == "off":
        return Untimed()
    clock = clock_of(device)
    return PhaseTimer(clock) if stream_timing == "light" else StreamTimer(clock)
