"""Wire: the two pipes to the controller, read and written only when ready, so that the other side cannot block us."""

from __future__ import annotations

import os
import selectors
from collections import deque
from typing import Any, Callable, Mapping

from .protocol import Assembler, Message, encode

WRITE_BYTES = 4096  # a pipe that is ready takes as much without blocking (PIPE_BUF)
READ_BYTES = 65536
CROWDED_BYTES = 4 * 1024 * 1024
BUSY_BYTES = 256 * 1024


class Wire:
    """Messages in and out."""

    def __init__(self, selector: selectors.BaseSelector, in_fd: int, out_fd: int) -> None:
        self.assembler = Assembler()
        self.closed = False
        self.heard = 0
        self._selector = selector
        self._in_fd = in_fd
        self._out_fd = out_fd
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._broken = False
        self._number = 0
        self._inbox: list[Message] = []
        self._watched: dict[int, Callable[[], None]] = {}
        self._watch(in_fd, selectors.EVENT_READ, self._read)

    @property
    def crowded(self) -> bool:
        """Tell whether the controller reads too slowly; requests then wait."""
        return self._out_bytes > CROWDED_BYTES

    @property
    def busy(self) -> bool:
        """Tell whether enough is on its way; what programs print then waits, so that answers do not wait behind it."""
        return self._out_bytes > BUSY_BYTES

    @property
    def drained(self) -> bool:
        """Tell whether everything was sent, or cannot be sent any more."""
        return self._broken or not self._out

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message."""
        if self._broken:
            return
        self._number += 1
        data = encode(message, self._number)
        self._out.extend(data[start : start + WRITE_BYTES] for start in range(0, len(data), WRITE_BYTES))
        self._out_bytes += len(data)
        self._watch(self._out_fd, selectors.EVENT_WRITE, self._write)

    def received(self) -> list[Message]:
        """Give what came since the last call."""
        messages, self._inbox = self._inbox, []
        return messages

    def pace(self) -> None:
        """Stop reading while the controller does not read, go on when it does."""
        if self.closed:
            return
        if self.crowded:
            self._unwatch(self._in_fd)
        else:
            self._watch(self._in_fd, selectors.EVENT_READ, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._in_fd, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            self._unwatch(self._in_fd)
            return
        self.heard += data.count(b"\n")
        self._inbox += self.assembler.feed(data)

    def _write(self) -> None:
        try:
            written = os.write(self._out_fd, self._out[0])
        except OSError:  # nobody reads any more
            self._broken = True
            self._out.clear()
            self._out_bytes = 0
            self._unwatch(self._out_fd)
            return
        self._out_bytes -= written
        rest = self._out.popleft()[written:]
        if rest:
            self._out.appendleft(rest)
        if not self._out:
            self._unwatch(self._out_fd)

    def _watch(self, descriptor: int, mask: int, on_ready: Callable[[], None]) -> None:
        if descriptor not in self._watched:
            self._watched[descriptor] = on_ready
            self._selector.register(descriptor, mask, on_ready)

    def _unwatch(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)
