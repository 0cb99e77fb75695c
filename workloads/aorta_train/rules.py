"""Rules across knobs, and between the knobs and the machine: each fault is a sentence that names the knob."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import fields
from pathlib import PurePath
from typing import Any

from aorta_train.knob import Limits
from aorta_train.options import Options
from aorta_train.wording import shown

MAX_NAME_BYTES = 200
"""Leaves room for what is added to a file's name, of the 255 bytes that file systems take."""


def faults_between_knobs(options: Options) -> list[str]:
    """Give what is wrong whatever the machine."""
    return [*_mode_faults(options), *_shape_faults(options), *_compile_faults(options), *_run_faults(options)]


def faults_on_device(options: Options, device: str) -> list[str]:
    """Give what is wrong on `device` (cpu, cuda or rocm)."""
    mode = options.distributed.mode
    faults = [
        f"{name}: does nothing on {device} (it acts on {' and '.join(limits.devices)}); leave it out or null"
        for name, limits in _explicit(options)
        if device not in limits.devices and _value(options, name) != limits.neutral
    ]
    meta = options.fsdp.param_init_device == "meta"
    if (
        device == "cpu"
        and mode == "fsdp"
        and meta
        and "fsdp.sync_module_states" in options.explicit
        and options.fsdp.sync_module_states
    ):
        faults.append(
            "fsdp.sync_module_states: with param_init_device meta there is nothing to send on cpu; leave it out"
        )
    return faults


def faults_in_job(options: Options, world_size: int, local_world_size: int) -> list[str]:
    """Give what is wrong with so many ranks, so many of them on each node."""
    faults: list[str] = []
    if options.distributed.mode == "fsdp" and options.fsdp.sharding_strategy == "hybrid_shard":
        faults += _hybrid_faults(world_size, local_world_size)
    steps_per_epoch = steps_in_epoch(options, world_size)
    if steps_per_epoch == 0:
        needed = options.training.batch_size * options.training.gradient_accumulation * world_size
        return [
            *faults,
            f"dataset.num_samples: is {options.dataset.num_samples}, but one step of {world_size} ranks takes {needed}",
        ]
    steps = num_steps(options, world_size)
    wanted = options.training.max_steps
    if wanted is not None and steps < wanted:
        faults.append(
            f"training.max_steps: is {wanted}, but training.epochs {options.training.epochs} with dataset.num_samples "
            f"{options.dataset.num_samples} give {steps} on {world_size} ranks; leave training.epochs out or raise it"
        )
    if options.profiling.enabled and wanted is None:
        faults += _schedule_faults(options, steps)
    if options.fault_injection.kind != "none" and options.fault_injection.step > steps:
        faults.append(f"fault_injection.step: is {options.fault_injection.step}, but the run has {steps} steps")
    if options.fault_injection.kind != "none" and options.fault_injection.rank >= world_size:
        faults.append(f"fault_injection.rank: is {options.fault_injection.rank}, but the job has {world_size} ranks")
    return faults


def steps_in_epoch(options: Options, world_size: int) -> int:
    """Count the optimizer steps of one pass over the data; what does not fill a step on every rank is left out."""
    batches = options.dataset.num_samples // world_size // options.training.batch_size
    return batches // options.training.gradient_accumulation


def num_steps(options: Options, world_size: int) -> int:
    """Count the optimizer steps of the run."""
    wanted = options.training.max_steps
    if wanted is not None and "training.epochs" not in options.explicit:
        return wanted
    available = steps_in_epoch(options, world_size) * options.training.epochs
    return available if wanted is None else min(wanted, available)


def _hybrid_faults(world_size: int, local_world_size: int) -> Iterator[str]:
    if local_world_size == world_size:
        yield "fsdp.sharding_strategy: hybrid_shard needs two nodes or more, but this job has one; use full_shard"
    elif local_world_size == 1:
        yield "fsdp.sharding_strategy: hybrid_shard needs two ranks or more on a node, but there is one; use full_shard"
    elif world_size % local_world_size:
        yield (
            f"fsdp.sharding_strategy: hybrid_shard needs as many ranks on each node, but {world_size} ranks are no "
            f"multiple of the {local_world_size} here; use full_shard"
        )


def _explicit(options: Options) -> Iterator[tuple[str, Limits]]:
    for section in fields(options):
        if section.name == "explicit":
            continue
        for knob in fields(getattr(options, section.name)):
            name = f"{section.name}.{knob.name}"
            if name in options.explicit:
                yield name, knob.metadata["limits"]


def _value(options: Options, name: str) -> Any:
    section, knob = name.split(".")
    return getattr(getattr(options, section), knob)


def _mode_faults(options: Options) -> Iterator[str]:
    mode = options.distributed.mode
    for name, limits in _explicit(options):
        if mode not in limits.modes and _value(options, name) != limits.neutral:
            modes = " and ".join(limits.modes)
            yield f"{name}: does nothing in distributed.mode {mode} (it belongs to {modes}); leave it out or null"


def _shape_faults(options: Options) -> Iterator[str]:
    model, dataset = options.model, options.dataset
    if model.model_dim % model.num_heads:
        yield f"model.model_dim: is {model.model_dim}, expected a multiple of model.num_heads ({model.num_heads})"
    for name in ("dense_dim", "num_dense_features"):
        if getattr(model, name) != getattr(dataset, name):
            yield f"model.{name}: is {getattr(model, name)}, expected dataset.{name} ({getattr(dataset, name)})"
    if options.fsdp.layers_per_unit > model.num_layers:
        yield (
            f"fsdp.layers_per_unit: is {options.fsdp.layers_per_unit}, expected at most model.num_layers "
            f"({model.num_layers})"
        )
    if dataset.vocab_size > model.vocab_size:
        yield f"dataset.vocab_size: is {dataset.vocab_size}, expected at most model.vocab_size ({model.vocab_size})"


def _compile_faults(options: Options) -> Iterator[str]:
    settings = options.compile
    if not settings.enabled:
        return
    has_mode = "compile.mode" in options.explicit
    if settings.backend != "inductor":
        if has_mode:
            yield f"compile.mode: does nothing with backend {settings.backend} (it belongs to inductor); leave it out"
        if settings.options:
            yield f"compile.options: do nothing with backend {settings.backend} (they are inductor's); leave them out"
    elif has_mode and settings.options:
        yield "compile.mode: torch.compile takes a mode or options, not both; leave one out"
    if options.distributed.mode == "fsdp" and not options.fsdp.use_orig_params:
        yield "fsdp.use_orig_params: is false, but compiled layers need true under fsdp"


def _run_faults(options: Options) -> Iterator[str]:
    profiling, scheduler, training = options.profiling, options.scheduler, options.training
    if scheduler.total_steps and scheduler.warmup_steps > scheduler.total_steps:
        yield f"scheduler.warmup_steps: {scheduler.warmup_steps} is above scheduler.total_steps {scheduler.total_steps}"
    if options.optimizer.name == "shampoo":
        has_package = importlib.util.find_spec("distributed_shampoo") is not None
        why = (
            "is not offered with the installed distributed_shampoo, whose interface changes between releases"
            if has_package
            else "needs the package distributed_shampoo, which is not installed"
        )
        yield f"optimizer.name: shampoo {why}; use adamw"
    positions = training.batch_size * options.dataset.sequence_length
    if options.tuning.gemm_chunks > positions:
        yield f"tuning.gemm_chunks: is {options.tuning.gemm_chunks}, but a batch has {positions} positions; lower it"
    if options.distributed.static_graph and training.gradient_accumulation > 1:
        yield (
            "distributed.static_graph: is true, but DDP cannot hold the gradients of a batch back then; leave it out "
            "or set training.gradient_accumulation to 1"
        )
    if options.benchmark.measure_peak and options.benchmark.peak_tflops is not None:
        yield "benchmark.peak_tflops: is given and measure_peak is true; leave one out"
    if PurePath(profiling.trace_filename).name != profiling.trace_filename or not profiling.trace_filename.endswith(
        ".json"
    ):
        name = shown(profiling.trace_filename)
        yield f"profiling.trace_filename: is {name}, expected a file name that ends with .json"
    elif len(profiling.trace_filename.encode(errors="surrogateescape")) > MAX_NAME_BYTES:
        yield f"profiling.trace_filename: is longer than {MAX_NAME_BYTES} bytes; shorten it"
    if profiling.enabled:
        if not (profiling.tensorboard or profiling.chrome_trace):
            yield "profiling.enabled: is true, but tensorboard and chrome_trace are false: no trace would be written"
        if training.max_steps is not None:
            yield from _schedule_faults(options, training.max_steps)


def _schedule_faults(options: Options, steps: int) -> list[str]:
    needed = cycle_steps(options) * options.profiling.repeat
    if steps >= needed:
        return []
    parts = [f"{name} {getattr(options.profiling, name)}" for name in ("wait", "warmup", "active")]
    schedule = f"({' + '.join(parts)}) x repeat {options.profiling.repeat}"
    return [
        f"profiling: {schedule} needs {needed} steps, but the run has {steps}; raise training.max_steps or record less"
    ]


def cycle_steps(options: Options) -> int:
    """Count the steps of one profiler cycle."""
    return options.profiling.wait + options.profiling.warmup + options.profiling.active
