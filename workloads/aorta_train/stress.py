"""Traffic that no real job makes: all-reduces with blocking copies between, to provoke hangs and poor overlap."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

NUM_ELEMENTS = 1_000_000


class AllReduceStress:
    """Rounds of all-reduce, copy to the host and back, all-reduce, after each step."""

    def __init__(self, level: int, device: torch.device, world_size: int) -> None:
        self._level = level
        self._world_size = world_size
        self._values = torch.ones(NUM_ELEMENTS, device=device)

    def run(self, loss: Tensor) -> None:
        """Stress with a large tensor, `level` times, then once with the loss."""
        for _ in range(self._level):
            self._round(self._values.clone())
        self._round(loss.detach().clone())

    def _round(self, values: Tensor) -> None:
        self._average(values)
        copy = values.clone()
        dist.all_reduce(copy)
        values.copy_(copy.to("cpu").to(values.device))
        self._average(values)

    def _average(self, values: Tensor) -> None:
        """Average over the ranks; gloo has no AVG."""
        dist.all_reduce(values)
        values /= self._world_size
