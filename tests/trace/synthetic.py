"""Synthetic: traces made by hand in the format of Kineto; times in µs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TraceEvent = dict[str, Any]

COMMUNICATION = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def kernel(
    start_us: float, duration_us: float, name: str = "gemm", *, device: int = 0, correlation: int | None = None
) -> TraceEvent:
    """Make a GPU kernel; a name with `nccl` in it makes it communication."""
    return _gpu_event("kernel", name, start_us, duration_us, device, correlation)


def copy(
    start_us: float, duration_us: float, name: str = "Memcpy HtoD (Pinned -> Device)", *, device: int = 0
) -> TraceEvent:
    """Make a GPU copy."""
    return _gpu_event("gpu_memcpy", name, start_us, duration_us, device, None)


def memset(start_us: float, duration_us: float, *, device: int = 0) -> TraceEvent:
    """Make a GPU memset."""
    return _gpu_event("gpu_memset", "Memset (Device)", start_us, duration_us, device, None)


def launch(start_us: float, duration_us: float, correlation: int) -> TraceEvent:
    """Make the CPU call that launches the GPU events with this correlation id."""
    args = {"correlation": correlation}
    return _event("cuda_runtime", "cudaLaunchKernel", start_us, duration_us, pid=100, args=args)


def operator(start_us: float, duration_us: float, name: str) -> TraceEvent:
    """Make an operator of the CPU, such as `record_param_comms`."""
    return _event("cpu_op", name, start_us, duration_us, pid=100, args={"External id": 1})


def step(number: int, start_us: float, duration_us: float) -> TraceEvent:
    """Make a profiler step of the CPU."""
    return _event("user_annotation", f"ProfilerStep#{number}", start_us, duration_us, pid=100, args={})


def document(
    events: Sequence[TraceEvent], *, rank: int | None = None, world_size: int | None = None, base_ns: int | None = None
) -> dict[str, Any]:
    """Make a whole trace; what is None is left out of it."""
    distributed = {"backend": "nccl", "rank": rank, "world_size": world_size}
    known = {name: value for name, value in distributed.items() if value is not None}
    head: dict[str, Any] = {"schemaVersion": 1}
    if rank is not None or world_size is not None:
        head["distributedInfo"] = known
    if base_ns is not None:
        head["baseTimeNanoseconds"] = base_ns
    return {**head, "traceEvents": list(events), "traceName": "trace.json"}


def write(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> Path:
    """Write a trace, gzip when the name ends so, with the folders above it, and give its path back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=2).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def _gpu_event(
    category: str, name: str, start_us: float, duration_us: float, device: int, correlation: int | None
) -> TraceEvent:
    args: dict[str, Any] = {"device": device, "stream": 7}
    if correlation is not None:
        args["correlation"] = correlation
    return _event(category, name, start_us, duration_us, pid=device, args=args)


def _event(
    category: str, name: str, start_us: float, duration_us: float, *, pid: int, args: Mapping[str, Any]
) -> TraceEvent:
    times = {"ts": start_us, "dur": duration_us}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": 7, **times, "args": dict(args)}
