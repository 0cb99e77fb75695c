"""Mode fsdp: FullyShardedDataParallel, a unit a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from aorta_train.compiling import compile_layers
from aorta_train.job import Job
from aorta_train.model import EncoderLayer, build, initialise
from aorta_train.options import Options
from aorta_train.precision import low_precision

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

    def __init__(self, module: FullyShardedDataParallel) -> None:
        self.module: nn.Module = module
        self._root = module

    @contextmanager
    def batch_context(self, last: bool) -> Iterator[None]:
        """Hold gradients back, whole, until the last batch."""
        with nullcontext() if last else self._root.no_sync():
            yield

    def clip(self, max_norm: float) -> Tensor:
        """FSDP's own clipping: torch.nn.utils would take the norm of this rank's shard."""
        return self._root.clip_grad_norm_(max_norm)

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
                        yield _plain(f"{unit_name}.{name}"), parameter.detach()


def wrap(options: Options, job: Job, device: torch.device) -> Fsdp:
    """Shard the model, a unit a layer and one for the rest."""
    settings = options.fsdp
    seed = options.training.seed
    on_cpu = device.type == "cpu"
    start = {"cpu": torch.device("cpu"), "meta": torch.device("meta"), "device": device}[settings.param_init_device]
    model = build(options.model, seed, start)
    compile_layers(model, options.compile)
    if on_cpu and settings.sync_module_states and start.type != "meta":
        _send_parameters(model)
    dtype = low_precision(options.training)
    module = FullyShardedDataParallel(
        model,
        device_mesh=_mesh(settings.sharding_strategy, job, device),
        sharding_strategy=STRATEGIES[settings.sharding_strategy],
        auto_wrap_policy=ModuleWrapPolicy({EncoderLayer}),
        backward_prefetch=PREFETCHES[settings.backward_prefetch],
        mixed_precision=None
        if dtype is None
        else MixedPrecision(dtype, reduce_dtype=torch.float32, buffer_dtype=dtype),
        param_init_fn=_materialiser(model, seed, device) if start.type == "meta" else None,
        device_id=device,
        sync_module_states=settings.sync_module_states and not on_cpu,
        forward_prefetch=settings.forward_prefetch,
        limit_all_gathers=settings.limit_all_gathers,
        use_orig_params=settings.use_orig_params,
    )
    return Fsdp(module)


def _mesh(strategy: str, job: Job, device: torch.device) -> DeviceMesh | None:
    """Shard inside a node and replicate over nodes, when that is the strategy."""
    if strategy != "hybrid_shard":
        return None
    return init_device_mesh(device.type, (job.num_nodes, job.local_world_size), mesh_dim_names=("replicate", "shard"))


def _send_parameters(model: nn.Module) -> None:
    """Send rank 0's parameters to all: FSDP's sync_module_states raises on CPU."""
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)


def _materialiser(model: nn.Module, seed: int, device: torch.device) -> Callable[[nn.Module], None]:
    """Give the function that makes a module's own parameters on the device just before they are sharded."""
    names = {id(module): f"{name}." for name, module in model.named_modules()}

    def materialise(module: nn.Module) -> None:
        module.to_empty(device=device, recurse=False)
        initialise(module, seed, prefix=names[id(module)], recurse=False)

    return materialise


def _below_any(name: str, prefixes: list[str]) -> bool:
    return any(_plain(name).startswith(f"{_plain(prefix)}.") for prefix in prefixes)


def _plain(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "").removesuffix("._fsdp_wrapped_module").strip(".")
