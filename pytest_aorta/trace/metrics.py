"""Metrics: what the summaries of all ranks give together, under the names of metrics.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np

from pytest_aorta.trace.summary import LABELS, RankSummary, Source

_CPU_ONLY = "the traces hold no GPU events"
_NOT_GIVEN: dict[Source | None, str] = {
    "cpu-steps": _CPU_ONLY,
    "tracelens": "TraceLens' GPU timeline has no such row (analysis.parser: timeline measures it)",
    "excel": "the Excel reports have no such row (analysis.parser: timeline measures it)",
    "basic": "the basic scan adds up total, computation and communication only (analysis.parser: timeline measures it)",
}
_NOTHING = "the traces hold neither GPU events nor profiler steps"
_NO_COMMUNICATION = "no GPU time was spent in communication"
_NO_TIME = "the mean time is 0"
_MAX_NAMED = 16


@dataclass(frozen=True, slots=True)
class Shares:
    """The documented ratios of one rank, each a share of its whole trace; None without GPU events."""

    compute_ratio: float | None
    comm_ratio: float | None
    overlap_ratio: float | None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The documented metrics over ranks; None where not measured, `why` then says so.

    An iteration time is a rank's whole trace, however many steps it holds. `source` is that of every rank.
    """

    num_ranks: int
    source: Source | None
    label: str
    avg_iteration_time_us: float | None
    std_iteration_time_us: float | None
    min_iteration_time_us: float | None
    max_iteration_time_us: float | None
    time_variance_ratio: float | None
    avg_compute_ratio: float | None
    avg_comm_ratio: float | None
    avg_overlap_ratio: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One metric over ranks: `value` is the mean of `per_rank` unless its definition says otherwise; in `unit`.

    The mean is that of all ranks: where one has no value there is none.
    """

    value: float | None
    unit: str
    per_rank: tuple[tuple[int | None, float | None], ...] = ()
    why: str = ""


def shares(rank: RankSummary) -> Shares:
    """Give compute/total, comm/total and max(0, compute + comm - total)/comm; 0 where the divisor is 0.

    Communication is exposed communication where the source is TraceLens or its reports, so overlap is always 0 there.
    Source: the published definitions. Overlap here is a lower bound: it sees only what cannot fit side by side.
    """
    is_exposed = rank.source in ("tracelens", "excel")
    total, compute = rank.total_time_us, rank.computation_time_us
    comm = rank.exposed_comm_time_us if is_exposed else rank.total_comm_time_us
    if total is None or compute is None or comm is None:
        return Shares(None, None, None)
    return Shares(
        compute_ratio=compute / total if total else 0.0,
        comm_ratio=comm / total if total else 0.0,
        overlap_ratio=max(0.0, compute + comm - total) / comm if comm else 0.0,
    )


def aggregate(ranks: Sequence[RankSummary]) -> Aggregate:
    """Give the documented metrics: means over ranks; of the total also the sample deviation (n - 1), least and most.

    time_variance_ratio is deviation over mean, None when the mean is 0. Ranks measured in different ways are not
    averaged, nor are some of the ranks when others have no time.
    """
    sources = {rank.source for rank in ranks}
    why = _why_not_aggregated(ranks, sources)
    times = [rank.total_time_us for rank in ranks]
    why = why or _why_not_all(ranks, times, "time")
    totals = [time for time in times if time is not None and not why]
    ratios = [] if why else [shares(rank) for rank in ranks]
    mean = _mean(totals)
    deviation = None if mean is None else stdev(totals) if len(totals) > 1 else 0.0
    source = next(iter(sources)) if len(sources) == 1 else None
    return Aggregate(
        num_ranks=len(ranks),
        source=source,
        label=ranks[0].label if source is not None else "—",
        avg_iteration_time_us=mean,
        std_iteration_time_us=deviation,
        min_iteration_time_us=min(totals, default=None),
        max_iteration_time_us=max(totals, default=None),
        time_variance_ratio=deviation / mean if mean and deviation is not None else None,
        avg_compute_ratio=_mean([share.compute_ratio for share in ratios]),
        avg_comm_ratio=_mean([share.comm_ratio for share in ratios]),
        avg_overlap_ratio=_mean([share.overlap_ratio for share in ratios]),
        why=why or _why_incomplete(source, mean),
    )


def quantities(ranks: Sequence[RankSummary]) -> dict[str, Quantity]:
    """Give every metric of the traces by its name in metrics.json, in the order they are shown."""
    whole = aggregate(ranks)
    found = _documented(ranks, whole)
    different = len({rank.source for rank in ranks}) > 1
    for name, (unit, of_rank, reason) in _OF_RANK.items():
        values = [of_rank(rank) for rank in ranks]
        counted = _known(values) if name in _OF_SOME_RANKS else values
        mean = None if different else _mean(counted)
        why = "" if mean is not None else whole.why or _why_not_all(ranks, counted) or reason
        found[name] = Quantity(mean, unit, _per_rank(ranks, values), why)
    return found


def _documented(ranks: Sequence[RankSummary], whole: Aggregate) -> dict[str, Quantity]:
    why_no_time = "" if whole.avg_iteration_time_us is not None else whole.why or _NOTHING
    ratios = [shares(rank) for rank in ranks]

    def time(value_us: float | None) -> Quantity:
        return Quantity(_ms(value_us), "ms", why=why_no_time)

    def ratio(value: float | None, values: list[float | None]) -> Quantity:
        return Quantity(value, "", _per_rank(ranks, values), "" if value is not None else whole.why)

    return {
        "avg_iteration_time_ms": replace(
            time(whole.avg_iteration_time_us), per_rank=_per_rank(ranks, [_ms(rank.total_time_us) for rank in ranks])
        ),
        "std_iteration_time_ms": time(whole.std_iteration_time_us),
        "min_iteration_time_ms": time(whole.min_iteration_time_us),
        "max_iteration_time_ms": time(whole.max_iteration_time_us),
        "time_variance_ratio": Quantity(
            whole.time_variance_ratio, "", why="" if whole.time_variance_ratio is not None else why_no_time or _NO_TIME
        ),
        "avg_compute_ratio": ratio(whole.avg_compute_ratio, [share.compute_ratio for share in ratios]),
        "avg_comm_ratio": ratio(whole.avg_comm_ratio, [share.comm_ratio for share in ratios]),
        "avg_overlap_ratio": ratio(whole.avg_overlap_ratio, [share.overlap_ratio for share in ratios]),
    }


def _of_steps(reduce: Callable[[Sequence[float]], float]) -> Callable[[RankSummary], float | None]:
    return lambda rank: float(reduce(rank.step_times_ms)) if rank.step_times_ms else None


def _p95(values: Sequence[float]) -> float:
    return float(np.percentile(values, 95))


_OF_SOME_RANKS = frozenset({"true_overlap_ratio"})
"""What a rank may be without: one that does not communicate overlaps nothing."""
_STEPS = "a trace needs two profiler steps that launched GPU work"
_OF_RANK: dict[str, tuple[str, Callable[[RankSummary], float | None], str]] = {
    "total_time_us": ("us", lambda rank: rank.total_time_us, _NOTHING),
    "computation_time_us": ("us", lambda rank: rank.computation_time_us, _CPU_ONLY),
    "total_comm_time_us": ("us", lambda rank: rank.total_comm_time_us, _CPU_ONLY),
    "exposed_comm_time_us": ("us", lambda rank: rank.exposed_comm_time_us, _CPU_ONLY),
    "exposed_memcpy_time_us": ("us", lambda rank: rank.exposed_memcpy_time_us, _CPU_ONLY),
    "total_memcpy_time_us": ("us", lambda rank: rank.total_memcpy_time_us, _CPU_ONLY),
    "memset_time_us": ("us", lambda rank: rank.memset_time_us, _CPU_ONLY),
    "busy_time_us": ("us", lambda rank: rank.busy_time_us, _CPU_ONLY),
    "idle_time_us": ("us", lambda rank: rank.idle_time_us, _CPU_ONLY),
    "overlap_time_us": ("us", lambda rank: rank.overlap_time_us, _CPU_ONLY),
    "true_overlap_ratio": ("", lambda rank: rank.true_overlap_ratio, _NO_COMMUNICATION),
    "gpu_idle_ratio": ("", lambda rank: rank.gpu_idle_ratio, _CPU_ONLY),
    "host_wait_ratio": ("", lambda rank: rank.host_wait_ratio, "no GPU event is linked to its launch call"),
    "num_comm_kernels": ("", lambda rank: None if rank.source == "excel" else rank.num_comm_kernels, ""),
    "num_gpu_events": ("", lambda rank: None if rank.source == "excel" else rank.num_gpu_events, ""),
    "profiled_step_time_ms_median": ("ms", _of_steps(np.median), _STEPS),
    "profiled_step_time_ms_p95": ("ms", _of_steps(_p95), _STEPS),
    "profiled_step_time_ms_max": ("ms", _of_steps(max), _STEPS),
}


def _why_incomplete(source: Source | None, mean_us: float | None) -> str:
    if source == "cpu-steps" and mean_us is None:
        return _NOTHING
    return _NOT_GIVEN.get(source, "")


def _why_not_aggregated(ranks: Sequence[RankSummary], sources: set[Source]) -> str:
    if not ranks:
        return "no trace was read"
    if sources == {"timeline", "cpu-steps"}:
        without = ", ".join(str(rank.rank) for rank in ranks if rank.source == "cpu-steps")
        return (
            f"only some ranks have GPU events (rank {without} has none), and numbers of different sources are not mixed"
        )
    if len(sources) > 1:
        ways = "; ".join(
            f"{LABELS[source]}: rank {', '.join(str(rank.rank) for rank in ranks if rank.source == source)}"
            for source in sorted(sources)
        )
        return f"the ranks were measured in different ways ({ways}), and numbers of different sources are not mixed"
    return ""


def _why_not_all(ranks: Sequence[RankSummary], values: Sequence[float | None], what: str = "value") -> str:
    """Say which ranks have no value where others have one."""
    if not _known(values) or len(_known(values)) == len(values):
        return ""
    lacking = [str(rank.rank) for rank, value in zip(ranks, values, strict=True) if value is None]
    named = list(dict.fromkeys(lacking))
    return f"no {what} of rank {', '.join(named[:_MAX_NAMED])}{', ...' if len(named) > _MAX_NAMED else ''}"


def _mean(values: Sequence[float | None]) -> float | None:
    """Give the mean of all values; None when one of them is not known, or there is none."""
    known = _known(values)
    return fmean(known) if known and len(known) == len(values) else None


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _per_rank(
    ranks: Sequence[RankSummary], values: Sequence[float | None]
) -> tuple[tuple[int | None, float | None], ...]:
    return tuple((rank.rank, value) for rank, value in zip(ranks, values, strict=True))


def _ms(time_us: float | None) -> float | None:
    return None if time_us is None else time_us / 1000
