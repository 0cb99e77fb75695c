"""From a file and overrides to `Options`, or every fault at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from aorta_train.binding import bind
from aorta_train.options import Options
from aorta_train.refusal import Refusal
from aorta_train.rules import faults_between_knobs
from aorta_train.scalars import RepeatedKey, parse_scalar, read_json, read_yaml
from aorta_train.wording import shown

SECTIONS = {name: kind for name, kind in get_type_hints(Options).items() if name != "explicit"}


def load(path: Path, overrides: Sequence[str] = ()) -> Options:
    """Read `path` (YAML, or JSON by its suffix) and lay `overrides` over it.

    Raises:
        Refusal: with every fault of the file and the overrides.
    """
    document = read_document(path)
    in_file = frozenset(document)
    faults: list[str] = []
    overridden: set[str] = set()
    for text in overrides:
        found = _override(document, text)
        faults += found
        if not found:
            overridden.add(".".join(text.partition("=")[0].split(".")[:2]))

    def source(section: str, knob: str = "") -> str:
        """Say where a value comes from: a fault of an override is no fault of the file."""
        given_there = f"{section}.{knob}" in overridden if knob else section not in in_file
        return "--override" if given_there else f"{path}:"

    sections, explicit = _bind_sections(document, source, faults)
    if not faults:
        options = Options(**sections, explicit=frozenset(explicit))
        faults += faults_between_knobs(options)
    if faults:
        raise Refusal(faults)
    return options


def read_document(path: Path) -> dict[str, dict[str, Any]]:
    """Read the sections of a file, each a mapping.

    Raises:
        Refusal: the file cannot be read, or is not a mapping of mappings.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value = read_json(text) if path.suffix == ".json" and text.strip() else read_yaml(text)
    except OSError as error:
        raise Refusal(f"{path}: cannot be read: {error.strerror}; --config names a YAML or JSON file") from None
    except UnicodeDecodeError:
        raise Refusal(f"{path}: is not UTF-8 text; --config names a YAML or JSON file") from None
    except (json.JSONDecodeError, yaml.YAMLError, ValueError) as error:
        raise Refusal(f"{path}: cannot be parsed: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise Refusal(f"{path}: is nested too deeply") from None
    if value is None:
        raise Refusal(
            f"{path}: holds no option; --config names a YAML or JSON file of options, such as {{}} for the defaults"
        )
    if not isinstance(value, dict):
        raise Refusal(f"{path}: is {_kind(value)}, expected a mapping of sections")
    document = {name: {} if section is None else section for name, section in value.items()}
    faults = [
        f"{path}: {name}: is {_kind(section)}, expected a mapping of knobs"
        for name, section in document.items()
        if not isinstance(section, dict)
    ]
    if faults:
        raise Refusal(faults)
    # Sections of their own, also where an anchor of YAML made one of two: an override is of one.
    return {name: dict(section) for name, section in document.items()}


def _override(document: dict[str, dict[str, Any]], text: str) -> list[str]:
    name, equals, value_text = text.partition("=")
    path = name.split(".")
    if not equals or len(path) < 2 or not all(path):
        return [f"--override {text}: expected SECTION.KNOB=VALUE, such as training.max_steps=20"]
    try:
        value = parse_scalar(value_text)
    except RepeatedKey as error:
        return [f"--override {text}: {error}"]
    section, knob, *below = name.split(".", 2)
    place: Any = document.setdefault(section, {})
    if below:
        known = place.get(knob)
        if known is not None and not isinstance(known, dict):
            return [f"--override {text}: {section}.{knob} is {_kind(known)} and has nothing below it"]
        place[knob] = place = dict(known or {})
    place[below[0] if below else knob] = value
    return []


def _bind_sections(
    document: dict[str, dict[str, Any]], source: Callable[..., str], faults: list[str]
) -> tuple[dict[str, Any], list[str]]:
    sections: dict[str, Any] = {}
    explicit: list[str] = []
    for name, given in document.items():
        kind = SECTIONS.get(name)
        if kind is None:
            faults.append(f"{source(name)} {name}: unknown section{near_miss(name, SECTIONS)}")
            continue
        known = {knob.name: knob for knob in fields(kind)}
        values = {key: value for key, value in given.items() if value is not None}
        unknown = sorted(set(values) - set(known), key=str)
        faults += [f"{source(name, key)} {name}.{key}: unknown knob{near_miss(key, known)}" for key in unknown]
        section, section_faults = bind(kind, {key: values[key] for key in values if key in known})
        faults += [f"{source(name, fault.partition(':')[0])} {name}.{fault}" for fault in section_faults]
        sections[name] = section
        explicit += [f"{name}.{key}" for key in values]
    return sections, explicit


def near_miss(name: object, known: Any) -> str:
    """Say which known name was probably meant, or which there are."""
    close = get_close_matches(str(name), list(known), n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(known)}" if known else ""


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "a mapping" if isinstance(value, dict) else shown(value)
