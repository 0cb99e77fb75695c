"""Mode fsdp: FullyShardedDataParallel, unit by unit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from aorta_train.job import Job
from aorta_train.model import EncoderLayer, build, initialise
from aorta_train.options import Options
from aorta_train.parallel.layers import prepare_layers
from aorta_train.precision import low_precision
from aorta_train.priority import group_wishes, replace_streams
from aorta_train.shards import clip_shards
from aorta_train.timing import StepTimer
from aorta_train.units import Unit, name_in_model, put_together

STRATEGIES = {
    "full_shard": ShardingStrategy.FULL_SHARD,
    "shard_grad_op": ShardingStrategy.SHARD_GRAD_OP,
    "no_shard": ShardingStrategy.NO_SHARD,
    "hybrid_shard": ShardingStrategy.HYBRID_SHARD,
}
PREFETCHES = {
    "BACKWARD_PRE": BackwardPrefetch.BACKWARD_PRE,
    "BACKWARD_POST": BackwardPrefetch.BACKWARD_POST,
    "none": None,
}


class Fsdp:
    """A model in units, each sharded over the ranks."""

    def __init__(
        self, module: FullyShardedDataParallel, is_sharded: bool, layers_per_unit: int, device: torch.device
    ) -> None:
        self.module: nn.Module = module
        self._root = module
        self._parameters = list(module.parameters())
        self._is_sharded = is_sharded
        self._layers_per_unit = layers_per_unit
        self._device = device

    @contextmanager
    def batch_context(self, last: bool) -> Iterator[None]:
        """Hold gradients back, whole, until the last batch."""
        with nullcontext() if last else self._root.no_sync():
            yield

    def clip(self, max_norm: float) -> Tensor:
        """Clip the shards: torch.nn.utils would take the norm of this rank's own."""
        if not self._is_sharded:
            return torch.nn.utils.clip_grad_norm_(self._parameters, max_norm)
        return clip_shards(self._parameters, max_norm, self._root.process_group, self._device)

    def full_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Gather one unit at a time."""
        for unit_name, unit in self._root.named_modules():
            if not isinstance(unit, FullyShardedDataParallel):
                continue
            inner = [
                name for name, module in unit.named_modules() if name and isinstance(module, FullyShardedDataParallel)
            ]
            with FullyShardedDataParallel.summon_full_params(unit, recurse=False, writeback=False):
                for name, parameter in unit.named_parameters():
                    if not _below_any(name, inner):
                        yield name_in_model(_plain(f"{unit_name}.{name}"), self._layers_per_unit), parameter.detach()


def wrap(options: Options, job: Job, device: torch.device, timer: StepTimer) -> Fsdp:
    """Shard the model, the units of layers and one more for the rest."""
    settings = options.fsdp
    seed = options.training.seed
    on_cpu = device.type == "cpu"
    start = {"cpu": torch.device("cpu"), "meta": torch.device("meta"), "device": device}[settings.param_init_device]
    model = build(options.model, seed, start, options.tuning.gemm_chunks)
    materialise = _materialiser(model, seed, device) if start.type == "meta" else None
    prepare_layers(model, options, device, timer)
    put_together(model, settings.layers_per_unit)
    if on_cpu and settings.sync_module_states and start.type != "meta":
        _send_parameters(model)
    dtype = low_precision(options.training)
    module = FullyShardedDataParallel(
        model,
        process_group=_groups(options, job),
        sharding_strategy=STRATEGIES[settings.sharding_strategy],
        auto_wrap_policy=ModuleWrapPolicy({EncoderLayer if settings.layers_per_unit == 1 else Unit}),
        backward_prefetch=PREFETCHES[settings.backward_prefetch],
        mixed_precision=None
        if dtype is None
        else MixedPrecision(dtype, reduce_dtype=torch.float32, buffer_dtype=dtype),
        param_init_fn=materialise,
        device_id=device,
        sync_module_states=settings.sync_module_states and not on_cpu,
        forward_prefetch=settings.forward_prefetch,
        limit_all_gathers=settings.limit_all_gathers,
        use_orig_params=settings.use_orig_params,
    )
    _replace_streams(module, options, device)
    return Fsdp(module, settings.sharding_strategy != "no_shard", settings.layers_per_unit, device)


def _groups(options: Options, job: Job) -> Any:
    """Give the groups to shard inside a node and to replicate over nodes when that is the strategy, else nothing."""
    if options.fsdp.sharding_strategy != "hybrid_shard":
        return None
    ranks = torch.arange(job.world_size).view(job.num_nodes, job.local_world_size)
    # Each group has wishes of its own: torch notes the ranks of a group in them.
    sharding = [dist.new_group(nodes_ranks, **group_wishes(options)) for nodes_ranks in ranks.tolist()]
    replicating = [dist.new_group(twins, **group_wishes(options)) for twins in ranks.T.tolist()]
    return sharding[job.rank // job.local_world_size], replicating[job.rank % job.local_world_size]


def _replace_streams(module: FullyShardedDataParallel, options: Options, device: torch.device) -> None:
    """Give the units' streams the priority that is asked for; torch makes them once, when it first needs them."""
    if options.streams.comm_priority is None:
        return
    runtime: Any = importlib.import_module("torch.distributed.fsdp._runtime_utils")
    runtime._lazy_init(module, module)  # noqa: SLF001
    names = ["_unshard_stream", "_post_backward_stream"]
    if options.fsdp.sharding_strategy == "hybrid_shard":
        names.append("_all_reduce_stream")
    replace_streams(FullyShardedDataParallel.fsdp_modules(module), names, options, device)


def _send_parameters(model: nn.Module) -> None:
    """Send rank 0's parameters to all: FSDP's sync_module_states raises on CPU."""
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)


def _materialiser(model: nn.Module, seed: int, device: torch.device) -> Callable[[nn.Module], None]:
    """Give the function that makes a module's own parameters on the device just before they are sharded."""
    names = {id(module): f"{name}." for name, module in model.named_modules()}

    def materialise(module: nn.Module) -> None:
        module.to_empty(device=device, recurse=False)
        initialise(module, seed, prefix=names.get(id(module), ""), recurse=False)  # a unit has none of its own

    return materialise


def _below_any(name: str, prefixes: list[str]) -> bool:
    return any(_plain(name).startswith(f"{_plain(prefix)}.") for prefix in prefixes)


def _plain(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "").removesuffix("._fsdp_wrapped_module").strip(".")
