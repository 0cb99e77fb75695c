"""Framing: whatever is encoded comes out again, whatever else arrives is counted."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_aorta.node.protocol import LINE_LIMIT_BYTES, Assembler, encode

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5)
)
messages = st.fixed_dictionaries(
    {"id": st.integers(min_value=0)}, optional={"ok": values, "text": st.text(max_size=3000)}
)


def cut(data: bytes, seed: int) -> list[bytes]:
    """Cut bytes into pieces at random places, as pipes do."""
    places = random.Random(seed)  # noqa: S311  # no secret
    pieces = []
    while data:
        size = places.randint(1, 700)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def fed(assembler: Assembler, pieces: list[bytes]) -> list[dict[str, Any]]:
    return [message for piece in pieces for message in assembler.feed(piece)]


@settings(deadline=None)
@given(st.lists(messages, max_size=5), st.integers())
def test_messages_survive_any_cutting(sent: list[dict[str, Any]], seed: int) -> None:
    data = b"".join(encode(message, number) for number, message in enumerate(sent))
    assembler = Assembler()
    assert fed(assembler, cut(data, seed)) == sent
    assert assembler.counts.garbage == 0


@settings(deadline=None)
@given(st.binary(max_size=5000), st.integers())
def test_arbitrary_bytes_never_raise(noise: bytes, seed: int) -> None:
    assembler = Assembler(keep_garbage=3)
    fed(assembler, cut(noise, seed))
    assert assembler.feed(b'\n{"id":1}\n')[-1:] == [{"id": 1}]


@settings(deadline=None)
@given(st.lists(st.sampled_from(encode({"text": "x" * 2500}, 7).splitlines(keepends=True)), max_size=12), st.randoms())
def test_parts_in_any_order_missing_or_twice(lines: list[bytes], order: random.Random) -> None:
    whole = encode({"text": "y" * 2500}, 8).splitlines(keepends=True)
    order.shuffle(whole)
    assembler = Assembler()
    received = fed(assembler, [*lines, *whole])
    assert {"text": "y" * 2500} in received
    assert all(message["text"] in {"x" * 2500, "y" * 2500} for message in received)


@settings(deadline=None)
@given(messages)
def test_lines_are_short_enough_for_labelled_output(message: dict[str, Any]) -> None:
    assert all(len(line) < LINE_LIMIT_BYTES for line in encode(message, 10**9).split(b"\n"))


def test_a_path_that_is_no_text_survives() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert Assembler().feed(encode({"path": name}, 1)) == [{"path": name}]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_json_is_not_sent(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"value": value}, 1)


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome to node1!",
        b'{"id": 1',
        b'{"id": NaN}',
        b"[1, 2]",
        b'"text"',
        b'{"of":1,"part":0,"parts":2}',
        b'{"of":1,"part":2,"parts":2,"data":"eA=="}',
        b'{"of":1,"part":-1,"parts":2,"data":"eA=="}',
        b'{"of":1,"part":true,"parts":2,"data":"eA=="}',
        b'{"of":1,"part":0,"parts":2,"data":"%%"}',
        b'{"of":1,"part":0,"parts":99999999999,"data":"eA=="}',
        b'{"of":1,"part":0,"parts":1,"data":"eA=="}',
        b'{"x":' + b"[" * 400 + b"]" * 399 + b"}",
        b"\xff\xfe\x00",
    ],
)
def test_garbage_is_counted(line: bytes) -> None:
    assembler = Assembler()
    assert assembler.feed(line + b"\n") == []
    assert assembler.counts.garbage == 1


def test_deep_nesting_in_a_long_message_is_garbage() -> None:
    text = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    lines = encode({"text": text.decode()}, 1)
    inner = Assembler().feed(lines)
    assert inner == [{"text": text.decode()}]
    assembler = Assembler()
    assert assembler.feed(_as_parts(text)) == []
    assert assembler.counts.garbage == 1


def test_a_line_that_is_too_long_is_dropped_and_the_next_one_read() -> None:
    assembler = Assembler()
    assert assembler.feed(b"{" + b"x" * 500) == []
    assert assembler.feed(b"x" * 100_000) == []
    assert assembler.feed(b'x\n{"id":2}\n') == [{"id": 2}]
    assert assembler.counts.too_long == 1


def test_unfinished_messages_are_given_up_one_after_the_other() -> None:
    assembler = Assembler()
    for number in range(1000):
        assembler.feed(encode({"text": "x" * 2000}, number).splitlines(keepends=True)[0])
    assert assembler.counts.incomplete > 900
    assert assembler.feed(encode({"text": "x" * 2000}, 5000)) == [{"text": "x" * 2000}]


def test_a_part_that_comes_twice_is_counted() -> None:
    first, *others = encode({"text": "x" * 2000}, 1).splitlines(keepends=True)
    assembler = Assembler()
    assert fed(assembler, [first, first, *others]) == [{"text": "x" * 2000}]
    assert assembler.counts.repeated == 1


def _as_parts(text: bytes) -> bytes:
    """Give parts whose whole is the text itself."""
    filler = json.dumps({"text": "x" * (len(text) - len('{"text":""}'))}, separators=(",", ":")).encode()
    assert len(filler) == len(text)
    lines = encode(json.loads(filler), 1).splitlines()
    return b"".join(_with_data(line, text[index * 576 : (index + 1) * 576]) for index, line in enumerate(lines))


def _with_data(line: bytes, piece: bytes) -> bytes:
    part = json.loads(line)
    part["data"] = base64.b64encode(piece).decode()
    return json.dumps(part).encode() + b"\n"
