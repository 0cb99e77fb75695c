"""Timing every collective that Python code issues through `torch.distributed`, without changing its order.

A range begins where the collective may begin, on the stream that issues it, and ends where it has ended: a collective
that the caller waits for ends in that stream's order; one that runs on is waited for by a stream of its own, so that
the caller waits where it always did. Waiting lets newer torch give up its hold on the tensors, so they are kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aorta_train.timing import StreamTimer

STREAM_OF = {
    "all_reduce": "allreduce",
    "reduce_scatter": "reducescatter",
    "reduce_scatter_tensor": "reducescatter",
    "reduce_scatter_single": "reducescatter",
    "all_gather": "allgather",
    "all_gather_into_tensor": "allgather",
    "all_gather_single": "allgather",
}
"""The last of each kind is the newer name; a torch has those that it has."""


class Interception:
    """Times the collectives on tensors of one device while it is entered."""

    def __init__(self, timer: StreamTimer, device: torch.device) -> None:
        self._timer = timer
        self._device = device
        self._earlier: dict[str, Callable[..., Any]] = {}
        self._watchers: dict[str, Any] = {}

    def __enter__(self) -> Interception:  # noqa: PYI034  (Self needs Python 3.11)
        """Put the timed functions in the place of the collectives."""
        for name, stream in STREAM_OF.items():
            collective = getattr(dist, name, None)
            if collective is not None:
                self._earlier[name] = collective
                setattr(dist, name, self._timed(collective, stream))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the collectives back."""
        for name, collective in self._earlier.items():
            setattr(dist, name, collective)

    def _timed(self, collective: Callable[..., Any], stream: str) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            tensors = _tensors_in([*given, *named.values()])
            recording = self._timer.recording
            if recording is None or not tensors or tensors[0].device.type != self._device.type:
                return collective(*given, **named)
            begin = self._timer.clock.mark()
            work = collective(*given, **named)
            end = self._timer.clock.mark() if work is None else self._mark_end(work, stream)
            num_bytes = max(sum(one.nbytes for one in part) for part in _parts_in([*given, *named.values()]))
            recording.ranges.append((stream, collective.__name__, begin, end, {"bytes": num_bytes}))
            if work is not None:
                recording.kept.append(tensors)
            return work

        return run

    def _mark_end(self, work: Any, stream: str) -> Any:
        """Mark the end of a collective that the caller has not waited for."""
        with nullcontext() if self._device.type == "cpu" else torch.cuda.stream(self._watcher(stream)):
            work.wait()
            return self._timer.clock.mark()

    def _watcher(self, stream: str) -> torch.cuda.Stream:
        if stream not in self._watchers:
            self._watchers[stream] = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        watcher: torch.cuda.Stream = self._watchers[stream]
        return watcher


def _parts_in(values: list[Any]) -> list[list[Tensor]]:
    lists = [value if isinstance(value, (list, tuple)) else [value] for value in values]
    parts = [[one for one in part if isinstance(one, Tensor)] for part in lists]
    return [part for part in parts if part]


def _tensors_in(values: list[Any]) -> list[Tensor]:
    return [one for part in _parts_in(values) for one in part]
