"""Raw: what a trace file says of itself (rank, counts, losses), for sources that take only the times elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_aorta.trace.reading import Trace
from pytest_aorta.trace.summary import RankSummary, Source, summaries_of


def summary_with(
    trace: Trace, name: str, source: Source, times: Mapping[str, Any], warnings: tuple[str, ...] = ()
) -> RankSummary:
    """Summarize a whole file, all its devices together, with the times of another source and no time of ours."""
    ours = summaries_of(trace, file=name, rank=trace.metadata.rank)
    first = ours[0]
    plain = RankSummary(
        rank=first.rank,
        device=None,
        files=first.files,
        source=source,
        world_size=first.world_size,
        start_ns=min(summary.start_ns for summary in ours),
        end_ns=max(summary.end_ns for summary in ours),
        total_time_us=None,
        num_comm_kernels=sum(summary.num_comm_kernels for summary in ours),
        num_gpu_events=sum(summary.num_gpu_events for summary in ours),
        num_profiled_steps=first.num_profiled_steps,
        has_comm_ops=first.has_comm_ops,
        events_lost=first.events_lost,
        lost_ratio=first.lost_ratio,
        is_cut=first.is_cut,
        warnings=(*first.warnings, *warnings),
        peak_memory_bytes=first.peak_memory_bytes,
    )
    return replace(plain, **times)
