"""Bytes that wait to be decoded: cut after whole events, whatever the blocks are."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.trace.pending import Pending

args = st.dictionaries(st.text(), st.integers())
event = st.fixed_dictionaries({"ph": st.just("X"), "name": st.text(max_size=20), "args": args})
events = st.lists(event, min_size=1, max_size=30)


def fed(text: bytes, size_bytes: int) -> tuple[list[Any], bytes]:
    """Feed blocks of one size; give what the pieces hold and what is left."""
    pending = Pending()
    found: list[Any] = []
    for start in range(0, len(text), size_bytes):
        pending.add(text[start : start + size_bytes])
        array = pending.cut()
        found += json.loads(bytes(array)) if array is not None else []
    return found, pending.take()


@given(events, st.integers(1, 200), st.sampled_from([None, 2]))
def test_no_event_is_lost_doubled_or_torn(content: list[dict[str, Any]], size_bytes: int, indent: int | None) -> None:
    text = json.dumps(content, indent=indent).encode()[1:-1]
    found, rest = fed(text, size_bytes)
    assert found + json.loads(b"[" + rest + b"]") == content


def test_a_boundary_far_back_is_found() -> None:
    text = b'{"ph": 1}, {"ph": "' + b"x" * 300_000
    found, rest = fed(text, len(text))
    assert found == [{"ph": 1}]
    assert len(rest) == len(text) - len('{"ph": 1}, ')


def test_an_event_that_was_not_whole_is_put_before_what_follows() -> None:
    pending = Pending()
    pending.add(b'{"ph": 1}, {"ph": 2')
    assert bytes(pending.cut() or b"") == b'[{"ph": 1}]'
    pending.put_back(b'{"ph": 0}')
    assert len(pending) == len(pending.take()) == len('{"ph": 0}, {"ph": 2')


def test_the_buffer_is_the_same_as_long_as_it_suffices() -> None:
    pending = Pending()
    pending.add(b'{"ph": 1}, ' * 100)
    first = pending.cut()
    assert first is not None
    for _ in range(50):
        pending.add(b'{"ph": 2}, ' * 100)
        piece = pending.cut()
        assert piece is not None
        assert piece.obj is first.obj
