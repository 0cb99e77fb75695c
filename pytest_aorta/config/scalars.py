"""Scalars: how a piece of text on a command line or in YAML becomes a value."""

from __future__ import annotations

import json
import re
from typing import Any

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def parse_scalar(text: str) -> Any:
    """Read `true`, `false`, `null`, a JSON number, a JSON list or object; everything else is the text itself.

    `2e-4` is a number, `no`, `1:30`, `007` and `NaN` are text.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return _number(text)
    if text.startswith(("[", "{")):
        try:
            return json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return text
    return text


def _number(text: str) -> int | float | str:
    if not re.fullmatch(r"-?[0-9]+", text):
        return float(text)
    try:
        return int(text)
    except ValueError:  # Python refuses to convert integers of more than 4300 digits
        return text


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")
