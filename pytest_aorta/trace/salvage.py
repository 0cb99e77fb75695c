"""Salvage: what can still be read of damaged JSON, event by event, and of the metadata around the events."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_aorta.trace.intervals import MAX_NS

METADATA_BYTES = 16 << 20

_BETWEEN = re.compile(r"[\s,\x00]*")
_NEXT_EVENT = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid|tid|args|id|s|bp|dur)")')
_END_OF_EVENTS = re.compile(r'\}\s*(?=\]\s*(?:,\s*"|\}|$))')
_CATEGORY = re.compile(r'"cat"\s*:\s*"([^"]*)"')
_BARE = r"(?<=[:\[,])(\s*)-?(?:inf(?:inity)?|nan)(?=\s*[,}\]])"
_BARE_TEXT = re.compile(_BARE, re.IGNORECASE)
_BARE_BYTES = re.compile(_BARE.encode(), re.IGNORECASE)

# Floats stay text here, so that no digit of a timestamp is lost; raw control characters pass.
_DECODER = json.JSONDecoder(strict=False, parse_float=str)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the file says of itself; None where it does not. `base_ns`: what its timestamps count from, since 1970."""

    rank: int | None = None
    world_size: int | None = None
    base_ns: int | None = None

    def updated(self, later: Metadata) -> Metadata:
        """Give these with what `later` knows put over them."""
        known = {name: value for name in self.__slots__ if (value := getattr(later, name)) is not None}
        return replace(self, **known)


@dataclass(slots=True)
class Salvaged:
    """Events taken out of damaged text; `rest` was not: an event not yet whole, or what follows the array.

    `lost`: the category of each event that could not be read, None where the text does not tell it.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str | None] = field(default_factory=list)
    ended: bool = False
    rest: str = ""


def replace_bare_numbers(text: bytes) -> bytes:
    """Put null for inf and nan, which JSON does not have and Kineto writes."""
    return _BARE_BYTES.sub(rb"\1null", text)


def salvage(text: str, *, final: bool) -> Salvaged:
    """Take text that begins with an event apart: whole events, the lost ones counted, until the array or the text ends.

    An event that does not end within the text is left in `rest`, or counted as lost when the text is the `final` one.
    """
    found = Salvaged()
    position = 0
    while True:
        position = _end_of_separator(text, position)
        if position == len(text):
            return found
        if text[position] == "]":
            found.ended, found.rest = True, text[position + 1 :]
            return found
        value, end = _value_at(text, position)
        if end == 0:
            boundary = _NEXT_EVENT.search(text, position + 1) or (
                _END_OF_EVENTS.search(text, position + 1) if final else None
            )
            if boundary is None:
                if final:
                    found.lost.append(_category_in(text[position:]))
                found.rest = "" if final else text[position:]
                return found
            value, whole = _value_at(_BARE_TEXT.sub(r"\1null", text[position : boundary.start() + 1]), 0)
            end = boundary.end()
            value = value if whole else None
        if isinstance(value, dict):
            found.events.append(value)
        else:
            found.lost.append(_category_in(text[position:end]))
        position = end


def _category_in(text: str) -> str | None:
    found = _CATEGORY.search(text)
    return found[1] if found else None


def is_json(text: str) -> bool:
    """Tell whether this is one whole JSON value."""
    text = text.strip()
    return bool(text) and _value_at(text, 0)[1] == len(text)


def metadata_of(text: str) -> tuple[Metadata, str | None]:
    """Read rank, world size and time base from the text around the events; give what follows it, None for damage."""
    text = text.lstrip()
    document, end = _value_at(text, 0)
    if end and isinstance(document, dict):
        return _metadata(document), text[end:]
    salvaged: dict[str, Any] = {}
    for key in ("distributedInfo", "baseTimeNanoseconds"):
        found = re.search(rf'"{key}"\s*:\s*', text)
        if found:
            salvaged[key] = _value_at(text, found.end())[0]
    return _metadata(salvaged), None


def _metadata(document: dict[str, Any]) -> Metadata:
    distributed = document.get("distributedInfo")
    if not isinstance(distributed, dict):
        distributed = {}
    return Metadata(
        rank=_count(distributed.get("rank")),
        world_size=_count(distributed.get("world_size")),
        base_ns=_count(document.get("baseTimeNanoseconds")),
    )


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < MAX_NS else None


def _value_at(text: str, position: int) -> tuple[Any, int]:
    """Decode the JSON value that begins at `position`: the value and where it ends, which is 0 when there is none."""
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None, 0


def _end_of_separator(text: str, position: int) -> int:
    found = _BETWEEN.match(text, position)
    return found.end() if found else position
