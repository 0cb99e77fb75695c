"""Timeline: the GPU events of one device in time order, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.intervals import Nanoseconds, covered_ns, gaps_before_ns
from pytest_aorta.trace.kinds import Kind
from pytest_aorta.trace.reading import Launches, Trace, column

NOT_LAUNCHED_NS = -1


@dataclass(frozen=True, slots=True)
class Timeline:
    """The GPU events of one device, by start.

    `start_ns`, `end_ns`: (E,) int64, since the file's time base, starts rising. `kind`: (E,) int8, of Kind. `name`:
    (E,) int32, into the trace's names. `launch_start_ns`, `launch_end_ns`: (E,) int64, of the CPU call with the event's
    correlation id, NOT_LAUNCHED_NS where the trace has none. `event`: (E,) int64, places in the trace's own columns.
    """

    device: int | None
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    launch_start_ns: Nanoseconds
    launch_end_ns: Nanoseconds
    event: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where the time of one device went, in ns; each a measure of unions of intervals, so nothing counts twice.

    Computation is everything that is neither communication nor a copy, memset included. Source: TraceLens'
    GPUEventAnalyser, whose rows of these names are equal within its float rounding.
    """

    total_ns: int
    computation_ns: int
    communication_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    copy_ns: int
    set_ns: int
    busy_ns: int

    @property
    def idle_ns(self) -> int:
        """Time in which nothing ran: total - busy."""
        return self.total_ns - self.busy_ns

    @property
    def overlap_ns(self) -> int:
        """Measure of computation ∩ communication: communication - exposed communication."""
        return self.communication_ns - self.exposed_communication_ns


def timelines(trace: Trace) -> tuple[Timeline, ...]:
    """Give one timeline for each device that has GPU events, in the order of their numbers."""
    start_ns, end_ns, device = (column(c) for c in (trace.events.start_ns, trace.events.end_ns, trace.events.device))
    launch_start_ns, launch_end_ns = _launches_of(column(trace.events.correlation), trace.launches)
    # Events that start together have an order of their own, whatever the file's is.
    order = np.lexsort((launch_end_ns, end_ns, start_ns))
    found = []
    for number, name in enumerate(trace.devices):
        mine = order[device[order] == number] if len(trace.devices) > 1 else order
        found.append(
            Timeline(
                device=name,
                start_ns=start_ns[mine],
                end_ns=end_ns[mine],
                kind=column(trace.events.kind)[mine],
                name=column(trace.events.name)[mine],
                launch_start_ns=launch_start_ns[mine],
                launch_end_ns=launch_end_ns[mine],
                event=mine,
            )
        )
    return tuple(sorted(found, key=lambda timeline: -1 if timeline.device is None else timeline.device))


def break_down(timeline: Timeline) -> Breakdown:
    """Add up where the time of a device went; the timeline must have events."""
    communicates = timeline.kind == Kind.COMMUNICATION
    copies = timeline.kind == Kind.COPY
    computes = ~communicates & ~copies

    def covered_by(chosen: NDArray[np.bool_]) -> int:
        return covered_ns(timeline.start_ns[chosen], timeline.end_ns[chosen])

    computation_ns, without_copies_ns = covered_by(computes), covered_by(~copies)
    busy_ns = covered_ns(timeline.start_ns, timeline.end_ns)
    return Breakdown(
        total_ns=int(timeline.end_ns.max() - timeline.start_ns[0]),
        computation_ns=computation_ns,
        communication_ns=covered_by(communicates),
        exposed_communication_ns=without_copies_ns - computation_ns,
        exposed_copy_ns=busy_ns - without_copies_ns,
        copy_ns=covered_by(copies),
        set_ns=covered_by(timeline.kind == Kind.SET),
        busy_ns=busy_ns,
    )


def host_wait_ns(timeline: Timeline) -> int | None:
    """Give the time in which the GPU waited for its host to launch; None when no event is linked to its launch.

    Σ over events of max(0, min(gap before the event, end of its launch call - end of all GPU work before it)): the part
    of a gap in which the work that ends it had not been asked for yet.
    """
    waits = host_waits_ns(timeline)
    return None if waits is None else int((waits[1] - waits[0]).sum())


def host_waits_ns(timeline: Timeline) -> tuple[Nanoseconds, Nanoseconds] | None:
    """Give start and end of each time in which the GPU waited for its host, (W,) int64 each, one after the other."""
    launched = timeline.launch_end_ns != NOT_LAUNCHED_NS
    if not launched.any():
        return None
    reached_ns, gap_ns = gaps_before_ns(timeline.start_ns, timeline.end_ns)
    wait_ns = np.minimum(gap_ns, timeline.launch_end_ns[1:] - reached_ns)
    waited = launched[1:] & (wait_ns > 0)
    return reached_ns[waited], reached_ns[waited] + wait_ns[waited]


def call_of(correlation: Nanoseconds, launches: Launches) -> Nanoseconds:
    """Give the place of each event's launch among `launches`, -1 without one; of several with its id, the last to end.

    Both arrays are (E,) int64.
    """
    ids = column(launches.correlation)
    if not ids.size or not correlation.size:
        return np.full(correlation.size, -1, np.int64)
    order = np.lexsort((column(launches.end_ns), ids))
    place = np.searchsorted(ids[order], correlation, side="right") - 1
    call = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (ids[call] == correlation), call, -1)


def _launches_of(correlation: Nanoseconds, launches: Launches) -> tuple[Nanoseconds, Nanoseconds]:
    """Give start and end of the launch call of each event, (E,) int64 each."""
    call = call_of(correlation, launches)
    if not len(launches.correlation):
        return call, call
    start_ns, end_ns = column(launches.start_ns)[call], column(launches.end_ns)[call]
    return np.where(call >= 0, start_ns, NOT_LAUNCHED_NS), np.where(call >= 0, end_ns, NOT_LAUNCHED_NS)
