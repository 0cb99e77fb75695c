"""Collectives: those of one rank as columns, and what the rank did of its own before and beside each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.intervals import Cover, Nanoseconds, cover
from pytest_aorta.trace.kinds import Kind, direction_of
from pytest_aorta.trace.links import NONE, Links, Message
from pytest_aorta.trace.reading import Trace, column
from pytest_aorta.trace.steps import cpu_step_times_ns, gpu_step_times_ns, step_of_launches
from pytest_aorta.trace.timeline import Timeline, call_of, host_waits_ns

VERSION = 3

_MAX_KERNELS = 256
_MAX_NAME_LENGTH = 80


@dataclass(frozen=True, slots=True, eq=False)
class KernelTimes:
    """Computation by kernel and grid, the 256 with the most time, of what was launched in the profiler's steps.

    Windows are cut between steps at other places on every rank; a trace without steps gives all kernels.

    `key`: (K,) int64, rising, the same on every rank. `total_ns`: (K,) float64, which no number of long kernels can
    overflow, and `count`: (K,) int64, of all. `median_ns`: (K,) int64, of those beside no communication, NONE where
    there is none. `all_ns`: of every kernel, also those left out. `num_steps`: those that launched a kernel.
    """

    key: NDArray[np.int64]
    total_ns: NDArray[np.float64]
    count: NDArray[np.int64]
    median_ns: Nanoseconds
    all_ns: float
    num_steps: int


@dataclass(frozen=True, slots=True, eq=False)
class RankColumns:
    """The collectives of one rank and device by start; all that judgements across ranks take of a trace.

    Times are since the rank's first GPU event, so no clock of a host enters. `message`: (C,) int32 into `messages`.
    `seq`: (C,) int64, the group's own count of its collectives, NONE where not recorded. `step`: (C,) int64, the number
    of the profiler's step in which it was launched, NONE where that is not known. `window`: (C,) int32, of a
    profile with several. `start_ns`, `end_ns`: (C,) int64. `host_wait_ns`, `copy_ns`: (2, C) int64, the time in which
    the rank waited for its host, and copied without computing, up to each start (row 0) and each end (row 1).
    `computation`: exact inside of collectives, at their starts and at their ends. `num_steps` is a fraction when the
    columns were shortened; `num_dropped` counts the collectives that were left out.
    """

    rank: int | None
    device: int | None
    world_size: int | None
    num_steps: float
    step_times_ms: tuple[float, ...]
    messages: tuple[Message, ...]
    message: NDArray[np.int32]
    seq: NDArray[np.int64]
    step: NDArray[np.int64]
    window: NDArray[np.int32]
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    host_wait_ns: Nanoseconds
    copy_ns: Nanoseconds
    computation: Cover
    kernels: KernelTimes
    num_dropped: int = 0
    version: int = VERSION

    @property
    def num_collectives(self) -> int:
        """How many there are."""
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, eq=False)
class _Linked:
    """Of each event of a timeline: message, sequence number and launching operator, NONE where there is none."""

    message: NDArray[np.int64]
    seq: NDArray[np.int64]
    operator: NDArray[np.int64]


def columns_of(trace: Trace, timeline: Timeline, rank: int | None) -> RankColumns:
    """Give the columns of one device of a trace that was read with its links."""
    links = trace.links or Links()
    linked = _linked(trace, links, timeline)
    peer = np.array([direction_of(name) == "PtoP" for name in trace.names], bool)[timeline.name]
    launched = (linked.operator != NONE) | (linked.message != NONE)
    computes = np.isin(timeline.kind, (Kind.COMPUTE, Kind.SET))
    copies = timeline.kind == Kind.COPY
    communicates = (timeline.kind == Kind.COMMUNICATION) | (launched & (timeline.kind == Kind.COMPUTE))
    communicates |= launched & copies & peer
    computes &= ~communicates
    copies &= ~communicates

    base_ns = timeline.start_ns[0]
    start_ns, end_ns = timeline.start_ns - base_ns, timeline.end_ns - base_ns
    first, last_end_ns = _collectives(end_ns, communicates, copies=communicates & peer, operator=linked.operator)
    begins = start_ns[first]
    both = np.stack((begins, last_end_ns))
    computation = cover(start_ns[computes], end_ns[computes])
    works = computes | copies
    waits = host_waits_ns(timeline)
    message, messages = _messages(linked.message[first], links, [trace.names[i] for i in timeline.name[first]])
    return RankColumns(
        rank=rank,
        device=timeline.device,
        world_size=trace.metadata.world_size,
        num_steps=len(trace.steps),
        step_times_ms=_step_times_ms(trace, timeline),
        messages=messages,
        message=message,
        seq=linked.seq[first],
        step=step_of_launches(timeline.launch_start_ns[first], trace.steps),
        window=np.zeros(len(first), np.int32),
        start_ns=begins,
        end_ns=last_end_ns,
        host_wait_ns=np.zeros_like(both)
        if waits is None
        else cover(waits[0] - base_ns, waits[1] - base_ns).until(both),
        copy_ns=cover(start_ns[works], end_ns[works]).until(both) - computation.until(both),
        computation=computation.within(begins, last_end_ns),
        kernels=_kernel_times(trace, links, timeline, computes, cover(start_ns[communicates], end_ns[communicates])),
    )


def joined(one: RankColumns, other: RankColumns, offset_ns: int) -> RankColumns:
    """Put the columns of two windows of one profile together; the other begins `offset_ns` after the first."""
    number = {message: place for place, message in enumerate(dict.fromkeys((*one.messages, *other.messages)))}
    renumbered = np.array([number[message] for message in other.messages], np.int32)

    def after(times_ns: Nanoseconds, more_ns: Nanoseconds) -> Nanoseconds:
        so_far = times_ns.max() if times_ns.size else 0
        return np.concatenate((times_ns, more_ns + so_far), axis=-1)

    return replace(
        one,
        num_steps=one.num_steps + other.num_steps,
        step_times_ms=(*one.step_times_ms, *other.step_times_ms),
        messages=tuple(number),
        message=np.concatenate((one.message, renumbered[other.message] if other.messages else other.message)),
        seq=np.concatenate((one.seq, other.seq)),
        step=np.concatenate((one.step, _steps_after(one.step, other.step))),
        window=np.concatenate((one.window, other.window + (int(one.window.max(initial=-1)) + 1))),
        start_ns=np.concatenate((one.start_ns, other.start_ns + offset_ns)),
        end_ns=np.concatenate((one.end_ns, other.end_ns + offset_ns)),
        host_wait_ns=after(one.host_wait_ns, other.host_wait_ns),
        copy_ns=after(one.copy_ns, other.copy_ns),
        computation=Cover(
            np.concatenate((one.computation.at_ns, other.computation.at_ns + offset_ns)),
            after(one.computation.covered_ns, other.computation.covered_ns),
        ),
        kernels=_joined_kernels(one.kernels, other.kernels),
        num_dropped=one.num_dropped + other.num_dropped,
    )


def _steps_after(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the numbers of a later window's steps, raised where it counts from the beginning again."""
    known, its = earlier[earlier != NONE], later[later != NONE]
    if not known.size or not its.size or its.min() > known.max():
        return later
    return np.where(later == NONE, NONE, later - its.min() + known.max() + 1)


def latest(columns: RankColumns, num_kept: int) -> RankColumns:
    """Keep the last collectives only; windows are matched from their ends."""
    kept = slice(columns.num_collectives - num_kept, None)
    start_ns, end_ns = columns.start_ns[kept], columns.end_ns[kept]
    step = columns.step[kept]
    num_steps = len(np.unique(step[step != NONE]))
    used, message = np.unique(columns.message[kept], return_inverse=True)
    return replace(
        columns,
        num_steps=columns.num_steps * num_kept / columns.num_collectives,
        step_times_ms=columns.step_times_ms[-num_steps:] if num_steps else columns.step_times_ms,
        messages=tuple(columns.messages[place] for place in used),
        message=message.astype(np.int32),
        seq=columns.seq[kept],
        step=step,
        window=columns.window[kept],
        start_ns=start_ns,
        end_ns=end_ns,
        host_wait_ns=columns.host_wait_ns[:, kept],
        copy_ns=columns.copy_ns[:, kept],
        computation=columns.computation.within(start_ns, end_ns),
        num_dropped=columns.num_dropped + columns.num_collectives - num_kept,
    )


def _linked(trace: Trace, links: Links, timeline: Timeline) -> _Linked:
    """Follow each event to what launched it: by the metadata it carries, its External id, or that of its launch."""
    none = np.full(len(timeline.event), NONE, np.int64)
    if not len(links.external):
        return _Linked(none, none, none)
    call = call_of(column(trace.events.correlation)[timeline.event], trace.launches)
    of_launch = column(links.launch_external)[call] if len(links.launch_external) else none
    own = column(links.external)[timeline.event]
    external = np.where(own != NONE, own, np.where(call >= 0, of_launch, NONE))
    message = column(links.message)[timeline.event].astype(np.int64)
    seq = column(links.seq)[timeline.event]
    if not len(links.operator_external):
        return _Linked(message, seq, none)
    known, place = np.unique(column(links.operator_external), return_index=True)
    found = np.minimum(np.searchsorted(known, external), len(known) - 1)
    is_known = known[found] == external
    operator = np.where(is_known, place[found], NONE)
    return _Linked(
        message=np.where((message == NONE) & is_known, column(links.operator_message)[operator], message),
        seq=np.where((seq == NONE) & is_known, column(links.operator_seq)[operator], seq),
        operator=operator,
    )


def _collectives(
    end_ns: Nanoseconds, communicates: NDArray[np.bool_], *, copies: NDArray[np.bool_], operator: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Nanoseconds]:
    """Give the first event of each collective, in order, and where it ends: copies of one operator are one collective.

    A collective by copy engine is many peer copies, maybe with kernels between; a kernel alone is one by itself.
    """
    events = np.flatnonzero(communicates)
    by_copies = np.isin(operator[events], np.unique(operator[copies & (operator != NONE)]))
    key = np.where(by_copies, -2 - operator[events], events)
    _, first, member = np.unique(key, return_index=True, return_inverse=True)
    last_end_ns = np.zeros(len(first), np.int64)
    np.maximum.at(last_end_ns, member, end_ns[events])
    order = np.argsort(first)
    return events[first[order]], last_end_ns[order]


def _messages(
    message: NDArray[np.int64], links: Links, names: Sequence[str]
) -> tuple[NDArray[np.int32], tuple[Message, ...]]:
    """Give what each collective moves; where the trace does not say it, the kernel's name stands for it."""
    known = list(links.messages)
    number: dict[Message, int] = {}
    places = []
    for place, name in zip(message.tolist(), names, strict=True):
        found = known[place] if place != NONE else Message(name[:_MAX_NAME_LENGTH])
        places.append(number.setdefault(found, len(number)))
    return np.array(places, np.int32), tuple(number)


def _step_times_ms(trace: Trace, timeline: Timeline) -> tuple[float, ...]:
    """Give the GPU steps; with one profiled step there is none, and its range on the CPU has to do."""
    times_ns = gpu_step_times_ns(timeline, trace.steps) or cpu_step_times_ns(trace.steps)
    return tuple(time_ns / 1_000_000 for time_ns in times_ns)


def _kernel_times(
    trace: Trace, links: Links, timeline: Timeline, computes: NDArray[np.bool_], communication: Cover
) -> KernelTimes:
    base_ns = timeline.start_ns[0]
    chosen = computes & (timeline.kind == Kind.COMPUTE)
    step = step_of_launches(timeline.launch_start_ns, trace.steps)
    in_steps = chosen & (step != NONE)
    if in_steps.any():
        chosen = in_steps
    start_ns, end_ns = timeline.start_ns[chosen] - base_ns, timeline.end_ns[chosen] - base_ns
    duration_ns = end_ns - start_ns
    alone = communication.between(start_ns, end_ns) == 0
    grid = np.full(len(start_ns), NONE, np.int64)
    if len(links.grid):
        grid = column(links.grid)[timeline.event[chosen]].astype(np.int64)
    shape = timeline.name[chosen].astype(np.int64) * (len(links.grids) + 1) + grid + 1
    shapes, place, member = np.unique(shape, return_index=True, return_inverse=True)
    total_ns = np.zeros(len(shapes))
    np.add.at(total_ns, member, duration_ns)
    longest = np.argsort(-total_ns, kind="stable")[:_MAX_KERNELS]
    grids = ["", *links.grids]
    keys, medians_ns = [], []
    for number in longest.tolist():
        name, its_grid = trace.names[timeline.name[chosen][place[number]]], grids[int(grid[place[number]]) + 1]
        keys.append(_key(name, its_grid))
        mine = duration_ns[(member == number) & alone]
        medians_ns.append(int(np.median(mine)) if mine.size else NONE)
    order = np.argsort(np.array(keys, np.int64))
    return KernelTimes(
        key=np.array(keys, np.int64)[order],
        total_ns=total_ns[longest][order],
        count=np.bincount(member, minlength=len(shapes))[longest][order].astype(np.int64),
        median_ns=np.array(medians_ns, np.int64)[order],
        all_ns=float(total_ns.sum()),
        num_steps=len(np.unique(step[in_steps])),
    )


def _joined_kernels(one: KernelTimes, other: KernelTimes) -> KernelTimes:
    """Add the tables of two windows up; a median of both is the mean of theirs by number of launches."""
    key = np.unique(np.concatenate((one.key, other.key)))
    total_ns, weighted = np.zeros(len(key)), np.zeros(len(key))
    count, weight = np.zeros(len(key), np.int64), np.zeros(len(key), np.int64)
    for table in (one, other):
        place = np.searchsorted(key, table.key)
        measured = table.median_ns != NONE
        total_ns[place] += table.total_ns
        count[place] += table.count
        weighted[place] += np.where(measured, table.median_ns.astype(np.float64) * table.count, 0)
        weight[place] += np.where(measured, table.count, 0)
    median_ns = np.where(weight > 0, weighted // np.maximum(weight, 1), NONE).astype(np.int64)
    longest = np.sort(np.argsort(-total_ns, kind="stable")[:_MAX_KERNELS])
    return KernelTimes(
        key=key[longest],
        total_ns=total_ns[longest],
        count=count[longest],
        median_ns=median_ns[longest],
        all_ns=one.all_ns + other.all_ns,
        num_steps=one.num_steps + other.num_steps,
    )


def _key(name: str, grid: str) -> int:
    """Give a number for a kernel and its grid that is the same in every process."""
    digest = hashlib.blake2b(f"{name}\0{grid}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
