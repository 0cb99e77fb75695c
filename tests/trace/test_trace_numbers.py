"""Times as they are spelled, to exact nanoseconds."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.trace.numbers import UNREADABLE_NS, InexactError, many_to_ns


@given(st.integers(0, (1 << 43) * 1000 - 1))
def test_floats_below_the_bound_give_the_nanoseconds_that_were_written(time_ns: int) -> None:
    assert many_to_ns([float(Decimal(time_ns) / 1000)]).tolist() == [time_ns]


@given(st.integers(0, (1 << 53) * 1000 - 1))
def test_text_gives_the_nanoseconds_that_were_written(time_ns: int) -> None:
    text = f"{time_ns // 1000}.{time_ns % 1000:03d}"
    assert many_to_ns([text, text.encode(), f'"{text}"'.encode()]).tolist() == [time_ns] * 3


def test_a_large_float_with_a_fraction_is_refused() -> None:
    with pytest.raises(InexactError):
        many_to_ns([1.0, 1712195495505583.25])
    with pytest.raises(InexactError):
        many_to_ns([None, 1712195495505583.25])
    with pytest.raises(InexactError):
        many_to_ns([float((1 << 43) + 0.25)])


def test_what_is_no_time_needs_no_text() -> None:
    assert many_to_ns([float("inf"), "20.5", float("-inf"), float("nan")]).tolist() == [
        *[UNREADABLE_NS, 20_500],
        *[UNREADABLE_NS] * 2,
    ]


def test_whole_numbers_are_exact_at_any_size() -> None:
    assert many_to_ns([1712195495505583, 0]).tolist() == [1712195495505583000, 0]
    assert many_to_ns([1712195495505583.0, 0.5]).tolist() == [1712195495505583000, 500]


@pytest.mark.parametrize(
    "value",
    [
        *[None, True, [1], {}, -1, -0.5, 1 << 80, 1e300, float("nan"), float("inf")],
        *["", "soon", "NaN", "-1", "1e400", "1e99999999", b"null", b'"', b"\xff"],
    ],
)
def test_what_is_no_time_is_marked(value: Any) -> None:
    assert many_to_ns([value, 2]).tolist() == [UNREADABLE_NS, 2000]
    assert many_to_ns([value, 2.5]).tolist() == [UNREADABLE_NS, 2500]


def test_the_nearest_nanosecond_is_taken() -> None:
    assert many_to_ns([0.0006, 0.0004, "0.0006", "1.5e2"]).tolist() == [1, 0, 1, 150_000]
