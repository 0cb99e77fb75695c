"""Pending: the bytes of a trace that were read and not yet decoded, in one buffer that is used again and again.

A fresh megabyte for each block would cost as much as decoding it: the system hands out zeroed pages one by one.
"""

from __future__ import annotations

import re
from collections import deque

_BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid|tid|args|id|s|bp|dur)")')
_WINDOW_BYTES = 4 << 10  # the first; each further one is twice as large
_OVERLAP_BYTES = 4 << 10  # windows overlap by this, so that a boundary across two is seen
_FIRST = 1  # before it stands the bracket that makes an array of a piece
_SPARE_BYTES = 4 << 10


class Pending:
    """Bytes in the order of the file, given away in pieces that end with an event."""

    def __init__(self) -> None:
        self._buffer = bytearray(b"[")
        self._start = _FIRST
        self._end = _FIRST
        self._separator = b""

    def __len__(self) -> int:
        return self._end - self._start

    def add(self, block: bytes) -> None:
        """Put a block behind what is there; pieces given before are gone."""
        num_bytes = len(self)
        if num_bytes + len(block) + _FIRST + _SPARE_BYTES > len(self._buffer):
            larger = bytearray(_FIRST + 2 * (num_bytes + len(block)) + _SPARE_BYTES)
            larger[: _FIRST + num_bytes] = b"[" + self._buffer[self._start : self._end]
            self._buffer = larger
        elif self._start != _FIRST:
            self._buffer[_FIRST : _FIRST + num_bytes] = self._buffer[self._start : self._end]
        self._start, self._end = _FIRST, _FIRST + num_bytes + len(block)
        self._buffer[_FIRST + num_bytes : self._end] = block

    def cut(self) -> memoryview | None:
        """Give everything up to the last event that seems whole as a JSON array; None when there is no such event.

        The array is valid until the next bytes are added.
        """
        found = self._last_boundary()
        if found is None:
            return None
        end, self._start = found
        self._separator = bytes(self._buffer[end : self._start])
        self._buffer[_FIRST - 1], self._buffer[end] = b"[]"
        return memoryview(self._buffer)[_FIRST - 1 : end + 1]

    def take(self) -> bytes:
        """Give all that is left."""
        rest = bytes(self._buffer[self._start : self._end])
        self._start = self._end = _FIRST
        self._separator = b""
        return rest

    def take_after(self, rest: bytes) -> bytes:
        """Give the end of the piece that was cut last, and all that is left, as they stood in the file."""
        return rest + self._separator + self.take()

    def put_back(self, rest: bytes) -> None:
        """Put an event that is not whole yet, the end of the piece that was cut last, before what is left."""
        self.add(self.take_after(rest))

    def _last_boundary(self) -> tuple[int, int] | None:
        """Give where the last event that seems whole ends, and where the next begins."""
        start, num_bytes = self._end, _WINDOW_BYTES
        while start > self._start:
            end, start = min(start + _OVERLAP_BYTES, self._end), max(self._start, start - num_bytes)
            num_bytes *= 2
            found = deque(_BOUNDARY.finditer(self._buffer, start, end), maxlen=1)
            if found:
                return found[0].start() + 1, found[0].end()
        return None
