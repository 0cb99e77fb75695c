"""Validation: from a document to a typed section, with every fault told in our words."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from pytest_aorta.config import placeholders, soundness
from pytest_aorta.config.document import JsonPath, PathFault, Places, Table, path_text
from pytest_aorta.config.fields import EXPECTED, Secret
from pytest_aorta.config.soundness import shown

M = TypeVar("M", bound=BaseModel)

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "none_required": "null",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}
_LIMITS = {
    "greater_than": ("gt", "a number above"),
    "greater_than_equal": ("ge", "a number of at least"),
    "less_than": ("lt", "a number below"),
    "less_than_equal": ("le", "a number of at most"),
    "string_too_short": ("min_length", "text of at least this many characters:"),
    "too_short": ("min_length", "at least this many entries:"),
}
_MOST_NAMES_LISTED = 12
_MOST_HINTS = 20
_LONGEST_NAME = 100
_LEAST_BEGINNING = 4


def validate(
    model: type[M], document: Mapping[str, Any], *, region: JsonPath = (), noun: str = "field"
) -> tuple[M | None, tuple[PathFault, ...]]:
    """Read a sound document as `model`; without faults the model is there, else every fault with its path.

    `region` says where the document stands in the whole configuration, `noun` what its keys are called.
    """
    result, groups = _read(model, document)
    if groups is None:
        return None, (PathFault((), "holds text that cannot be stored, expected valid Unicode text"),)
    wording = _Wording(model, region, noun)
    return result, tuple(PathFault(path, wording.sentence(path, group)) for path, group in groups.items())


def examine(
    model: type[M],
    document: Table,
    *,
    region: JsonPath = (),
    noun: str = "field",
    is_opaque: Callable[[JsonPath], bool] = placeholders.is_opaque,
) -> tuple[M | None, tuple[PathFault, ...]]:
    """Walk a document and read it as `model`; where the walk found something, types are not judged as well."""
    unsound = tuple(soundness.faults(document, region=region, is_opaque=is_opaque))
    result, typed = validate(model, document, region=region, noun=noun)
    known = Places(unsound)
    faults = unsound + tuple(fault for fault in typed if not known.touch(fault.path))
    return (None if faults else result), faults


def validate_pruned(model: type[M], document: Mapping[str, Any], required: Mapping[str, Any]) -> M | None:
    """Read what is left of a faulty document once its faults are taken out; `required` stands in for what must be."""
    rest = json.loads(json.dumps(document))
    for _ in range(8):
        rest = {**required, **rest}
        result, groups = _read(model, rest)
        if result is not None:
            return result
        for path in groups or ():
            _take_out(rest, path)
    return None


def near(name: str, names: Iterable[str]) -> str:
    """Give `, did you mean ...?` for the closest of `names`, else for one that begins so, or nothing."""
    if len(name) > _LONGEST_NAME:
        return ""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    begun = [each for each in known if len(name) >= _LEAST_BEGINNING and each.startswith(name)]
    return f", did you mean {(close or begun)[0]}?" if close or begun else ""


def field_places(model: type[BaseModel], path: JsonPath = ()) -> Iterator[JsonPath]:
    """Give the path of every field of a model and of the sections in it."""
    for name, info in model.model_fields.items():
        yield (*path, name)
        for section in _sections(info.annotation):
            yield from field_places(section, (*path, name))


def _read(model: type[M], document: Mapping[str, Any]) -> tuple[M | None, dict[JsonPath, list[Any]] | None]:
    """Read a document as `model`, or give what is wrong by place; None: it cannot be judged at all."""
    try:
        return model.model_validate_json(json.dumps(document)), {}
    except ValidationError as error:
        details = error.errors(include_url=False)
    if details[0]["type"] == "json_invalid":
        return None, None
    groups: dict[JsonPath, list[Any]] = {}
    for detail in details:
        groups.setdefault(_place(detail["loc"], document, missing=detail["type"] == "missing"), []).append(detail)
    above = {path[:length] for path in groups for length in range(len(path))}
    return None, {
        path: group
        for path, group in groups.items()
        if path not in above or not _explained_below(path, group, document)
    }


def _place(loc: tuple[str | int, ...], document: Mapping[str, Any], *, missing: bool) -> JsonPath:
    """Follow an error's location through the document; names of union members on the way are left out."""
    path: list[str | int] = []
    node: Any = document
    for part in loc:
        if isinstance(node, list):
            inside = isinstance(part, int) and part < len(node)
        else:
            inside = isinstance(node, Mapping) and part in node
        if inside:
            node = node[part]
            path.append(part)
    if missing:
        path.append(loc[-1])
    return tuple(path)


def _explained_below(path: JsonPath, group: list[Any], document: Any) -> bool:
    """Tell whether a value with faults below failed as one member of a union: the others say more exactly why."""
    if not all(detail["type"] in _KINDS for detail in group):
        return False
    node = document
    for part in path:
        node = node[part]
    return isinstance(node, (Mapping, list))


class _Wording:
    """Puts faults into words; a near miss is looked for in the first of them only, since that takes long."""

    def __init__(self, model: type[BaseModel], region: JsonPath, noun: str) -> None:
        self._model = model
        self._region = region
        self._noun = noun
        self._hints_left = _MOST_HINTS

    def sentence(self, path: JsonPath, group: list[Any]) -> str:
        """Say what is wrong at a place."""
        kinds = {detail["type"] for detail in group}
        if "missing" in kinds:
            return f"is missing, expected because it is required{self._purpose(path)}"
        if "extra_forbidden" in kinds:
            return self._unknown(path)
        expected = dict.fromkeys(_expected(detail) for detail in group)
        if "a number" in expected:
            expected.pop("a whole number", None)
        is_key = any(detail["loc"][-1:] == ("[key]",) for detail in group)
        seen = f"the key {shown(path[-1], ())}" if is_key else shown(group[0]["input"], (*self._region, *path))
        return f"seen {seen}, expected {' or '.join(expected)}"

    def _purpose(self, path: JsonPath) -> str:
        """Give in brackets what a field is for."""
        infos = (section.model_fields.get(str(path[-1])) for section in _sections_at(self._model, path[:-1]))
        told = next((info.description for info in infos if info is not None and info.description), "")
        return f" ({told.rstrip('.')})" if told else ""

    def _unknown(self, path: JsonPath) -> str:
        hint = ""
        if self._hints_left:
            self._hints_left -= 1
            hint = self._hint(path)
        return f"unknown {self._noun}{hint or '; remove it, or see `aorta config schema` for the names'}"

    def _hint(self, path: JsonPath) -> str:
        name = str(path[-1])
        known = [field for section in _sections_at(self._model, path[:-1]) for field in section.model_fields]
        elsewhere = [path_text(place) for place in field_places(self._model) if place[-1] == name and place != path]
        hint = f", did you mean {elsewhere[0]}?" if elsewhere else near(name, known)
        if not hint and len(known) <= _MOST_NAMES_LISTED:
            hint = f", expected one of {', '.join(known)}"
        return hint


def _expected(detail: Any) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == EXPECTED:
        return str(context["what"])
    if kind == "model_type" and context.get("class_name") == Secret.__name__:
        return '{"secret": text}'
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"{words} {context[key]:g}"
    return _KINDS.get(kind) or str(detail["msg"]).lower()


def _sections_at(model: type[BaseModel], path: JsonPath) -> list[type[BaseModel]]:
    sections = [model]
    for part in path:
        infos = [section.model_fields[part] for section in sections if part in section.model_fields]
        if infos:
            sections = [found for info in infos for found in _sections(info.annotation)]
    return sections


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from _sections(argument)


def _take_out(document: Any, path: JsonPath) -> None:
    """Remove what stands at `path`: a whole list when it lies in one, the object above when it was missing."""
    whole = path[: next((index for index, part in enumerate(path) if isinstance(part, int)), len(path))]
    node = document
    for depth, part in enumerate(whole[:-1]):
        if not isinstance(node, dict) or part not in node:
            return _take_out(document, whole[:depth]) if depth else None
        node = node[part]
    if isinstance(node, dict) and whole and whole[-1] in node:
        del node[whole[-1]]
    elif len(whole) > 1:
        _take_out(document, whole[:-1])
    return None
