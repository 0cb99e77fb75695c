"""How text becomes a value: true, false, null, JSON numbers, lists and objects of these, else a string.

The same rules hold for overrides and for plain scalars in YAML files, where plain YAML would turn `2e-4` into a string,
`no` into false and `1:30` into 90.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable
from typing import Any

import yaml

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
WORDS = {"true": True, "false": False, "null": None}


class RepeatedKey(ValueError):
    """A mapping names one key twice."""


def parse_scalar(text: str) -> Any:
    """Give the value that `text` stands for.

    Raises:
        RepeatedKey: an object in the text names one key twice.
    """
    if text in WORDS:
        return WORDS[text]
    if text[:1] not in ("[", "{") and not NUMBER.fullmatch(text):
        return text
    try:
        value = read_json(text)
    except RepeatedKey:
        raise
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value


def read_json(text: str) -> Any:
    """Read JSON strictly: no repeated key, no NaN, no Infinity.

    Raises:
        ValueError: the text is not such JSON.
    """
    return json.loads(text, object_pairs_hook=unique_mapping, parse_constant=_refuse_constant)


def unique_mapping(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Make a mapping of `pairs`.

    Raises:
        RepeatedKey: two pairs have the same key.
    """
    mapping: dict[Any, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise RepeatedKey(f"the key {key!r} stands twice in one mapping")
        mapping[key] = value
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


class _ScalarLoader(yaml.SafeLoader):
    """YAML with our scalar rules: every plain scalar is taken as `parse_scalar` takes it."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (the loader's own attribute)

    def construct_scalar_of_ours(self, node: yaml.ScalarNode) -> Any:
        """Give a quoted or block scalar as it stands, a plain one by our rules; nothing at all is null."""
        if node.style is not None:
            return node.value
        return parse_scalar(node.value) if node.value else None

    def construct_unique_mapping(self, node: yaml.MappingNode) -> dict[Hashable, Any]:
        """Make a mapping, refusing a key that stands twice."""
        pairs = []
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key_node.start_mark)
            pairs.append((key, self.construct_object(value_node, deep=True)))
        try:
            return unique_mapping(pairs)
        except RepeatedKey as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None


_ScalarLoader.add_constructor("tag:yaml.org,2002:str", _ScalarLoader.construct_scalar_of_ours)
_ScalarLoader.add_constructor("tag:yaml.org,2002:map", _ScalarLoader.construct_unique_mapping)


def read_yaml(text: str) -> Any:
    """Read one YAML document by the rules above.

    Raises:
        yaml.YAMLError: the text is not YAML, or a mapping names one key twice.
        ValueError: a value does not fit its tag.
    """
    try:
        return yaml.load(text, Loader=_ScalarLoader)  # noqa: S506  (a SafeLoader with fewer rules)
    except (AttributeError, LookupError, TypeError) as error:  # of PyYAML's own constructors
        raise ValueError("a value does not fit its tag (such as !!int); leave the tag out") from error
