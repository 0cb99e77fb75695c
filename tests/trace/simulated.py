"""Simulated: traces of ranks that train together, with lateness planted in one of them.

A rank launches kernels one after the other from its host, meets the others in collectives that no rank leaves before
all have come, and catches up with its GPU at the end of each step. Times in µs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_aorta.trace.collectives import RankColumns, columns_of
from pytest_aorta.trace.links import Links
from pytest_aorta.trace.reading import Reader, Trace
from pytest_aorta.trace.timeline import timelines
from tests.trace.synthetic import COMMUNICATION, TraceEvent, copy, document, kernel, launch, operator, step

Lateness = Literal["host", "device", "compute", "copy"]

LAUNCH_US = 3.0
_START_US = 1_000.0


@dataclass(frozen=True, slots=True)
class Planted:
    """A rank that takes `ratio` of each step's computation longer, spread evenly, for one reason.

    `in_group` limits it to what comes before the collectives of one group, `in_step` to one step.
    """

    rank: int
    kind: Lateness
    ratio: float
    in_group: int | None = None
    in_step: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What is simulated.

    `groups`: ranks of each process group; in every segment of a step each rank computes, then meets its group
    `segments[i]`. `jitter_ratio`: deviation of each kernel's duration. `clock_offset_us`: of each rank's host.
    `num_cut`: collectives at the beginning that a rank's window misses. `named`: collectives carry metadata.
    """

    num_ranks: int = 8
    num_steps: int = 3
    segments: tuple[int, ...] = (0,) * 10
    groups: tuple[tuple[tuple[int, ...], ...], ...] = ()
    num_kernels: int = 4
    kernel_us: float = 250.0
    transfer_us: float = 200.0
    jitter_ratio: float = 0.0
    planted: tuple[Planted, ...] = ()
    clock_offset_us: Mapping[int, float] = field(default_factory=dict)
    num_cut: Mapping[int, int] = field(default_factory=dict)
    named: bool = True
    counted: bool = False
    seed: int = 0

    def group_of(self, rank: int, segment: int) -> tuple[int, ...]:
        """Give the ranks that a rank meets after a segment."""
        if not self.groups:
            return tuple(range(self.num_ranks))
        return next(ranks for ranks in self.groups[segment] if rank in ranks)


@dataclass(slots=True)
class _Rank:
    number: int
    events: list[TraceEvent] = field(default_factory=list)
    host_us: float = _START_US
    gpu_us: float = _START_US
    num_launched: int = 0
    num_met: dict[tuple[int, ...], int] = field(default_factory=dict)

    def launched(self, event: TraceEvent) -> TraceEvent:
        """Launch a GPU event from the host: it starts when it has been asked for and the GPU is free."""
        self.num_launched += 1
        self.events.append(launch(self.host_us, LAUNCH_US, self.num_launched))
        self.host_us += LAUNCH_US
        event["ts"] = max(self.gpu_us, self.host_us)
        event["args"]["correlation"] = self.num_launched
        self.gpu_us = event["ts"] + event["dur"]
        self.events.append(event)
        return event


def simulate(job: Job) -> list[dict[str, Any]]:
    """Give the trace of each rank, in their order."""
    chance = random.Random(job.seed)  # noqa: S311
    ranks = [_Rank(number) for number in range(job.num_ranks)]
    for number in range(job.num_steps):
        begins = [rank.host_us for rank in ranks]
        for segment in job.segments:
            for rank in ranks:
                _compute(job, rank, number, segment, chance)
            _meet(job, ranks, segment)
        for rank, begin_us in zip(ranks, begins, strict=True):
            rank.host_us = max(rank.host_us, rank.gpu_us) + 1
            rank.events.append(step(number + 3, begin_us, rank.host_us - begin_us))
    return [_trace(job, rank) for rank in ranks]


def columns(documents: Iterable[Mapping[str, Any]]) -> list[RankColumns]:
    """Read traces made here and give the columns of their ranks and devices."""
    found = []
    for content in documents:
        reader = Reader(Trace("simulated.json", links=Links()))
        reader.feed(json.dumps(content).encode())
        trace = reader.finish()
        found += [columns_of(trace, timeline, trace.metadata.rank) for timeline in timelines(trace)]
    return found


def _compute(job: Job, rank: _Rank, number_of_step: int, segment: int, chance: random.Random) -> None:
    planted = [
        one
        for one in job.planted
        if one.rank == rank.number and one.in_group in (None, segment) and one.in_step in (None, number_of_step)
    ]
    extra_us = {one.kind: one.ratio * job.num_kernels * job.kernel_us for one in planted}
    rank.host_us += extra_us.get("host", 0.0) + (max(0.0, rank.gpu_us - rank.host_us) if "host" in extra_us else 0.0)
    slowed = 1 + extra_us.get("device", 0.0) / (job.num_kernels * job.kernel_us)
    for number in range(job.num_kernels):
        jitter = max(0.1, chance.gauss(1, job.jitter_ratio))
        rank.launched(kernel(0, job.kernel_us * jitter * slowed, f"gemm_{number}"))
    if "compute" in extra_us:
        rank.launched(kernel(0, extra_us["compute"], "gemm_extra"))
    if "copy" in extra_us:
        rank.launched(copy(0, extra_us["copy"]))


def _meet(job: Job, ranks: Sequence[_Rank], segment: int) -> None:
    for members in dict.fromkeys(job.group_of(rank.number, segment) for rank in ranks):
        begun = []
        for number in members:
            rank = ranks[number]
            count = rank.num_met[members] = rank.num_met.get(members, 0) + 1
            rank.events.append(operator(rank.host_us, LAUNCH_US, "record_param_comms"))
            event = rank.launched(kernel(0, 0, COMMUNICATION))
            if job.named:
                event["args"] |= message(members, count if job.counted else None)
            begun.append(event)
        end_us = max(event["ts"] for event in begun) + job.transfer_us
        for number, event in zip(members, begun, strict=True):
            event["dur"] = end_us - event["ts"]
            ranks[number].gpu_us = end_us


def message(
    members: Sequence[int], seq: int | None = None, *, name: str = "allreduce", num_elements: int = 1 << 20
) -> dict[str, Any]:
    """Give the metadata that PyTorch records of a collective."""
    count = {} if seq is None else {"Seq": seq}
    sizes = {"In msg nelems": num_elements, "Out msg nelems": num_elements, "Group size": len(members)}
    group = {"Process Group Name": "0", "Process Group Ranks": str(list(members))}
    return {"Collective name": name, "dtype": "Float", **sizes, **group, **count}


def _trace(job: Job, rank: _Rank) -> dict[str, Any]:
    events = rank.events
    num_cut = job.num_cut.get(rank.number, 0)
    if num_cut:
        met = [place for place, event in enumerate(events) if event["name"] == COMMUNICATION]
        first = met[num_cut - 1] + 1
        steps = [event for event in events[:first] if event["name"].startswith("ProfilerStep")]
        events = [*events[first:], *steps]
    offset_us = job.clock_offset_us.get(rank.number, 0.0)
    for event in events:
        event["ts"] += offset_us
    return document(events, rank=rank.number, world_size=job.num_ranks)
