from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.config.load import parse_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("2e-4", 2e-4),
        ("1.50", 1.5),
        ("1E3", 1000.0),
        ("[1, true, null]", [1, True, None]),
        ('{"a": [2e-4]}', {"a": [2e-4]}),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "True",
        "1:30",
        "007",
        "+1",
        ".5",
        "1.",
        "0x10",
        "NaN",
        "Infinity",
        "[NaN]",
        "[1",
        "{a: 1}",
        " 5",
        "1_000",
    ],
)
def test_everything_else_is_the_text_itself(text: str) -> None:
    assert parse_scalar(text) == text


def test_numbers_too_long_for_python_stay_text_and_too_large_ones_are_infinite() -> None:
    assert parse_scalar("9" * 5000) == "9" * 5000
    assert math.isinf(parse_scalar("1e999"))
    assert parse_scalar("[" * 100_000) == "[" * 100_000


@given(st.text())
def test_no_text_is_refused(text: str) -> None:
    parse_scalar(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_without_bare_strings_reads_back(value: Any) -> None:
    assert parse_scalar(json.dumps(value)) == value
