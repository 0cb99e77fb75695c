"""Traffic that no real job makes: all-reduces with blocking copies between, to provoke hangs and poor overlap."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

NUM_ELEMENTS = 1_000_000


class AllReduceStress:
    """Rounds of all-reduce, copies on the device and to the host and back, and all-reduces, after each step.

    Each all-reduce runs on the process group's own stream, which waits for the stream that computes and is waited for
    by it; the host waits for every copy.
    """

    def __init__(self, level: int, device: torch.device, world_size: int) -> None:
        self._level = level
        self._world_size = world_size
        self._values = torch.ones(NUM_ELEMENTS, device=device)

    def run(self, loss: Tensor) -> list[Tensor]:
        """Stress with a large tensor, `level` times, then once with the loss; gives the sums over the ranks."""
        return [*(self._round(self._values.clone()) for _ in range(self._level)), self._round(loss.detach().clone())]

    def _round(self, values: Tensor) -> Tensor:
        """Average, copy, add up, take it to the host and back, average again: the sum, the same on all ranks."""
        self._average(values)
        copy = torch.empty_like(values)
        copy.copy_(values)
        _wait_for_device(copy)
        _add_up(copy)
        values.copy_(copy.to("cpu"))
        self._average(values)
        return values.clone()

    def _average(self, values: Tensor) -> None:
        """Average over the ranks; gloo has no AVG."""
        _add_up(values)
        values /= self._world_size


def _add_up(values: Tensor) -> None:
    work: Any = dist.all_reduce(values, async_op=True)
    work.wait()


def _wait_for_device(tensor: Tensor) -> None:
    if tensor.device.type != "cpu":
        torch.cuda.current_stream(tensor.device).synchronize()
