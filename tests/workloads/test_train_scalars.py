from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from aorta_train.scalars import RepeatedKey, parse_scalar, read_json, read_yaml
from hypothesis import given
from hypothesis import strategies as st

SCALARS: list[tuple[str, Any]] = [
    ("true", True),
    ("false", False),
    ("null", None),
    ("8", 8),
    ("-1", -1),
    ("2e-4", 2e-4),
    ("1.5", 1.5),
    ("[0.9,0.98]", [0.9, 0.98]),
    ('{"a": 1}', {"a": 1}),
    ("True", "True"),
    ("no", "no"),
    ("on", "on"),
    ("1:30", "1:30"),
    ("0x10", "0x10"),
    ("1_000", "1_000"),
    ("010", "010"),
    ("+1", "+1"),
    (".5", ".5"),
    ("1.", "1."),
    ("NaN", "NaN"),
    ("Infinity", "Infinity"),
    ("1e999", "1e999"),
    ("~", "~"),
    ("[1", "[1"),
    ("2026-01-01", "2026-01-01"),
    ("FULL_SHARD", "FULL_SHARD"),
]


@pytest.mark.parametrize(("text", "value"), [*SCALARS, ("", ""), ('"8"', '"8"'), ("[a,b]", "[a,b]")])
def test_an_override_is_read_by_the_rules(text: str, value: object) -> None:
    seen = parse_scalar(text)
    assert seen == value
    assert type(seen) is type(value)


@pytest.mark.parametrize(("text", "value"), [pair for pair in SCALARS if pair[0] != "[1"])
def test_yaml_reads_plain_scalars_by_the_same_rules(text: str, value: object) -> None:
    seen = read_yaml(f"section:\n  knob: {text}\n")["section"]["knob"]
    assert seen == value
    assert type(seen) is type(value)


def test_yaml_keeps_quoted_text_and_reads_nothing_as_null() -> None:
    assert read_yaml("a: '8'\nb: \"true\"\nc:\nd: ''\n") == {"a": "8", "b": "true", "c": None, "d": ""}


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(RepeatedKey, match="'a' stands twice"):
        parse_scalar('{"a": 1, "a": 2}')
    with pytest.raises(yaml.YAMLError, match="'a' stands twice"):
        read_yaml("a: 1\nb: 2\na: 3\n")


def test_yaml_makes_no_python_objects() -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml("a: !!python/object/apply:os.getcwd []\n")


@given(st.text())
def test_any_text_gives_a_value_or_a_repeated_key(text: str) -> None:
    try:
        value = parse_scalar(text)
    except RepeatedKey:
        return
    assert value == text or json.loads(text) == value


def test_json_knows_no_nan() -> None:
    with pytest.raises(ValueError, match="NaN"):
        read_json('{"a": NaN}')
