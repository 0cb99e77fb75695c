"""Mode ddp: every rank holds the whole model, gradients are all-reduced in buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from aorta_train.job import Job
from aorta_train.model import build
from aorta_train.options import Options
from aorta_train.parallel.layers import prepare_layers
from aorta_train.precision import low_precision
from aorta_train.timing import StepTimer, StreamTimer


class Ddp:
    """A replicated model."""

    def __init__(self, module: DistributedDataParallel, autocast_dtype: torch.dtype | None) -> None:
        self.module: nn.Module = module
        self._replica = module
        self._parameters = list(module.parameters())
        self._autocast_dtype = autocast_dtype
        self._device_type = self._parameters[0].device.type

    @contextmanager
    def batch_context(self, last: bool) -> Iterator[None]:
        """Cast matrix products; hold gradients back until the last batch."""
        dtype = self._autocast_dtype
        casting = nullcontext() if dtype is None else torch.autocast(self._device_type, dtype=dtype)
        with nullcontext() if last else self._replica.no_sync(), casting:
            yield

    def clip(self, max_norm: float) -> Tensor:
        """Every rank has all gradients, so the norm is global."""
        return torch.nn.utils.clip_grad_norm_(self._parameters, max_norm)

    def full_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Give this rank's own copy of each parameter."""
        for name, parameter in self._replica.module.named_parameters():
            yield name, parameter.detach()


def wrap(options: Options, job: Job, device: torch.device, timer: StepTimer) -> Ddp:
    """Replicate the model."""
    settings = options.distributed
    model = build(options.model, options.training.seed, torch.device("cpu"), options.tuning.gemm_chunks).to(device)
    prepare_layers(model, options, device, timer)
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=settings.bucket_cap_mb,
        gradient_as_bucket_view=settings.gradient_as_bucket_view,
        static_graph=settings.static_graph,
        find_unused_parameters=settings.find_unused_parameters,
    )
    if isinstance(timer, StreamTimer):
        module.register_comm_hook(None, allreduce_hook)  # the same reduction, but issued where it can be timed
    return Ddp(module, low_precision(options.training))
