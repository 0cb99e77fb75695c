"""How long each step took and what it computed, without making the host wait for the GPU.

A step lasts from the end of the step before to its own end, so that the steps add up to the time that passed. On a GPU
the readings of a step are taken while the next one runs: its values are copied to page-locked memory, and an event
marks its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aorta_train.clock import clock_of
from aorta_train.recording import Recording


@dataclass(frozen=True)
class StepFacts:
    """What is known of a step when it is enqueued."""

    epoch: int
    step: int
    global_step: int
    learning_rate: float
    samples: int
    tokens: int
    profiled: bool


@dataclass(frozen=True)
class Reading:
    """A finished step."""

    facts: StepFacts
    step_ms: float
    loss: float
    grad_norm: float | None
    profile: dict[str, Any] | None


class Meter:
    """Collects readings in the order of the steps."""

    def __init__(self, device: torch.device) -> None:
        self._clock = clock_of(device)
        self._on_gpu = device.type != "cpu"
        self._pending: deque[tuple[StepFacts, Any, Any, Tensor, bool, Recording | None]] = deque()
        self._last_end: Any = None

    def begin(self) -> None:
        """Mark the beginning of the first step."""
        self._last_end = self._clock.mark()

    def end_step(
        self, facts: StepFacts, loss: Tensor, grad_norm: Tensor | None, recording: Recording | None = None
    ) -> None:
        """Mark the end of a step."""
        has_norm = grad_norm is not None
        values = torch.stack([loss.detach().float(), (grad_norm if has_norm else loss).detach().float()])  # type: ignore[union-attr]
        if self._on_gpu:
            host = torch.empty(2, pin_memory=True)
            values = host.copy_(values, non_blocking=True)
        end = self._clock.mark()
        self._pending.append((facts, self._last_end, end, values, has_norm, recording))
        self._last_end = end

    def readings(self, all_of_them: bool = False) -> Iterator[Reading]:
        """Give the steps that can be read without waiting for the one just enqueued, or all."""
        num_kept = 1 if self._on_gpu and not all_of_them else 0
        while len(self._pending) > num_kept:
            facts, begin, end, values, has_norm, recording = self._pending.popleft()
            step_ms = self._clock.elapsed_ms(begin, end)
            loss, norm = values.tolist()
            yield Reading(facts, step_ms, loss, norm if has_norm else None, recording.read() if recording else None)
