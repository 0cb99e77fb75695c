"""Mode fsdp2: fully_shard, each parameter sharded by its first dimension."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from aorta_train.job import Job
from aorta_train.model import build, initial_value
from aorta_train.options import Options
from aorta_train.parallel.layers import prepare_layers
from aorta_train.precision import low_precision
from aorta_train.priority import replace_streams
from aorta_train.shards import clip_shards
from aorta_train.timing import StepTimer
from aorta_train.units import name_in_model, put_together

HOMES = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
"""Where torch keeps fully_shard: from 2.6 on, and before."""


class Fsdp2:
    """A model whose parameters are DTensors."""

    def __init__(self, module: nn.Module, layers_per_unit: int, device: torch.device) -> None:
        self.module = module
        self._layers_per_unit = layers_per_unit
        self._parameters = list(module.parameters())
        self._device = device

    @contextmanager
    def batch_context(self, last: bool) -> Iterator[None]:
        """Hold gradients back, whole, until the last batch."""
        sharded: Any = self.module
        sharded.set_requires_gradient_sync(last)
        yield

    def clip(self, max_norm: float) -> Tensor:
        """Clip the shards."""
        return clip_shards(self._parameters, max_norm, dist.group.WORLD, self._device)

    def full_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Gather one parameter at a time."""
        parameter: Any
        for name, parameter in self.module.named_parameters():
            yield name_in_model(name, self._layers_per_unit), parameter.detach().full_tensor()


def wrap(options: Options, job: Job, device: torch.device, timer: StepTimer) -> Fsdp2:
    """Shard the model, unit by unit and then the rest."""
    home = _home()
    settings = options.fsdp
    start = {"cpu": torch.device("cpu"), "meta": torch.device("meta"), "device": device}[settings.param_init_device]
    model = build(options.model, options.training.seed, start, options.tuning.gemm_chunks)
    if start.type == "cpu":
        model = model.to(device)
    prepare_layers(model, options, device, timer)
    dtype = low_precision(options.training)
    policy = (
        home.MixedPrecisionPolicy() if dtype is None else home.MixedPrecisionPolicy(dtype, reduce_dtype=torch.float32)
    )
    everyone: Any = dist.group.WORLD
    mesh = DeviceMesh.from_group(everyone, device.type)  # a mesh of sizes might make a group of its own
    units: list[Any] = put_together(model, settings.layers_per_unit)
    for unit in units:
        home.fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=settings.reshard_after_forward)
    home.fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    if start.type == "meta":
        _materialise(model, options, job, device)
    _prefetch(units, settings.forward_prefetch_depth, settings.backward_prefetch_depth)
    _replace_streams(model, options, device)
    return Fsdp2(model, settings.layers_per_unit, device)


def _replace_streams(model: Any, options: Options, device: torch.device) -> None:
    """Give the streams the priority that is asked for; torch makes them once, when it first needs them."""
    if options.streams.comm_priority is None:
        return
    state = model._get_fsdp_state()  # noqa: SLF001
    state._lazy_init()  # noqa: SLF001
    names = ("all_gather_copy_in_stream", "all_gather_stream", "reduce_scatter_stream")
    replace_streams([state._comm_ctx], names, options, device)  # noqa: SLF001


def _home() -> Any:
    home, earlier_home = map(importlib.import_module, HOMES)
    return home if hasattr(home, "fully_shard") else earlier_home


@torch.no_grad()
def _materialise(model: nn.Module, options: Options, job: Job, device: torch.device) -> None:
    """Make each parameter whole, one at a time, and keep this rank's rows, split as torch.chunk splits them."""
    model.to_empty(device=device)
    parameter: Any
    for name, parameter in model.named_parameters():
        built_as = name_in_model(name, options.fsdp.layers_per_unit)
        rows = torch.chunk(initial_value(built_as, parameter.shape, options.training.seed, device), job.world_size)
        if job.rank < len(rows):
            parameter.to_local().copy_(rows[job.rank])


def _prefetch(units: list[Any], forward_depth: int, backward_depth: int) -> None:
    for index, unit in enumerate(units):
        if forward_depth:
            unit.set_modules_to_forward_prefetch(units[index + 1 : index + 1 + forward_depth])
        if backward_depth:
            unit.set_modules_to_backward_prefetch(units[max(0, index - backward_depth) : index][::-1])
