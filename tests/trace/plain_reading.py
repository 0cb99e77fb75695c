"""An independent reading of a profiler trace, as plainly as possible: no numpy, nothing of the trace engine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

Span = tuple[int, int]


def times_us(path: Path) -> dict[str, float]:
    """Give computation, communication and their overlap of a file with one GPU, in µs."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    compute: list[Span] = []
    communication: list[Span] = []
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in ("kernel", "gpu_memset"):
            continue
        start = round(Decimal(event["ts"]) * 1000)
        span = (start, start + round(Decimal(event["dur"]) * 1000))
        (communication if "nccl" in event["name"].lower() else compute).append(span)
    one, other = united(compute), united(communication)
    both = length(one) + length(other) - length(united([*one, *other]))
    return {
        "computation_time_us": length(one) / 1000,
        "total_comm_time_us": length(other) / 1000,
        "overlap_time_us": both / 1000,
    }


def united(spans: Iterable[Span]) -> list[Span]:
    """Put spans together that touch or overlap."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def length(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)
