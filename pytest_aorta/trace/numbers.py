"""Numbers: timestamps and durations in µs, as a trace spells them, to exact integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from pytest_aorta.trace.intervals import Nanoseconds

UNREADABLE_NS = -1
_NUMBERS = frozenset({int, float})
_MAX_US = 1 << 53
_EXACT_FLOAT_US = 1 << 43  # below it the spacing of float64 is under 1 ns, so the digits that were written come back


class InexactError(ValueError):
    """A float is too large to have kept its nanoseconds; read the text instead."""


def many_to_ns(values: Sequence[Any]) -> Nanoseconds:
    """Convert what a JSON decoder gave for µs values, decoded or as raw text.

    Gives (N,) int64, UNREADABLE_NS for what is no time from 0 to 2^53 µs.

    Raises:
        InexactError: a float has a fraction and is too large to tell nanoseconds apart.
    """
    column = np.array(values) if _NUMBERS.issuperset(map(type, values)) else None
    if column is None or column.dtype.kind not in "if":
        return np.fromiter((_to_ns(value) for value in values), np.int64, len(values))
    readable = (column >= 0) & (column < _MAX_US)
    column = np.where(readable, column, 0)
    if column.dtype.kind == "i":
        return np.where(readable, column * 1000, UNREADABLE_NS)
    whole_us = np.floor(column)
    fraction_us = column - whole_us
    if bool(((column >= _EXACT_FLOAT_US) & (fraction_us > 0)).any()):
        raise InexactError
    exact_ns = whole_us.astype(np.int64) * 1000 + np.rint(fraction_us * 1000).astype(np.int64)
    return np.where(readable, exact_ns, UNREADABLE_NS)


def _to_ns(value: object) -> int:
    if isinstance(value, (bytes, msgspec.Raw)):
        value = bytes(value).decode("ascii", "replace").strip('"')
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return UNREADABLE_NS
    if isinstance(value, float) and _EXACT_FLOAT_US <= value < _MAX_US and not value.is_integer():
        raise InexactError
    try:
        number = Decimal(value)
    except InvalidOperation:
        return UNREADABLE_NS
    if not number.is_finite() or not 0 <= number < _MAX_US:
        return UNREADABLE_NS
    return int((number * 1000).to_integral_value())
