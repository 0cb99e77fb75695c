"""The lines that a controller and a node program exchange: one JSON object a line, long ones in numbered parts.

A line has at most 900 bytes, because `srun --label` cuts at 1,024 and puts a label before each. What is not a line of
this protocol (a login banner, a cut line, a part that comes twice) is counted and dropped, never an error.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any, Dict, Mapping

VERSION = 1
LINE_LIMIT_BYTES = 900
MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 576  # as base64 768 characters, which leaves room for the numbers of the part
PENDING_LIMIT = 64

Message = Dict[str, Any]


def hello(side: str, **facts: Any) -> Message:
    """Give the first line that each side says; `side` is `node` or `controller`."""
    return {"hello": "aorta-" + side, "version": VERSION, **facts}


def encode(message: Mapping[str, Any], number: int) -> bytes:
    """Give the message as one or more lines; `number` tells the parts of one message from those of another.

    Raises:
        ValueError: the message holds NaN or infinity, or is longer than a message may be.
    """
    text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(text) < LINE_LIMIT_BYTES:
        return text + b"\n"
    if len(text) > MESSAGE_LIMIT_BYTES:
        raise ValueError(f"the message has {len(text)} bytes, at most {MESSAGE_LIMIT_BYTES} can be sent")
    pieces = [text[start : start + PIECE_BYTES] for start in range(0, len(text), PIECE_BYTES)]
    return b"".join(
        b'{"of":%d,"part":%d,"parts":%d,"data":"%s"}\n' % (number, index, len(pieces), base64.b64encode(piece))
        for index, piece in enumerate(pieces)
    )


@dataclasses.dataclass
class Counts:
    """What arrived, and what of it was no use."""

    messages: int = 0
    garbage: int = 0
    too_long: int = 0
    repeated: int = 0
    incomplete: int = 0


class _Parts:
    """The parts of one message that have arrived."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.pieces: dict[int, bytes] = {}
        self.size_bytes = 0


class Assembler:
    """Makes messages from whatever bytes arrive; never raises, never holds more than one message's worth of memory."""

    def __init__(self, keep_garbage: int = 0) -> None:
        self.counts = Counts()
        self.garbage: list[str] = []
        self._keep_garbage = keep_garbage
        self._rest = b""
        self._skipping = False
        self._pending: dict[int, _Parts] = {}
        self._pending_bytes = 0

    def feed(self, data: bytes) -> list[Message]:
        """Take bytes in; give the messages that are complete with them."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        messages = []
        for line in lines:
            if self._skipping:
                self._skipping = False
                continue
            message = self._line(line)
            if message is not None:
                messages.append(message)
        if len(self._rest) >= LINE_LIMIT_BYTES:
            if not self._skipping:
                self.counts.too_long += 1
            self._skipping = True
        if self._skipping:
            self._rest = b""
        return messages

    def _line(self, line: bytes) -> Message | None:
        if len(line) >= LINE_LIMIT_BYTES:
            self.counts.too_long += 1
            return None
        message = _parse(line)
        if message is None:
            self._drop(line)
            return None
        if "part" in message:
            return self._part(message, line)
        self.counts.messages += 1
        return message

    def _drop(self, line: bytes) -> None:
        self.counts.garbage += 1
        if self._keep_garbage and line.strip():
            self.garbage.append(line.decode("utf-8", "replace").strip())
            del self.garbage[: -self._keep_garbage]

    def _part(self, message: Message, line: bytes) -> Message | None:
        number, index, total = (_count(message.get(name)) for name in ("of", "part", "parts"))
        piece = _decode(message.get("data"))
        if piece is None or number < 0 or not 0 <= index < total <= MESSAGE_LIMIT_BYTES // PIECE_BYTES + 1:
            self._drop(line)
            return None
        parts = self._pending.get(number)
        if parts is None or parts.total != total:
            self._forget(number)
            parts = self._pending[number] = _Parts(total)
        if index in parts.pieces:
            self.counts.repeated += 1
            return None
        parts.pieces[index] = piece
        parts.size_bytes += len(piece)
        self._pending_bytes += len(piece)
        if len(parts.pieces) == total:
            return self._whole(number, parts)
        while len(self._pending) > PENDING_LIMIT or self._pending_bytes > MESSAGE_LIMIT_BYTES:
            self._forget(next(iter(self._pending)))
        return None

    def _whole(self, number: int, parts: _Parts) -> Message | None:
        del self._pending[number]
        self._pending_bytes -= parts.size_bytes
        text = b"".join(parts.pieces[index] for index in range(parts.total))
        message = _parse(text)
        if message is None or "part" in message:
            self._drop(text[:LINE_LIMIT_BYTES])
            return None
        self.counts.messages += 1
        return message

    def _forget(self, number: int) -> None:
        parts = self._pending.pop(number, None)
        if parts is not None:
            self._pending_bytes -= parts.size_bytes
            self.counts.incomplete += 1


def _parse(text: bytes) -> Message | None:
    if not text.startswith(b"{"):
        return None
    try:
        message = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _count(value: object) -> int:
    """Give the number, or -1 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _decode(data: object) -> bytes | None:
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data.encode("ascii"), validate=True)
    except ValueError:  # also what is no base64 and what is no ASCII
        return None
