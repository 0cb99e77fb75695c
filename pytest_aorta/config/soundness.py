"""Soundness: one walk over a document for what no field's type can see."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from pytest_aorta.config import placeholders
from pytest_aorta.config.document import JsonPath, PathFault, Table, nodes, printable, shortened
from pytest_aorta.config.redact import REDACTED, hidden, is_secret, may_hold_secret

_LONGEST_SHOWN = 60


def shown(value: Any, path: JsonPath) -> str:
    """Show a value in a message: as JSON, cut when long, not at all when it is secret, nor secrets in it."""
    if is_secret(path):
        return "a secret"
    if isinstance(value, str) and may_hold_secret(value):
        return "text that may hold a secret"
    return shortened(printable(json.dumps(hidden(value, path), ensure_ascii=False, default=str)), _LONGEST_SHOWN)


def faults(
    document: Table, *, region: JsonPath = (), is_opaque: Callable[[JsonPath], bool] = placeholders.is_opaque
) -> Iterator[PathFault]:
    """Report repeated keys, NaN and infinities, text that cannot be stored, and placeholders left, each with its path.

    `region` is where the document stands in the whole configuration (`("cluster",)` for a cluster file), so that
    secrets in it are known as such.
    """
    for path, value in nodes(document):
        if isinstance(value, Table):
            yield from (
                PathFault((*path, key), "given more than once, expected once; keep one of them")
                for key in value.repeated
            )
            yield from (PathFault((*path, key), f"in this key: {why}") for key in value if (why := _key_fault(key)))
        elif isinstance(value, float) and not math.isfinite(value):
            yield PathFault(path, f"seen {_name_of(value)}, expected a finite number")
        elif isinstance(value, str) and (why := _text_fault(value)):
            yield PathFault(path, why)
        elif isinstance(value, str):
            seen = f"seen {shown(value, (*region, *path))}"
            why = (
                placeholders.leftover(value, opaque=is_opaque(path), seen=seen)
                if "{" in value or "<" in value
                else None
            )
            if why:
                yield PathFault(path, why)


def _key_fault(key: str) -> str | None:
    return _text_fault(key) or placeholders.leftover(key, opaque=True, seen=f"seen {shown(key, ())}")


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character, expected text without one"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, expected valid Unicode text"
    return None


def _name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def redacted(document: Table) -> Iterator[PathFault]:
    """Report texts from which a secret was taken: the copy of a configuration in a run folder is no configuration."""
    for path, value in nodes(document):
        if isinstance(value, str) and REDACTED in value:
            yield PathFault(path, f"holds {REDACTED}, which stands where a secret was; put your own value there")
