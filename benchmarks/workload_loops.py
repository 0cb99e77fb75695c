"""What the workload is measured beside, one measurement a process: a plain training loop, and a matrix product.

    torchrun --nproc_per_node 2 benchmarks/workload_loops.py plain|plain_flat CONFIG STEPS
    python benchmarks/workload_loops.py matrix SIZE

The plain loop is what one writes in an afternoon: the same model and the same sharding, `use_orig_params` on,
torch's defaults elsewhere, one batch that is already on the device, nothing recorded. `plain_flat` takes
`use_orig_params` from the configuration. Prints one JSON line (rank 0).
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

from aorta_train.data import FeatureTable, RankingSamples
from aorta_train.loading import load
from aorta_train.model import EncoderLayer, build, loss_of
from aorta_train.options import Options

WARM_UP = 10


def main(arguments: list[str]) -> None:
    """Run one measurement."""
    what, *more = arguments
    if what == "matrix":
        found = matrix(int(more[0]))
    else:
        options = load(Path(more[0]))
        found = plain(options, int(more[1]), options.fsdp.use_orig_params if what == "plain_flat" else True)
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(found), flush=True)


def matrix(size: int) -> dict[str, float]:
    """Multiply two bf16 matrices of `size` squared: TFLOP/s, the median of 50."""
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times_ms = _times_ms(lambda: left @ right, 50)
    return {"tflops": 2 * size**3 / statistics.median(times_ms) / 1e9}


def plain(options: Options, steps: int, use_orig_params: bool) -> dict[str, float]:
    """Train the model of a configuration with FullyShardedDataParallel: ms a step, the median."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group("nccl", device_id=device)
    dtype = torch.bfloat16
    model = FullyShardedDataParallel(
        build(options.model, options.training.seed, torch.device("cpu")),
        auto_wrap_policy=ModuleWrapPolicy({EncoderLayer}),
        mixed_precision=MixedPrecision(dtype, reduce_dtype=dtype, buffer_dtype=dtype),
        device_id=device,
        use_orig_params=use_orig_params,
        forward_prefetch=options.fsdp.forward_prefetch,
        limit_all_gathers=options.fsdp.limit_all_gathers,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.optimizer.lr)
    samples = RankingSamples(options.dataset)
    first = rank * options.training.batch_size
    rows = [samples[index] for index in range(first, first + options.training.batch_size)]
    features = FeatureTable(options.dataset, torch.float32, device)
    batch = features.complete({name: torch.stack([row[name] for row in rows]).to(device) for name in rows[0]})

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(model(batch["dense"], batch["categorical"]), batch["target"], batch["importance"])
        loss.backward()  # type: ignore[no-untyped-call]
        model.clip_grad_norm_(1.0)
        optimizer.step()

    times_ms = _times_ms(step, steps)
    dist.destroy_process_group()
    return {"step_ms": statistics.median(times_ms)}


def _times_ms(work: Any, times: int) -> list[float]:
    """Time some runs of `work` on the device, end to end, after a warm-up."""
    for _ in range(WARM_UP):
        work()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]  # type: ignore[no-untyped-call]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in itertools.pairwise(marks)]


if __name__ == "__main__":
    main(sys.argv[1:])
