"""Summary: what one rank and device contribute to every judgement; the trace itself is not needed any more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pytest_aorta.trace.collectives import RankColumns, columns_of
from pytest_aorta.trace.kernels import NameTime, copies_by_direction, longest, times_by_name, united, us_of
from pytest_aorta.trace.kinds import Kind
from pytest_aorta.trace.packing import fitted
from pytest_aorta.trace.reading import Trace
from pytest_aorta.trace.steps import cpu_step_times_ns, gpu_step_times_ns
from pytest_aorta.trace.timeline import Breakdown, Timeline, break_down, host_wait_ns, timelines

VERSION = 1

Source = Literal["timeline", "cpu-steps", "tracelens", "excel", "basic"]
LABELS: dict[Source, str] = {
    "timeline": "Timeline of raw traces",
    "cpu-steps": "CPU steps of raw traces (no GPU events)",
    "tracelens": "TraceLens on raw traces (basic-scan fallback possible per rank)",
    "excel": "Aorta TraceLens Excel reports",
    "basic": "Basic raw-trace scan",
}


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank and device, of one trace file or of the windows of one profile; a time that was not measured is None.

    Times of several windows are sums, so that the unprofiled time between two of them counts nowhere. `files` are
    relative to the searched folder. `is_cut`: a file lacks its end, so that the times are too small.
    `lost_ratio`: share of the GPU events, launch calls or steps that a file lost, whichever is largest. `start_ns`,
    `end_ns`: first start and last end, on the clock of the rank's host. `top_kernels`: the ten longest names. `copies`:
    by direction. `kernels`: all names, and `columns`: of collectives, only when asked for. Formulas: docs/metrics.md.
    Source of the definitions: TraceLens' GPU event analysis for the first seven.
    """

    rank: int | None
    device: int | None
    files: tuple[str, ...]
    source: Source
    world_size: int | None
    start_ns: int
    end_ns: int
    total_time_us: float | None
    computation_time_us: float | None = None
    total_comm_time_us: float | None = None
    exposed_comm_time_us: float | None = None
    exposed_memcpy_time_us: float | None = None
    busy_time_us: float | None = None
    idle_time_us: float | None = None
    overlap_time_us: float | None = None
    host_wait_time_us: float | None = None
    total_memcpy_time_us: float | None = None
    memset_time_us: float | None = None
    num_comm_kernels: int = 0
    num_gpu_events: int = 0
    num_profiled_steps: int = 0
    step_times_ms: tuple[float, ...] = ()
    has_comm_ops: bool = False
    events_lost: int = 0
    lost_ratio: float = 0.0
    is_cut: bool = False
    warnings: tuple[str, ...] = ()
    top_kernels: tuple[NameTime, ...] = ()
    copies: tuple[NameTime, ...] = ()
    kernels: tuple[NameTime, ...] = ()
    peak_memory_bytes: int | None = None
    version: int = VERSION
    columns: RankColumns | None = None

    @property
    def file(self) -> str:
        """The trace file, or the first of several windows."""
        return self.files[0]

    @property
    def label(self) -> str:
        """The source of the numbers, as it is shown."""
        return LABELS[self.source]

    @property
    def true_overlap_ratio(self) -> float | None:
        """Share of communication that runs beside computation, waiting included; None without communication."""
        return _ratio(self.overlap_time_us, self.total_comm_time_us)

    @property
    def gpu_idle_ratio(self) -> float | None:
        """Share of the total in which the GPU ran nothing."""
        return _ratio(self.idle_time_us, self.total_time_us)

    @property
    def host_wait_ratio(self) -> float | None:
        """Share of the total in which the GPU waited for its host to launch."""
        return _ratio(self.host_wait_time_us, self.total_time_us)

    def lacks_communication(self, launched: int = 0) -> bool:
        """Tell whether a rank of several used its GPU and yet communicated neither on the CPU nor on the GPU.

        `launched` is the size of its world where the trace does not tell it.
        """
        return bool(
            self.num_gpu_events
            and (self.world_size or launched) > 1
            and not self.has_comm_ops
            and not self.num_comm_kernels
        )


def summaries_of(trace: Trace, *, file: str, rank: int | None, with_kernels: bool = False) -> tuple[RankSummary, ...]:
    """Summarize a trace: one summary for each device with GPU events, or one of CPU steps when there are none.

    Those of a trace that was read with its links have columns. `with_kernels`: they hold the names of all kernels too.
    """
    whole = RankSummary(
        rank=rank,
        device=None,
        files=(file,),
        source="cpu-steps",
        world_size=trace.metadata.world_size,
        start_ns=0,
        end_ns=0,
        total_time_us=None,
        num_profiled_steps=len(trace.steps),
        has_comm_ops=trace.has_comm_ops,
        events_lost=trace.num_lost,
        lost_ratio=trace.lost_ratio,
        is_cut=trace.is_cut,
        warnings=tuple(trace.warnings),
        peak_memory_bytes=trace.peak_memory_bytes,
    )
    found = timelines(trace)
    if not found:
        return (_of_cpu_steps(whole, trace),)
    ranks = [_of_timeline(whole, trace, timeline) for timeline in found]
    if not with_kernels:
        return tuple(ranks)
    return tuple(
        replace(summary, kernels=united(times_by_name(timeline, trace.names)))
        for summary, timeline in zip(ranks, found, strict=True)
    )


def _of_cpu_steps(whole: RankSummary, trace: Trace) -> RankSummary:
    if not trace.steps:
        why = f"{trace.file}: has neither GPU events nor profiler steps, so nothing is measured"
        return replace(whole, warnings=(*whole.warnings, why))
    start_ns, end_ns = min(start for start, _ in trace.steps.values()), max(end for _, end in trace.steps.values())
    base_ns = trace.metadata.base_ns or 0
    return replace(
        whole,
        start_ns=base_ns + start_ns,
        end_ns=base_ns + end_ns,
        total_time_us=us_of(end_ns - start_ns),
        step_times_ms=tuple(step / 1_000_000 for step in cpu_step_times_ns(trace.steps)),
    )


def _of_timeline(whole: RankSummary, trace: Trace, timeline: Timeline) -> RankSummary:
    times: Breakdown = break_down(timeline)
    wait_ns = host_wait_ns(timeline)
    base_ns, start_ns = trace.metadata.base_ns or 0, int(timeline.start_ns[0])
    return replace(
        whole,
        device=timeline.device,
        source="timeline",
        start_ns=base_ns + start_ns,
        end_ns=base_ns + start_ns + times.total_ns,
        total_time_us=us_of(times.total_ns),
        computation_time_us=us_of(times.computation_ns),
        total_comm_time_us=us_of(times.communication_ns),
        exposed_comm_time_us=us_of(times.exposed_communication_ns),
        exposed_memcpy_time_us=us_of(times.exposed_copy_ns),
        busy_time_us=us_of(times.busy_ns),
        idle_time_us=us_of(times.idle_ns),
        overlap_time_us=us_of(times.overlap_ns),
        host_wait_time_us=None if wait_ns is None else us_of(wait_ns),
        total_memcpy_time_us=us_of(times.copy_ns),
        memset_time_us=us_of(times.set_ns),
        num_comm_kernels=int((timeline.kind == Kind.COMMUNICATION).sum()),
        num_gpu_events=len(timeline.kind),
        step_times_ms=tuple(step / 1_000_000 for step in gpu_step_times_ns(timeline, trace.steps)),
        top_kernels=longest(times_by_name(timeline, trace.names)),
        copies=copies_by_direction(timeline, trace.names),
        columns=None if trace.links is None else fitted(columns_of(trace, timeline, whole.rank)),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
