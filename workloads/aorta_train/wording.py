"""Wording: how a value that somebody wrote is shown in a sentence."""

from __future__ import annotations

import reprlib

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3
_MAX_DIGITS = 40
_MAX_LENGTH = 120


def shown(value: object) -> str:
    """Give a value as text of bounded length, however deep, long or often repeated its parts are."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 4 * _MAX_DIGITS:
        return f"an integer of {value.bit_length()} bits"
    text = _SHORT.repr(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
