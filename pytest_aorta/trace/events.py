"""Events: the few fields of a trace's events that are needed, decoded fast, exactly, or with what links them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

NO_CORRELATION = -1


class _Args(msgspec.Struct, gc=False):
    correlation: Any = None
    device: Any = None
    total_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    device_type: Any = msgspec.field(default=None, name="Device Type")


class _Event(msgspec.Struct, gc=False):
    cat: str | None = None
    name: str | None = None
    ph: str | None = None
    pid: Any = None
    ts: Any = None
    dur: Any = None
    args: _Args | None = None


class _ExactEvent(msgspec.Struct, gc=False):
    """The same with times as text, for epoch timestamps with a fraction, which float64 rounds to 0.25 µs."""

    cat: str | None = None
    name: str | None = None
    ph: str | None = None
    pid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    args: _Args | None = None


class _LinkedArgs(_Args, gc=False):
    external_id: Any = msgspec.field(default=None, name="External id")
    grid: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    num_elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    num_elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    seq: Any = msgspec.field(default=None, name="Seq")


class _LinkedEvent(_Event, gc=False):
    args: _LinkedArgs | None = None


class _LinkedExactEvent(_ExactEvent, gc=False):
    args: _LinkedArgs | None = None


AnyEvent = _Event | _ExactEvent
Decode = Callable[[bytes | memoryview], Sequence[AnyEvent]]
decode_fast: Decode = msgspec.json.Decoder(list[_Event]).decode
decode_exact: Decode = msgspec.json.Decoder(list[_ExactEvent]).decode
decode_linked: Decode = msgspec.json.Decoder(list[_LinkedEvent]).decode
decode_linked_exact: Decode = msgspec.json.Decoder(list[_LinkedExactEvent]).decode
_ARGS = {field.name: field.encode_name for field in msgspec.structs.fields(_LinkedArgs)}


def correlation(event: AnyEvent) -> int:
    """Give the id that ties a GPU event to its launch, NO_CORRELATION where there is none."""
    found = event.args.correlation if event.args is not None else None
    return found if isinstance(found, int) and 0 <= found < 1 << 63 else NO_CORRELATION


def linked(event: AnyEvent) -> _LinkedArgs | None:
    """Give what ties an event to a collective; None when it was not decoded for that."""
    return event.args if isinstance(event.args, _LinkedArgs) else None


def event_of(value: dict[str, Any]) -> _Event:
    """Give an event that was salvaged; fields of unexpected types are left out."""
    text = {key: _encodable(value[key]) for key in ("cat", "name", "ph") if isinstance(value.get(key), str)}
    args = value.get("args")
    kept = None
    if isinstance(args, dict):
        kept = _LinkedArgs(**{name: _encodable(args.get(key)) for name, key in _ARGS.items()})
    return _Event(pid=value.get("pid"), ts=value.get("ts"), dur=value.get("dur"), args=kept, **text)


def _encodable(value: Any) -> Any:
    """Put a mark for what stands for bytes that are no UTF-8, and for half of a surrogate pair."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
