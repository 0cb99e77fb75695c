"""YAML text, read by the rules that hold for overrides.

Plain YAML turns `2e-4` into a string, `no` into false and `1:30` into 90. Here an unquoted scalar is what
`parse_scalar` says, a quoted one is text, and keys are text. Aliases and tags are refused: the first can blow a small
file up to any size, the second have no meaning in a configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from pytest_aorta.config.scalars import parse_scalar

Pairs = list[tuple[str, Any]]


@dataclass(slots=True)
class _Open:
    """A mapping or a sequence whose end has not come yet."""

    is_mapping: bool
    children: list[Any] = field(default_factory=list)


def parse(text: str, of_pairs: Callable[[Pairs], Any], max_depth: int) -> Any:
    """Parse one YAML document; objects are made by `of_pairs`, so that repeated keys can be seen.

    It may be nested `max_depth` levels deep.

    Raises:
        ValueError: The text is not YAML, is nested too deeply, or uses aliases, tags, several documents or keys that
            are no text.
    """
    opened: list[_Open] = []
    documents: list[Any] = []
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            _refuse_extras(event)
            if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                opened.append(_Open(isinstance(event, yaml.MappingStartEvent)))
                if len(opened) > max_depth:  # deep flow sequences take the scanner a time that grows with their square
                    raise ValueError(f"nested deeper than {max_depth} levels")
                continue
            if isinstance(event, yaml.ScalarEvent):
                value = _scalar(event, opened)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                value = _closed(opened.pop(), event, of_pairs)
            else:
                continue
            (opened[-1].children if opened else documents).append(value)
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"{error.problem or 'not understood'}{_at(error.problem_mark)}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error
    if len(documents) > 1:
        raise ValueError(f"{len(documents)} documents in one file, expected one")
    return documents[0] if documents else None


def _refuse_extras(event: yaml.Event) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise ValueError(  # noqa: TRY004 - the file is wrong, not the caller
            f"an alias (*{event.anchor}){_at(event.start_mark)}; write the value out"
        )
    if getattr(event, "tag", None) is not None:
        raise ValueError(f"a tag{_at(event.start_mark)}; write plain values only")


def _scalar(event: yaml.ScalarEvent, opened: list[_Open]) -> Any:
    is_key = bool(opened) and opened[-1].is_mapping and len(opened[-1].children) % 2 == 0
    if is_key or event.style is not None:
        return event.value
    return None if event.value == "" else parse_scalar(event.value)


def _closed(made: _Open, event: yaml.Event, of_pairs: Callable[[Pairs], Any]) -> Any:
    if not made.is_mapping:
        return made.children
    keys, values = made.children[::2], made.children[1::2]
    if not all(isinstance(key, str) for key in keys):
        raise ValueError(f"a key that is no text in the mapping that ends{_at(event.start_mark)}")
    return of_pairs(list(zip(keys, values, strict=True)))


def _at(mark: Any) -> str:
    return f" at line {mark.line + 1} column {mark.column + 1}" if mark is not None else ""
