"""What ranks on GPUs see: started by torchrun from test_gpu_streams.py, writes what it saw to <folder>/rank<R>.json."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.profiler import ProfilerActivity

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads"))

from aorta_train.data import StepData, step_data
from aorta_train.device import device_of_rank
from aorta_train.group import close_group, open_group
from aorta_train.interception import Interception
from aorta_train.job import Job, job_in
from aorta_train.loading import load
from aorta_train.loop import Steps
from aorta_train.options import Options
from aorta_train.parallel.mode import Parallel, share_model
from aorta_train.stress import AllReduceStress
from aorta_train.timing import StepTimer, StreamTimer, Untimed, timer_of

MODES = ("fsdp", "fsdp2", "ddp")
CONFIG = Path(__file__).parents[2] / "workloads" / "config" / "tiny_cpu.yaml"
NUM_BYTES = 1 << 28
MARKER_KERNEL = "spin_kernel"
WAITS = ("cudaEventSynchronize", "hipEventSynchronize")


def options_of(*overrides: str) -> Options:
    gpu = ["distributed.device=gpu", "training.mixed_precision=bf16", "profiling.enabled=false"]
    return load(CONFIG, [*gpu, *overrides])


def trace_of(action: Callable[[], object], folder: Path) -> list[dict[str, Any]]:
    """Give what ran on the GPU; one kernel marks the default stream."""
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profile:
        torch.cuda._sleep(1000)  # type: ignore[no-untyped-call]
        action()
        torch.cuda.synchronize()
    path = folder / f"trace{dist.get_rank()}.json"
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy")]


def streams_of(events: list[dict[str, Any]], text: str) -> list[int]:
    return sorted({event["args"]["stream"] for event in events if text in event["name"].lower()})


def priorities(parallel: Parallel, mode: str) -> list[int]:
    module: Any = parallel.module
    if mode == "fsdp":
        units: list[Any] = FullyShardedDataParallel.fsdp_modules(module)
        return sorted({one.priority for unit in units for one in (unit._unshard_stream, unit._post_backward_stream)})
    if mode == "fsdp2":
        context = module._get_fsdp_state()._comm_ctx
        return sorted({context.all_gather_stream.priority, context.reduce_scatter_stream.priority})
    return []


def measure_priority(job: Job, device: torch.device, priority: str, folder: Path) -> dict[str, Any]:
    """Take steps in every mode, and look at the streams of their collectives."""
    everyone: Any = dist.group.WORLD
    seen: dict[str, Any] = {"option": everyone._get_backend(device).options.is_high_priority_stream}
    for mode in MODES:
        options = options_of(f"distributed.mode={mode}", f"streams.comm_priority={priority}")
        parallel = share_model(options, job, device)
        steps = Steps(options, job, device, parallel)
        data = step_data(options, job, on_gpu=True)
        for step in (1, 2):
            steps.take(next(data), step)
        third = next(data)
        events = trace_of(lambda steps=steps, third=third: steps.take(third, 3), folder)  # type: ignore[misc]
        seen[mode] = {
            "priorities": priorities(parallel, mode),
            "collectives": streams_of(events, "nccl"),
            "default": streams_of(events, MARKER_KERNEL),
        }
    return seen


def measure_timing(job: Job, device: torch.device) -> dict[str, Any]:
    """Take steps that would raise if the host waited for the device, with every kind of timer."""
    seen: dict[str, Any] = {}
    for mode in MODES:
        for level in ("off", "light", "full"):
            options = options_of(f"distributed.mode={mode}", "training.gradient_accumulation=2")
            timer = timer_of(level, device)
            parallel = share_model(options, job, device, timer)
            steps = Steps(options, job, device, parallel, timer)
            data = step_data(options, job, on_gpu=True)
            for step in (1, 2):
                loss, _, _ = steps.take(next(data), step)
            third = next(data)
            interception = Interception(timer, device) if isinstance(timer, StreamTimer) else None
            if interception:
                interception.__enter__()
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                timer.begin_step()
                loss, _, _ = steps.take(third, 3)
                recording = timer.end_step()
            finally:
                torch.cuda.set_sync_debug_mode("default")
                if interception:
                    interception.__exit__(None, None, None)
            seen[f"{mode}_{level}"] = {"loss": float(loss), "profile": recording.read() if recording else None}
    return seen


def steps_of(options: Options, job: Job, device: torch.device, timer: StepTimer) -> tuple[Steps, StepData]:
    """Take two steps, and give what takes the third."""
    steps = Steps(options, job, device, share_model(options, job, device, timer), timer)
    data = step_data(options, job, on_gpu=device.type != "cpu")
    for step in (1, 2):
        steps.take(next(data), step)
    return steps, next(data)


def prefetched_by_fsdp(job: Job, device: torch.device, *overrides: str) -> dict[str, int]:
    """Count the all-gathers that are issued inside each kind of prefetching, and the times that the host waits."""
    steps, third = steps_of(options_of("model.num_layers=4", *overrides), job, device, Untimed())
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profile:
        steps.take(third, 3)
    events: list[Any] = list(profile.events())
    gathers = [event.time_range for event in events if event.name.startswith("c10d::") and "gather" in event.name]
    seen = {"waits": sum(event.name in WAITS for event in events)}
    for kind in ("pre_backward", "post_backward", "pre_forward"):
        spans = [event.time_range for event in events if event.name.endswith(f"_{kind}_prefetch")]
        seen[kind] = sum(
            any(span.start <= gather.start and gather.end <= span.end for span in spans) for gather in gathers
        )
    return seen


def order_in_fsdp2(job: Job, device: torch.device, *overrides: str) -> str:
    """Give the order in which gathers (g), forward (F) and backward (B) parts and reductions (r) are issued."""
    letters = {"allgather": "g", "reducescatter": "r", "forward": "F", "backward": "B"}
    timer = timer_of("full", device)
    assert isinstance(timer, StreamTimer)
    options = options_of("model.num_layers=4", "distributed.mode=fsdp2", *overrides)
    steps, third = steps_of(options, job, device, timer)
    with Interception(timer, device):
        timer.begin_step()
        steps.take(third, 3)
    recording = timer.end_step()
    assert recording is not None
    names = [(stream, tag.split(".")[0]) for stream, tag, *_ in recording.ranges]
    return "".join(letters.get(stream) or letters.get(tag, "") for stream, tag in names)


def measure_prefetching(job: Job, device: torch.device) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for override in (
        "fsdp.backward_prefetch=BACKWARD_PRE",
        "fsdp.backward_prefetch=BACKWARD_POST",
        "fsdp.backward_prefetch=none",
        "fsdp.forward_prefetch=true",
        "fsdp.forward_prefetch=false",
        "fsdp.limit_all_gathers=true",
        "fsdp.limit_all_gathers=false",
    ):
        seen[override] = prefetched_by_fsdp(job, device, override)
    for knob in ("fsdp.forward_prefetch_depth", "fsdp.backward_prefetch_depth"):
        for depth in (1, 2):
            seen[f"{knob}={depth}"] = order_in_fsdp2(job, device, f"{knob}={depth}")
    return seen


def measure_stress(job: Job, device: torch.device, folder: Path) -> dict[str, Any]:
    stress = AllReduceStress(2, device, job.world_size)
    sums: list[list[float]] = []

    def run() -> None:
        values = torch.zeros((), device=device)
        torch.cuda._sleep(100_000_000)  # type: ignore[no-untyped-call]
        values += job.rank + 1
        sums.extend([float(one.min()), float(one.max())] for one in stress.run(values))

    events = trace_of(run, folder)
    return {
        "sums": sums,
        "collectives": streams_of(events, "nccl"),
        "default": streams_of(events, MARKER_KERNEL),
    }


def measure_end(device: torch.device, folder: Path) -> dict[str, Any]:
    """Time a large all-reduce that the caller waits for only later, beside what the profiler says of its kernel."""
    timer = timer_of("full", device)
    assert isinstance(timer, StreamTimer)
    values = torch.ones(NUM_BYTES // 4, device=device)
    dist.all_reduce(values)
    found: list[dict[str, Any]] = []

    def run() -> None:
        timer.begin_step()
        with Interception(timer, device):
            work: Any = dist.all_reduce(values, async_op=True)
            work.wait()
        recording = timer.end_step()
        assert recording is not None
        found.append(recording.read())

    events = trace_of(run, folder)
    kernel_us = sum(event["dur"] for event in events if "nccl" in event["name"].lower())
    (timed,) = found[0]["ranges"]
    return {"kernel_ms": kernel_us / 1000, "range_ms": timed["duration_ms"], "bytes": timed["metadata"]["bytes"]}


def main(folder: Path, priority: str) -> None:
    job = job_in(os.environ)
    options = options_of(*([] if priority == "none" else [f"streams.comm_priority={priority}"]))
    device = device_of_rank(options, job, "cuda")
    open_group(options, job, "cuda", device)
    if priority == "none":
        seen = {
            "timing": measure_timing(job, device),
            "prefetching": measure_prefetching(job, device),
            "stress": measure_stress(job, device, folder),
            "end": measure_end(device, folder),
        }
    else:
        seen = measure_priority(job, device, priority, folder)
    (folder / f"rank{job.rank}.json").write_text(json.dumps(seen))
    close_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
