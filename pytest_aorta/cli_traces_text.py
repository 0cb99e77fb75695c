"""What `aorta traces` prints for people: a table a question, a legend, and sentences that fit the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from pytest_aorta.checks import show
from pytest_aorta.cli_layout import cut, table, text_width, wrapped
from pytest_aorta.trace.causes import WHAT_TO_DO
from pytest_aorta.trace.kernels import longest
from pytest_aorta.trace.lateness import Candidate, Lateness, RankLateness
from pytest_aorta.trace.lateness_metrics import lateness_quantities
from pytest_aorta.trace.metrics import Quantity, aggregate, quantities, shares
from pytest_aorta.trace.ranks import LeftOut, Summaries
from pytest_aorta.trace.summary import RankSummary

_HEADINGS = (
    *("rank", "GPU", "total\nms", "compute\n%", "comm\n%", "exposed\n%", "overlap\n%", "idle\n%", "host\nwait %"),
    *("num\nsteps", "step\nms", "lost"),
)
_LEGEND = (
    "total: from the first GPU event of a trace to its last, or of profiler steps where there is none. compute, "
    "comm, exposed (communication beside no computation), idle and host wait (the GPU waits for its host) are "
    "shares of it; what runs side by side counts in each of them, so compute and comm can add up to more than 100 "
    "%. overlap: the share of comm beside computation, waiting for other ranks included. step: median of the "
    'profiled steps. lost: events that could not be read. More: docs/metrics.md, "How to read aorta traces".'
)
_LATENESS_HEADINGS = (
    *(
        "rank",
        "GPU",
        "wait\nms",
        "caused\nms",
        "last\n%",
        "transfer\nms",
        "hidden\n%",
        "imbalance\n%",
        "kernel\nslowdown",
    ),
)
_LATENESS_LEGEND = (
    "wait: exposed waiting of the rank for others; caused: what the others waited for it; last: the share of its "
    "collectives in which it came last; transfer: exposed, and hidden its share beside computation; imbalance: its own "
    "step against the median of the ranks; kernel slowdown: its kernels' time over that of the same kernels elsewhere."
)
_MAX_BANDWIDTHS = 12
_MAX_LEFT_OUT = 3
_NO_VALUE = "—"
_REPEATED = ("total_time_us",)  # avg_iteration_time_ms in another unit
_TRUST = (
    "avg_overlap_ratio is the published lower bound, worked out of totals; true_overlap_ratio is measured event by "
    "event: trust that one."
)


def report(found: Summaries) -> Iterator[str]:
    """Give the lines for summaries of traces: ranks, means, lateness, kernels, files, warnings."""
    if not found.ranks:
        return
    yield from table(_HEADINGS, [_cells(rank) for rank in found.ranks])
    yield from wrapped(_LEGEND, indent=0)
    yield from _lateness(found.lateness)
    yield from _means(found)
    yield from _top_kernels(found.ranks)
    yield from _files(found.ranks)
    for warning in dict.fromkeys(warning for rank in found.ranks for warning in rank.warnings):
        yield from wrapped(f"warning: {warning}")


def left_out(found: Sequence[LeftOut]) -> Iterator[str]:
    """Give the lines for files that were found and not read, the first few by name for each reason."""
    by_why: dict[str, list[str]] = {}
    for file in found:
        by_why.setdefault(file.why, []).append(file.file)
    for why, files in by_why.items():
        more = f" and {len(files) - _MAX_LEFT_OUT} more" if len(files) > _MAX_LEFT_OUT else ""
        yield from wrapped(
            f"left out: {len(files)} JSON file(s) or link(s), {', '.join(files[:_MAX_LEFT_OUT])}{more}: {why}"
        )


def _means(found: Summaries) -> Iterator[str]:
    whole = aggregate(found.ranks)
    yield ""
    yield f"Over {whole.num_ranks} rank(s): means, or what the name says; source: {whole.label}"
    given = {name: quantity for name, quantity in quantities(found.ranks).items() if name not in _REPEATED}
    if found.lateness is not None:
        given |= lateness_quantities(found.lateness)
    missing: dict[str, list[str]] = {}
    for name, quantity in given.items():
        if quantity.value is None:
            missing.setdefault(quantity.why, []).append(name)
        else:
            yield _value_line(name, quantity)
    if given["true_overlap_ratio"].value is not None:
        yield from wrapped(_TRUST, indent=0)
    for why, names in missing.items():
        yield from wrapped(f"Not measured, because {why}: {', '.join(names)}")


def _value_line(name: str, quantity: Quantity) -> str:
    number, _, unit = show(quantity.value, quantity.unit, name).partition(" ")
    return f"  {name:<34} {number:>14} {unit}".rstrip()


def _lateness(found: Lateness | None) -> Iterator[str]:
    if found is None:
        return
    yield ""
    by_name = ", by the names of kernels only" if found.by_name_only else ""
    if not found.num_matchable and not found.num_unnamed:
        yield from wrapped(f"Across ranks: nothing to compare{': ' if found.why else ''}{found.why}")
        return
    yield from wrapped(
        f"Across ranks: {found.num_matched} of {found.num_matchable} collectives matched{by_name}, {found.num_unnamed} "
        "without metadata; times per step"
    )
    if any(rank.caused_delay_ms_per_step is not None for rank in found.ranks):
        yield from table(_LATENESS_HEADINGS, [_lateness_cells(rank) for rank in found.ranks])
        yield from wrapped(_LATENESS_LEGEND, indent=0)
    if found.straggler is not None:
        yield from wrapped(f"Straggler: {_spoken(found.straggler)}")
        yield from wrapped(f"What to do: {WHAT_TO_DO[found.straggler.kind]}")
    elif found.largest_candidate is not None:
        yield from wrapped(f"No straggler: {found.why}. Largest candidate: {_spoken(found.largest_candidate)}")
    elif found.why:
        yield from wrapped(f"No statement about a straggler: {found.why}")
    else:
        yield "No straggler: no rank was waited for"
    for row in sorted(found.bandwidths, key=lambda row: not row.is_slow)[:_MAX_BANDWIDTHS]:
        slow = ", far below like groups: test the links of its hosts" if row.is_slow else ""
        yield from wrapped(
            f"  bus bandwidth {row.gbps:8.2f} GB/s  {row.operation} from {row.size_bytes:,} bytes, "
            f"{row.num_collectives} in group {row.group}{slow}",
            indent=4,
        )


def _spoken(candidate: Candidate) -> str:
    return f"rank {candidate.rank}, kind {candidate.kind}: {candidate.told}"


def _top_kernels(ranks: Sequence[RankSummary]) -> Iterator[str]:
    kernels = longest(kernel for rank in ranks for kernel in rank.top_kernels)
    if kernels:
        yield ""
        yield "Kernels with the most time, all ranks together (ms, launches, name)"
        for kernel in kernels:
            yield f"  {kernel.total_us / 1000:>12.3f} {kernel.num_events:>8}  {cut(kernel.name, text_width() - 25)}"


def _files(ranks: Sequence[RankSummary]) -> Iterator[str]:
    """List the files below the folder that they share, so that a line says what differs."""
    files = [file for rank in ranks for file in rank.files]
    shared = os.path.commonpath([str(Path(file).parent) for file in files]) if files else ""
    yield ""
    yield f"Files, below {shared}:" if shared else "Files:"
    for rank in ranks:
        name = (
            f"rank {_whole(rank.rank)}" if rank.device in (None, 0) else f"rank {_whole(rank.rank)}, GPU {rank.device}"
        )
        for file in rank.files:
            yield f"  {name:<8}  {os.path.relpath(file, shared) if shared else file}"


def _cells(rank: RankSummary) -> tuple[str, ...]:
    share = shares(rank)
    exposed = rank.exposed_comm_time_us
    exposed_ratio = exposed / rank.total_time_us if exposed is not None and rank.total_time_us else None
    ratios = (share.compute_ratio, share.comm_ratio, exposed_ratio, rank.true_overlap_ratio, rank.gpu_idle_ratio)
    return (
        _whole(rank.rank),
        _whole(rank.device),
        _NO_VALUE if rank.total_time_us is None else f"{rank.total_time_us / 1000:.3f}",
        *map(_percent, (*ratios, rank.host_wait_ratio)),
        str(rank.num_profiled_steps),
        f"{median(rank.step_times_ms):.3f}" if rank.step_times_ms else _NO_VALUE,
        str(rank.events_lost),
    )


def _lateness_cells(rank: RankLateness) -> tuple[str, ...]:
    return (
        _whole(rank.rank),
        _whole(rank.device),
        _time(rank.exposed_wait_ms),
        _time(rank.caused_delay_ms_per_step),
        _percent(rank.share_last),
        _time(rank.exposed_transfer_ms),
        _percent(rank.hidden_transfer_ratio),
        _percent(rank.imbalance_ratio),
        _NO_VALUE if rank.kernel_slowdown_ratio is None else f"{rank.kernel_slowdown_ratio:.3f}x",
    )


def _whole(value: int | None) -> str:
    return _NO_VALUE if value is None else str(value)


def _time(value_ms: float | None) -> str:
    return _NO_VALUE if value_ms is None else f"{value_ms:.2f}"


def _percent(ratio: float | None) -> str:
    return _NO_VALUE if ratio is None else f"{ratio:z.1%}"
