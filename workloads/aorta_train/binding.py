"""From a mapping to one section's dataclass: types are strict, bounds are checked, every fault is a sentence."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from aorta_train.knob import Limits
from aorta_train.wording import shown

Section = TypeVar("Section")

KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", dict: "a mapping"}


class _Misfit(Exception):
    """A value does not fit its knob; the message continues the knob's name."""


def bind(kind: Callable[..., Section], given: Mapping[str, Any]) -> tuple[Section | None, list[str]]:
    """Make a section of known knobs; the second value holds the faults, each beginning with the knob's name."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    faults: list[str] = []
    for knob in fields(cast("Any", kind)):
        if knob.name not in given:
            continue
        try:
            value = _fit(given[knob.name], hints[knob.name])
            _check(value, knob.metadata["limits"])
        except _Misfit as misfit:
            faults.append(f"{knob.name}: {misfit}")
        else:
            values[knob.name] = value
    return (None if faults else kind(**values)), faults


def _fit(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (types.UnionType, Union):
        return _fit(value, get_args(hint)[0])
    if origin is Literal:
        return _fit_choice(value, get_args(hint))
    if origin is tuple:
        wanted = get_args(hint)
        if not isinstance(value, list) or len(value) != len(wanted):
            raise _Misfit(f"is {shown(value)}, expected a list of {len(wanted)} numbers")
        return tuple(_fit(item, part) for item, part in zip(value, wanted, strict=True))
    plain = origin or hint
    if plain is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1023 else math.inf
    if not isinstance(value, plain) or (plain is not bool and isinstance(value, bool)):
        raise _Misfit(f"is {shown(value)}, expected {KINDS[plain]}")
    if plain is float and not math.isfinite(value):
        raise _Misfit("is not finite, expected a number")
    if plain is int and abs(value) >= 2**63:
        raise _Misfit(f"is {shown(value)}, expected an integer of 64 bits")
    if plain is str and not value:
        raise _Misfit("is empty, expected text")
    if plain is str and "\0" in value:
        raise _Misfit("holds a zero character, expected text without")
    return value


def _fit_choice(value: Any, choices: tuple[str, ...]) -> str:
    """Match a choice whatever its case: torch writes FULL_SHARD, the documentation full_shard."""
    for choice in choices:
        if isinstance(value, str) and value.casefold() == choice.casefold():
            return choice
    raise _Misfit(f"is {shown(value)}, expected one of {', '.join(choices)}")


def _check(value: Any, limits: Limits) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            fault = limits.fault(number)
            if fault:
                raise _Misfit(fault)
