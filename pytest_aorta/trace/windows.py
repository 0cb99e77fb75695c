"""Windows: several trace files of one rank, put together when they are windows of one profile (`repeat` > 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from pytest_aorta.trace.collectives import RankColumns, joined
from pytest_aorta.trace.discovery import tree_of
from pytest_aorta.trace.kernels import longest, sum_us, united
from pytest_aorta.trace.packing import fitted
from pytest_aorta.trace.summary import RankSummary

RankSummaries = tuple[RankSummary, ...]  # of one file: a summary a device

_TIMES = (
    "total_time_us",
    "computation_time_us",
    "total_comm_time_us",
    "exposed_comm_time_us",
    "exposed_memcpy_time_us",
    "busy_time_us",
    "idle_time_us",
    "overlap_time_us",
    "host_wait_time_us",
    "total_memcpy_time_us",
    "memset_time_us",
)


def why_no_windows(files: Sequence[RankSummaries], trees: Sequence[str]) -> str:
    """Say why the files of one rank are not windows of one profile, empty when they are.

    `trees`: the tree that each of the files truly lies in, whatever it is called.
    """
    if len(set(trees)) > 1:
        return _why_one_tree(files, trees)
    ordered = sorted(files, key=_start_ns)
    for earlier, later in pairwise(ordered):
        one, other = earlier[0], later[0]
        pair = f"rank {one.rank} has several traces, and of {one.file} and {other.file}"
        expected = "expected one file a rank, or the windows of one profile"
        if {one.source, other.source} == {"timeline", "cpu-steps"}:
            return f"{pair} only one has GPU events; {expected}: leave the files of one run in the folder"
        if one.source != other.source:
            return f"{pair} one was read by {one.label}, one by {other.label}; {expected}"
        if one.source == "excel":
            return f"rank {one.rank} has several reports, among them {one.file} and {other.file}; expected one a rank"
        if other.start_ns < max(window.end_ns for window in earlier):
            return f"{pair} each covers a part of the same time; {expected}: leave one of them in the folder"
    return ""


def _why_one_tree(files: Sequence[RankSummaries], trees: Sequence[str]) -> str:
    shown = {tree: str(tree_of(PurePath(file[0].file))) for tree, file in zip(trees, files, strict=True)}
    first, second, *_ = sorted(shown.values())
    return (
        f"rank {files[0][0].rank} has traces in {len(shown)} folders, among them {first} and {second}: two runs, or "
        "hosts that each trained for themselves under this rank; name the folder of one run"
    )


def merged(files: Sequence[RankSummaries]) -> list[RankSummary]:
    """Put the summaries of one rank's windows together, device by device; `files` holds the summaries of each file."""
    by_device: dict[int | None, RankSummary] = {}
    for file in sorted(files, key=_start_ns):
        for window in file:
            before = by_device.get(window.device)
            by_device[window.device] = window if before is None else _joined(before, window)
    return list(by_device.values())


def _start_ns(file: RankSummaries) -> int:
    return min(window.start_ns for window in file)


def _joined(one: RankSummary, other: RankSummary) -> RankSummary:
    times: dict[str, Any] = {name: _sum(getattr(one, name), getattr(other, name)) for name in _TIMES}
    peaks = [peak for peak in (one.peak_memory_bytes, other.peak_memory_bytes) if peak is not None]
    return replace(
        one,
        **times,
        files=(*one.files, *other.files),
        world_size=one.world_size or other.world_size,
        end_ns=max(one.end_ns, other.end_ns),
        num_comm_kernels=one.num_comm_kernels + other.num_comm_kernels,
        num_gpu_events=one.num_gpu_events + other.num_gpu_events,
        num_profiled_steps=one.num_profiled_steps + other.num_profiled_steps,
        step_times_ms=(*one.step_times_ms, *other.step_times_ms),
        has_comm_ops=one.has_comm_ops or other.has_comm_ops,
        events_lost=one.events_lost + other.events_lost,
        lost_ratio=max(one.lost_ratio, other.lost_ratio),
        is_cut=one.is_cut or other.is_cut,
        warnings=(*one.warnings, *other.warnings),
        top_kernels=longest((*one.top_kernels, *other.top_kernels)),
        copies=united((*one.copies, *other.copies)),
        kernels=united((*one.kernels, *other.kernels)),
        peak_memory_bytes=max(peaks, default=None),
        columns=_joined_columns(one, other),
    )


def _joined_columns(one: RankSummary, other: RankSummary) -> RankColumns | None:
    if one.columns is None or other.columns is None:
        return None
    return fitted(joined(one.columns, other.columns, other.start_ns - one.start_ns))


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else sum_us(one, other)
