"""What every mode offers to the training loop."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from aorta_train.job import Job
from aorta_train.options import Options
from aorta_train.timing import StepTimer, Untimed


class Parallel(Protocol):
    """A model shared by all ranks."""

    module: nn.Module
    """What is called with a batch."""

    def batch_context(self, last: bool) -> AbstractContextManager[None]:
        """Surround forward and backward of one batch; gradients travel only when it is the `last` of a step."""
        ...

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradients down to `max_norm`; gives their global norm before, the same on every rank."""
        ...

    def full_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Give every parameter whole, by its name in the model; all ranks must ask together."""
        ...


Wrap = Callable[[Options, Job, torch.device, StepTimer], Parallel]

MODULES = {
    "fsdp": "aorta_train.parallel.fsdp",
    "fsdp2": "aorta_train.parallel.fsdp2",
    "ddp": "aorta_train.parallel.ddp",
}


def share_model(options: Options, job: Job, device: torch.device, timer: StepTimer | None = None) -> Parallel:
    """Make the model and share it among the ranks in the chosen mode."""
    module = importlib.import_module(MODULES[options.distributed.mode])
    return cast("Wrap", module.wrap)(options, job, device, timer or Untimed())
