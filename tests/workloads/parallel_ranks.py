"""What ranks see: started by torchrun from test_train_parallel.py, writes what it measured to <folder>/rank<R>.json.

One start for all modes and knobs, because a start costs seconds and a tiny step milliseconds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads"))

from aorta_train.compiling import outcome
from aorta_train.data import FeatureTable, step_data
from aorta_train.ending import leave_gloo
from aorta_train.environment import spare_the_host
from aorta_train.group import close_group, open_group
from aorta_train.interception import Interception
from aorta_train.job import Job, job_in
from aorta_train.loading import load
from aorta_train.loop import Steps
from aorta_train.model import build, layers_of, loss_of
from aorta_train.optim import rate_factor
from aorta_train.options import Options
from aorta_train.parallel.mode import Parallel, share_model
from aorta_train.stop import Agreement
from aorta_train.stress import AllReduceStress
from aorta_train.timing import StreamTimer, timer_of

CONFIG = Path(__file__).parents[2] / "workloads" / "config" / "tiny_cpu.yaml"
CPU = torch.device("cpu")
NUM_STEPS = 3


def options_of(*overrides: str) -> Options:
    return load(CONFIG, ["profiling.enabled=false", "training.max_steps=20", *overrides])


def weights(parallel: Parallel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in parallel.full_parameters()}


def distance(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    if left.keys() != right.keys():
        return float("inf")
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def reference(options: Options, world_size: int) -> dict[str, Any]:
    """Train without any distribution on the batches of all ranks together."""
    model = build(options.model, options.training.seed, CPU)
    settings = options.optimizer
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.lr, betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay
    )
    streams = [
        step_data(options, Job(rank, world_size, rank, world_size, launched=True), False) for rank in range(world_size)
    ]
    features = FeatureTable(options.dataset, torch.float32, CPU)
    norms = []
    for step in range(1, NUM_STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate_factor(step, options.scheduler)
        optimizer.zero_grad()
        samples = [features.complete(batch) for stream in streams for batch in next(stream).batches]
        whole = {name: torch.cat([batch[name] for batch in samples]) for name in samples[0]}
        logits = model(whole["dense"], whole["categorical"])
        loss: Any = loss_of(logits, whole["target"], whole["importance"])
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), options.training.grad_clip_norm)))
        optimizer.step()
    return {"norms": norms, "weights": {name: value.detach().clone() for name, value in model.named_parameters()}}


def train(options: Options, job: Job) -> tuple[Parallel, list[float]]:
    parallel = share_model(options, job, CPU)
    steps = Steps(options, job, CPU, parallel)
    data = step_data(options, job, on_gpu=False)
    norms = []
    for step in range(1, NUM_STEPS + 1):
        _, norm, _ = steps.take(next(data), step)
        norms.append(float("nan") if norm is None else float(norm))
    return parallel, norms


def operations(action: Callable[[], object]) -> dict[str, int]:
    """Count the collectives that `action` issues, by name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        action()
    names = Counter(event.name.removeprefix("c10d::") for event in profile.events() if event.name.startswith("c10d::"))
    return dict(names)


def operations_of_step(options: Options, job: Job) -> dict[str, int]:
    """Count the collectives of the third step: the first ones set things up."""
    parallel = share_model(options, job, CPU)
    steps = Steps(options, job, CPU, parallel)
    data = step_data(options, job, on_gpu=False)
    for step in (1, 2):
        steps.take(next(data), step)
    third = next(data)
    return operations(lambda: steps.take(third, 3))


def compare_with_reference(job: Job) -> dict[str, Any]:
    common = ["training.gradient_accumulation=2", "training.grad_clip_norm=0.1"]
    expected = reference(options_of(*common), job.world_size)
    seen: dict[str, Any] = {"reference_norms": expected["norms"]}
    for name, extra in {
        "fsdp": ["distributed.mode=fsdp"],
        "fsdp_no_shard": ["distributed.mode=fsdp", "fsdp.sharding_strategy=no_shard"],
        "fsdp_flat": ["distributed.mode=fsdp", "fsdp.use_orig_params=false"],
        "fsdp2": ["distributed.mode=fsdp2"],
        "ddp": ["distributed.mode=ddp"],
        "fsdp_units": ["distributed.mode=fsdp", "fsdp.layers_per_unit=2"],
        "fsdp_flat_units": ["distributed.mode=fsdp", "fsdp.layers_per_unit=2", "fsdp.use_orig_params=false"],
        "fsdp2_units": ["distributed.mode=fsdp2", "fsdp.layers_per_unit=2"],
        "fsdp_compiled": ["distributed.mode=fsdp", "compile.enabled=true", "compile.backend=eager"],
        "fsdp2_compiled": ["distributed.mode=fsdp2", "compile.enabled=true", "compile.backend=eager"],
        "fsdp_chunked": ["distributed.mode=fsdp", "tuning.gemm_chunks=4"],
        "fsdp2_chunked": ["distributed.mode=fsdp2", "tuning.gemm_chunks=4"],
        "ddp_chunked": ["distributed.mode=ddp", "tuning.gemm_chunks=4"],
        "ddp_chunked_compiled": [
            "distributed.mode=ddp",
            "tuning.gemm_chunks=4",
            "compile.enabled=true",
            "compile.backend=eager",
            "compile.fullgraph=true",
        ],
    }.items():
        options = options_of(*common, *extra)
        parallel, norms = train(options, job)
        seen[name] = {
            "norms": norms,
            "distance": distance(weights(parallel), expected["weights"]),
            "norm_after_clipping": float(parallel.clip(1e9)),
            "compile": outcome(parallel.module, options.compile),
        }
    return seen


def measure_hybrid(job: Job) -> dict[str, Any]:
    """Take the four ranks of this machine for two nodes of two."""
    node = dataclasses.replace(job, local_rank=job.rank % 2, local_world_size=2)
    options = options_of("fsdp.sharding_strategy=hybrid_shard")
    expected = reference(options, job.world_size)
    parallel, norms = train(options, node)
    full = weights(parallel)
    return {
        "norms": norms,
        "reference_norms": expected["norms"],
        "distance": distance(full, expected["weights"]),
        "local": local_numel(parallel),
        "full": sum(tensor.numel() for tensor in full.values()),
    }


def measure_traffic(job: Job) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for mode in ("fsdp", "fsdp2", "ddp"):
        for batches in (1, 3):
            options = options_of(f"distributed.mode={mode}", f"training.gradient_accumulation={batches}")
            seen[f"{mode}_{batches}"] = operations_of_step(options, job)
    for name, extra in {
        "fsdp2_keep": ["distributed.mode=fsdp2", "fsdp.reshard_after_forward=false"],
        "fsdp_grad_op": ["fsdp.sharding_strategy=shard_grad_op"],
        "fsdp_units": ["fsdp.layers_per_unit=2"],
        "fsdp2_units": ["distributed.mode=fsdp2", "fsdp.layers_per_unit=2"],
        "ddp_small_buckets": ["distributed.mode=ddp", "distributed.bucket_cap_mb=0.01"],
        "ddp_find_unused": ["distributed.mode=ddp", "distributed.find_unused_parameters=true"],
        "ddp_static": ["distributed.mode=ddp", "distributed.static_graph=true"],
        "ddp_stress": [
            "distributed.mode=ddp",
            "training.inject_allreduce_copies=true",
            "training.allreduce_stress_level=3",
        ],
    }.items():
        seen[name] = operations_of_step(options_of(*extra), job)
    return seen


def measure_stress(job: Job) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for level in (1, 5, 10):
        stress = AllReduceStress(level, CPU, job.world_size)
        seen[str(level)] = operations(partial(stress.run, torch.ones(())))
    sums = AllReduceStress(1, CPU, job.world_size).run(torch.tensor(float(job.rank + 1)))
    seen["sums"] = [[float(value.min()), float(value.max())] for value in sums]
    return seen


def measure_timing(job: Job) -> dict[str, Any]:
    """Time the third step in full, and count the collectives that the profiler sees in another one like it."""
    seen: dict[str, Any] = {}
    for name, extra in {
        "fsdp": ["distributed.mode=fsdp"],
        "fsdp2": ["distributed.mode=fsdp2"],
        "ddp": ["distributed.mode=ddp"],
        "fsdp_units": ["distributed.mode=fsdp", "fsdp.layers_per_unit=2"],
        "fsdp2_units": ["distributed.mode=fsdp2", "fsdp.layers_per_unit=2"],
    }.items():
        options = options_of("training.gradient_accumulation=2", *extra)
        timer = timer_of("full", CPU)
        parallel = share_model(options, job, CPU, timer)
        steps = Steps(options, job, CPU, parallel, timer)
        data = step_data(options, job, on_gpu=False)
        with Interception(cast("StreamTimer", timer), CPU):
            for step in (1, 2):
                steps.take(next(data), step)
            timer.begin_step()
            steps.take(next(data), 3)
            recording = timer.end_step()
        seen[name] = {
            "profile": recording.read() if recording else None,
            "operations": operations(partial(steps.take, next(data), 4)),
        }
    return seen


def local_numel(parallel: Parallel) -> int:
    local: list[Any] = list(parallel.module.parameters())
    return sum((value.to_local() if hasattr(value, "to_local") else value).numel() for value in local)


def measure_memory(job: Job) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, extra in {
        "fsdp": [],
        "fsdp_no_shard": ["fsdp.sharding_strategy=no_shard"],
        "fsdp_flat": ["fsdp.use_orig_params=false"],
        "fsdp2": ["distributed.mode=fsdp2"],
        "ddp": ["distributed.mode=ddp"],
    }.items():
        parallel = share_model(options_of(*extra), job, CPU)
        seen[name] = {"local": local_numel(parallel), "count": len(list(parallel.module.parameters()))}
    for view in ("true", "false"):
        parallel, _ = train(options_of("distributed.mode=ddp", f"distributed.gradient_as_bucket_view={view}"), job)
        gradient = next(parallel.module.parameters()).grad
        assert gradient is not None
        seen[f"ddp_view_{view}"] = gradient.untyped_storage().nbytes() > gradient.nbytes
    return seen


def measure_start(job: Job) -> dict[str, Any]:
    """Weights before the first step, also when the ranks disagree about the seed."""
    same = {name: value.detach() for name, value in build(options_of().model, 1234, CPU).named_parameters()}
    seen: dict[str, Any] = {}
    for mode in ("fsdp", "fsdp2", "ddp"):
        for place in ("cpu", "meta"):
            if mode == "ddp" and place == "meta":
                continue
            extra = [] if mode == "ddp" else [f"fsdp.param_init_device={place}"]
            parallel = share_model(options_of(f"distributed.mode={mode}", *extra), job, CPU)
            seen[f"{mode}_{place}"] = distance(weights(parallel), same)
    for mode in ("fsdp", "fsdp2"):
        for place in ("cpu", "meta"):
            extra = [f"distributed.mode={mode}", f"fsdp.param_init_device={place}", "fsdp.layers_per_unit=2"]
            seen[f"{mode}_{place}_units"] = distance(weights(share_model(options_of(*extra), job, CPU)), same)
    for sync in ("true", "false"):
        seed = 1234 + job.rank
        parallel = share_model(options_of(f"training.seed={seed}", f"fsdp.sync_module_states={sync}"), job, CPU)
        seen[f"sync_{sync}"] = distance(weights(parallel), same)
    return seen


def measure_precision(job: Job) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for mode in ("fsdp", "fsdp2", "ddp"):
        for precision in ("none", "bf16", "fp16"):
            options = options_of(f"distributed.mode={mode}", f"training.mixed_precision={precision}")
            parallel = share_model(options, job, CPU)
            inner: Any = layers_of(parallel.module)[0]
            types: list[str] = []
            inner.mlp_in.register_forward_hook(
                lambda _module, _given, output, types=types: types.append(str(output.dtype))
            )
            steps = Steps(options, job, CPU, parallel)
            _, norm, _ = steps.take(next(step_data(options, job, on_gpu=False)), 1)
            seen[f"{mode}_{precision}"] = {"type": types[0], "norm": float("nan") if norm is None else float(norm)}
    return seen


def measure_overflow(job: Job) -> dict[str, Any]:
    """Only rank 1's gradients overflow; both ranks must skip the step."""
    seen: dict[str, Any] = {}
    for mode in ("fsdp", "fsdp2", "ddp"):
        options = options_of(f"distributed.mode={mode}", "training.mixed_precision=fp16")
        parallel = share_model(options, job, CPU)
        steps = Steps(options, job, CPU, parallel)
        data = next(step_data(options, job, on_gpu=False))
        before = weights(parallel)
        if job.rank == 1:
            data.batches[0]["importance"] *= 1e30
        steps.take(data, 1)
        skipped = distance(weights(parallel), before)
        if job.rank == 1:
            data.batches[0]["importance"] /= 1e30
        steps.take(data, 2)
        seen[mode] = {"skipped": skipped, "taken": distance(weights(parallel), before), "scale": steps._scaler.scale}  # type: ignore[union-attr]
    return seen


def measure_agreement(job: Job) -> dict[str, Any]:
    agreement = Agreement(job, timedelta(seconds=60))
    first = agreement.answer()
    seen = {"first": [first.signal, first.signalled_rank, first.failed_rank]}
    for name, signal_number, failed in (
        ("quiet", 0, False),
        ("signalled", 15 if job.rank == 1 else 0, False),
        ("failed", 0, job.rank == 1),
        ("both", 0, True),
    ):
        agreement.tell(signal_number, failed=failed)
        agreed = agreement.answer()
        seen[name] = [agreed.signal, agreed.signalled_rank, agreed.failed_rank]
    return seen


def main(folder: Path) -> None:
    job = job_in(os.environ)
    spare_the_host(os.environ)
    open_group(options_of(), job, "cpu", CPU)
    if job.world_size == 4:
        seen = {"hybrid": measure_hybrid(job)}
    else:
        seen = {
            "reference": compare_with_reference(job),
            "traffic": measure_traffic(job),
            "stress": measure_stress(job),
            "timing": measure_timing(job),
            "memory": measure_memory(job),
            "start": measure_start(job),
            "precision": measure_precision(job),
            "overflow": measure_overflow(job),
            "agreement": measure_agreement(job),
        }
    (folder / f"rank{job.rank}.json").write_text(json.dumps(seen))
    close_group()
    leave_gloo(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
