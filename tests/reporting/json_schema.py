"""A JSON Schema validator for the words that our schemas use; a word it does not know is a fault, never passed over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value),
}
_CHECKS: dict[str, Callable[[Any, Any], list[str]]] = {
    "type": lambda value, wanted: [] if _TYPES[wanted](value) else [f"{value!r} is no {wanted}"],
    "const": lambda value, wanted: [] if value == wanted else [f"{value!r} is not {wanted!r}"],
    "enum": lambda value, wanted: [] if value in wanted else [f"{value!r} is not one of {wanted}"],
    "required": lambda value, wanted: [
        f"no {name}" for name in wanted if isinstance(value, dict) and name not in value
    ],
    "minItems": lambda value, wanted: ["too few"] if isinstance(value, list) and len(value) < wanted else [],
    "maxItems": lambda value, wanted: ["too many"] if isinstance(value, list) and len(value) > wanted else [],
}
_NESTED = {"$ref", "anyOf", "properties", "additionalProperties", "items", "prefixItems"}
_SILENT = {"$schema", "$defs", "title", "description", "default"}


def faults(value: Any, schema: Any, root: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Give every fault of a document, each with its path."""
    for word, wanted in schema.items():
        if word in _CHECKS:
            yield from (f"{path}: {fault}" for fault in _CHECKS[word](value, wanted))
        elif word not in _SILENT and word not in _NESTED:
            yield f"{path}: the schema says {word}, which is not known here"
    for part, child, where in _parts(value, schema, root):
        yield from faults(part, child, root, f"{path}{where}")
    if "anyOf" in schema and all(any(faults(value, one, root, path)) for one in schema["anyOf"]):
        yield f"{path}: {value!r} is none of {len(schema['anyOf'])}"


def _parts(value: Any, schema: Any, root: dict[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """Give what stands inside a value, each part with its own schema and where it is."""
    if "$ref" in schema:
        yield value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], ""
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, child in value.items():
            yield (
                child,
                known.get(name, {} if other is True else other or {"unknown field": name}),
                f".{name}",
            )
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for index, one in enumerate(value):
            yield one, first[index] if index < len(first) else schema.get("items", {}), f"[{index}]"
