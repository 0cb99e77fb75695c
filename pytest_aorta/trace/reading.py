"""Reading: the only place that knows the file format of profiler traces (Kineto's JSON, from 2021 on).

A file is read in blocks, each cut after its last whole event and decoded into the few fields that are needed. A block
that does not decode is taken apart event by event (salvage.py); an event that cannot be read is counted as lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.blocks import blocks
from pytest_aorta.trace.events import (
    NO_CORRELATION,
    AnyEvent,
    correlation,
    decode_exact,
    decode_fast,
    decode_linked,
    decode_linked_exact,
    event_of,
    linked,
)
from pytest_aorta.trace.head import Head
from pytest_aorta.trace.intervals import MAX_NS, Nanoseconds
from pytest_aorta.trace.kinds import CATEGORIES, COLLECTIVE_OPS, STEP, Category, Kind, kind_of
from pytest_aorta.trace.links import Links
from pytest_aorta.trace.losses import Losses
from pytest_aorta.trace.numbers import InexactError, many_to_ns
from pytest_aorta.trace.pending import Pending
from pytest_aorta.trace.salvage import METADATA_BYTES, Metadata, Salvaged, metadata_of, replace_bare_numbers, salvage

MAX_EVENT_BYTES = 16 << 20
_MAX_NAMES = 1 << 16
_NO_TIMES: Nanoseconds = np.empty(0, np.int64)
_LAUNCH, _RANGE, _OPERATOR, _INSTANT = Category.LAUNCH, Category.RANGE, Category.OPERATOR, Category.INSTANT

_UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)

Witness = Callable[[Sequence[AnyEvent]], None]


class _Rows:
    """Events of one sort in a block, with the categories that they were found by."""

    __slots__ = ("categories", "events")

    def __init__(self, categories: Iterable[Category] = (), events: Iterable[AnyEvent] = ()) -> None:
        self.categories = list(categories)
        self.events = list(events)

    def __bool__(self) -> bool:
        return bool(self.events)

    def add(self, category: Category, event: AnyEvent) -> None:
        self.categories.append(category)
        self.events.append(event)

    def only(self, wanted: NDArray[np.bool_]) -> _Rows:
        keep = wanted.tolist()
        return _Rows(compress(self.categories, keep), compress(self.events, keep))

    def timed(self) -> _Timed:
        """Read their times.

        Raises:
            InexactError: they must be read as text.
        """
        if not self.events:
            return _Timed(self, _NO_TIMES, _NO_TIMES, 0)
        start_ns = many_to_ns([event.ts for event in self.events])
        duration_ns = many_to_ns([event.dur for event in self.events])
        readable = (start_ns >= 0) & (duration_ns >= 0) & (duration_ns <= MAX_NS - start_ns)
        if readable.all():
            return _Timed(self, start_ns, start_ns + duration_ns, 0)
        ends_ns = (start_ns + duration_ns)[readable]
        return _Timed(self.only(readable), start_ns[readable], ends_ns, int((~readable).sum()))


class _Timed(NamedTuple):
    """Events whose times could be read, and how many were left out because theirs could not."""

    rows: _Rows
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    num_lost: int


@dataclass(slots=True)
class Columns:
    """GPU events in the order of the file, one entry an event in each column."""

    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    kind: array[int] = field(default_factory=lambda: array("b"))
    name: array[int] = field(default_factory=lambda: array("i"))
    device: array[int] = field(default_factory=lambda: array("i"))
    correlation: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class Launches:
    """Runtime and driver calls of the CPU that carry a correlation id; columns as int64."""

    correlation: array[int] = field(default_factory=lambda: array("q"))
    start_ns: array[int] = field(default_factory=lambda: array("q"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class Trace:
    """What a file holds of what is needed: times in ns since the file's own time base (`metadata.base_ns`)."""

    file: str
    metadata: Metadata = field(default_factory=Metadata)
    events: Columns = field(default_factory=Columns)
    launches: Launches = field(default_factory=Launches)
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    devices: list[int | None] = field(default_factory=list)
    num_events: int = 0
    losses: Losses = field(default_factory=Losses)
    is_cut: bool = False
    has_comm_ops: bool = False
    peak_memory_bytes: int | None = None
    warnings: list[str] = field(default_factory=list)
    links: Links | None = None

    @property
    def num_lost(self) -> int:
        """How many events were lost."""
        return self.losses.total

    @property
    def lost_ratio(self) -> float:
        """Share of the GPU events, launch calls or steps that was lost, whichever is largest."""
        return self.losses.ratio(
            num_gpu=len(self.events.kind),
            num_launches=len(self.launches.correlation),
            num_steps=len(self.steps),
            num_events=self.num_events,
        )


def column(values: array[int]) -> NDArray[Any]:
    """Give a column as a numpy array of the same type, without copying."""
    return np.frombuffer(values, dtype=values.typecode) if len(values) else np.empty(0, dtype=values.typecode)


def read(path: Path, witness: Witness | None = None, *, with_links: bool = False) -> Trace:
    """Read a trace file, plain or gzip, as far as it can be read; what is lost is counted and told in `warnings`.

    `witness` sees every event that could be read, block by block. `with_links`: fill the trace's `links` too.

    Raises:
        TraceError: nothing in the file can be read.
    """
    reader = Reader(Trace(path.name, links=Links() if with_links else None), witness)
    try:
        for block in blocks(path, reader.trace.warnings.append):
            if not reader.feed(block):
                break
    except OSError as error:
        raise TraceError(f"{path.name}: cannot be read ({error.strerror or error})") from error
    return reader.finish()


class Reader:
    """Takes blocks of bytes, in order, and fills a Trace."""

    def __init__(self, trace: Trace, witness: Witness | None = None) -> None:
        self.trace = trace
        self._witness = witness
        self._head = Head()
        self._pending = Pending()
        self._tail = b""
        self._num_tail_bytes = 0
        self._in_events = False
        self._events_ended = False
        self._decode = decode_fast if trace.links is None else decode_linked
        self._size_bytes = 0
        self._names: dict[tuple[int, str], tuple[int, int]] = {}
        self._devices: dict[int | None, int] = {}

    def feed(self, block: bytes) -> bool:
        """Take the next block; False when the rest of the file is not wanted."""
        self._size_bytes += len(block)
        if self._events_ended:
            self._take_tail(block)
            return True
        if not self._in_events:
            events = self._head.add(block)
            if events is None:
                return len(self._head.text) < METADATA_BYTES
            self._in_events = True
            if not self._head.is_list:
                self._read_metadata(self._head.text + b"]}", "before")
            block = events
        self._pending.add(block)
        array = self._pending.cut()
        if array is not None:
            self._take(array)
        elif len(self._pending) > MAX_EVENT_BYTES:
            self._take_apart(self._pending.take(), final=False)
        return True

    def finish(self) -> Trace:
        """Take what is left and close the trace."""
        trace = self.trace
        if self._in_events and not self._events_ended:
            self._take_apart(self._pending.take(), final=True)
        if self._events_ended:
            self._read_tail()
        self._refuse_nothing()
        if not self._events_ended:
            trace.is_cut = True
            trace.warnings.append("the file is cut: its array of events never ends")
        if trace.num_lost:
            trace.warnings.append(f"{trace.num_lost} events could not be read")
        trace.devices = list(self._devices)
        trace.warnings[:] = [f"{trace.file}: {warning}" for warning in trace.warnings]
        return trace

    def _refuse_nothing(self) -> None:
        damage = f" ({'; '.join(self.trace.warnings)})" if self.trace.warnings else ""
        where = self.trace.file
        if not self._size_bytes:
            raise TraceError(f"{where}: holds no data{damage}; expected a profiler trace in JSON")
        if not self._in_events:
            raise TraceError(
                f'{where}: has no list of events ("traceEvents"){damage}; expected a profiler trace in JSON'
            )
        if not self.trace.num_events:
            lost = f", {self.trace.num_lost} could not be read" if self.trace.num_lost else ""
            raise TraceError(
                f"{where}: no event of it can be used{lost}{damage}; expected a profiler trace with events"
            )

    def _read_metadata(self, text: bytes, where: str) -> bytes:
        """Read the metadata before or after the events, and give what follows it."""
        metadata, rest = metadata_of(text.decode("utf-8", "surrogateescape"))
        self.trace.metadata = self.trace.metadata.updated(metadata)
        if rest is None:
            self.trace.warnings.append(f"the metadata {where} the events is damaged")
        return (rest or "").encode("utf-8", "surrogateescape")

    def _take_tail(self, rest: bytes) -> None:
        self._num_tail_bytes += len(rest)
        self._tail += rest[: max(0, METADATA_BYTES - len(self._tail))]

    def _read_tail(self) -> None:
        """Read the metadata behind the events, and tell what follows the trace."""
        rest = self._tail if self._head.is_list else self._read_metadata(b"{" + self._tail.lstrip(b", \r\n\t"), "after")
        num_bytes = len(rest.strip()) + self._num_tail_bytes - len(self._tail)
        if num_bytes:
            self.trace.warnings.append(f"{num_bytes} bytes follow the trace, and are not read")

    def _take(self, array: memoryview) -> None:
        """Take an array of events; what follows them is pending."""
        events = self._decoded(array) or self._decoded(replace_bare_numbers(bytes(array)))
        if events is None:
            self._take_apart(bytes(array[1:-1]), final=False)
            return
        try:
            self._keep(events)
        except InexactError:
            self._decode = decode_exact if self.trace.links is None else decode_linked_exact
            self._take(array)

    def _decoded(self, array: memoryview | bytes) -> Sequence[AnyEvent] | None:
        try:
            return self._decode(array)
        except _UNDECODABLE:
            return None

    def _take_apart(self, piece: bytes, *, final: bool) -> None:
        salvaged: Salvaged = salvage(piece.decode("utf-8", "surrogateescape"), final=final)
        self.trace.losses.see(salvaged.lost)
        self._keep([event_of(value) for value in salvaged.events])
        rest = salvaged.rest.encode("utf-8", "surrogateescape")
        if salvaged.ended:
            self._events_ended = True
            self._take_tail(self._pending.take_after(rest))
        elif len(rest) > MAX_EVENT_BYTES:
            self.trace.losses.unknown += 1
        elif rest:
            self._pending.put_back(rest)

    def _keep(self, events: Sequence[AnyEvent]) -> None:
        """Keep what is needed of decoded events; nothing is kept when InexactError is raised."""
        gpu, launches, steps, operators = _Rows(), _Rows(), _Rows(), _Rows()
        for event in [event for event in events if event.cat in CATEGORIES]:
            category = CATEGORIES[event.cat]
            if category < _RANGE:
                if event.ph == "X":
                    (launches if category is _LAUNCH else gpu).add(category, event)
            elif category is _INSTANT:
                self._see_memory(event)
            elif event.name is None:
                continue
            elif event.name.startswith(COLLECTIVE_OPS):
                operators.add(category, event)
            elif category is _RANGE and event.ph == "X" and STEP.fullmatch(event.name):
                steps.add(category, event)
        timed_gpu, timed_launches, timed_steps = gpu.timed(), launches.timed(), steps.timed()
        losses = self.trace.losses
        losses.gpu += timed_gpu.num_lost
        losses.launches += timed_launches.num_lost
        losses.steps += timed_steps.num_lost
        self._store_gpu(timed_gpu)
        self._store_launches(timed_launches)
        self._store_steps(timed_steps)
        self._see_operators(operators)
        if self._witness is not None:
            self._witness(events)
        is_trace = self.trace.num_events > 0
        self.trace.num_events += len(events) if is_trace else sum(event.ph is not None for event in events)

    def _see_operators(self, rows: _Rows) -> None:
        self.trace.has_comm_ops |= bool(rows)
        if self.trace.links is not None:
            for category, event in zip(rows.categories, rows.events, strict=True):
                if category is _OPERATOR:
                    self.trace.links.see_operator(linked(event))

    def _see_memory(self, event: AnyEvent) -> None:
        args = event.args
        on_device = args is not None and isinstance(args.device_type, int) and args.device_type != 0
        if event.name == "[memory]" and args is not None and on_device and isinstance(args.total_allocated, int):
            self.trace.peak_memory_bytes = max(self.trace.peak_memory_bytes or 0, args.total_allocated)

    def _store_gpu(self, found: _Timed) -> None:
        gpu, links, number = self.trace.events, self.trace.links, self._name
        rows = found.rows
        gpu.start_ns.frombytes(found.start_ns.tobytes())
        gpu.end_ns.frombytes(found.end_ns.tobytes())
        names = [
            number(category, event.name or "") for category, event in zip(rows.categories, rows.events, strict=True)
        ]
        gpu.kind.extend([kind for kind, _ in names])
        gpu.name.extend([name for _, name in names])
        gpu.device.extend(map(self._device, rows.events))
        gpu.correlation.extend(map(correlation, rows.events))
        if links is not None:
            for event in rows.events:
                links.see_event(linked(event))

    def _store_launches(self, found: _Timed) -> None:
        launches, links = self.trace.launches, self.trace.links
        rows = found.rows
        correlations = np.fromiter(map(correlation, rows.events), np.int64, len(rows.events))
        known = correlations != NO_CORRELATION
        for column, values in (
            (launches.correlation, correlations),
            (launches.start_ns, found.start_ns),
            (launches.end_ns, found.end_ns),
        ):
            column.frombytes(values[known].tobytes())
        if links is not None:
            for event in rows.only(known).events:
                links.see_launch(linked(event))

    def _store_steps(self, found: _Timed) -> None:
        for event, start, end in zip(found.rows.events, found.start_ns.tolist(), found.end_ns.tolist(), strict=True):
            if step := STEP.fullmatch(event.name or ""):
                self.trace.steps.setdefault(int(step[1]), (start, end))

    def _name(self, category: Category, name: str) -> tuple[int, int]:
        """Give the kind of a GPU event and the number of its name; names beyond a bound are not told apart."""
        found = self._names.get((category, name))
        if found is None:
            kind: Kind = kind_of(category, name)
            key = (category, name if len(self._names) < _MAX_NAMES else f"(other {kind.name.lower()} events)")
            found = self._names.setdefault(key, (kind, len(self.trace.names)))
            if found[1] == len(self.trace.names):
                self.trace.names.append(key[1])
        return found

    def _device(self, event: AnyEvent) -> int:
        device = event.args.device if event.args is not None else None
        if not isinstance(device, int):
            device = event.pid if isinstance(event.pid, int) else None
        return self._devices.setdefault(device, len(self._devices))
