"""Tail: whole lines of a growing log, in bounded memory."""

from __future__ import annotations

import os
from typing import BinaryIO

from .files import open_regular

LINE_LIMIT_BYTES = 16 * 1024
READ_BYTES = 256 * 1024
BACKLOG_BYTES = 4 * 1024 * 1024
KEPT_BYTES = 1024 * 1024
PACE_BYTES = 512 * 1024  # a second; a line costs its reader as much as its bytes and these
LINE_COST_BYTES = 100


class Tail:
    """Follows one log. Only LF ends a line; a carriage return is part of it (progress bars write many)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._offset = 0
        self._head = b""
        self._cut_bytes = 0
        self._num_gone = 0
        self._rests_until_s = 0.0

    def paced(self, now_s: float) -> list[str]:
        """Give lines as `lines` does, but no more of them than a reader of many logs can take, whatever is written."""
        if now_s < self._rests_until_s:
            return []
        before = self._offset
        found = self.lines()
        cost = min(max(0, self._offset - before), READ_BYTES) + LINE_COST_BYTES * len(found)
        self._rests_until_s = now_s + cost / PACE_BYTES
        return found

    def lines(self) -> list[str]:
        """Give the lines that became whole since the last call, at most 256 KiB of them."""
        if self._file is None:
            try:
                self._file = open_regular(self._path)
            except OSError:
                return []
        size = os.fstat(self._file.fileno()).st_size
        if size < self._offset:  # cut short by somebody else: what is there now is new
            self._offset, self._head, self._cut_bytes = 0, b"", 0
        skipped = self._skip(size) or self._gone()
        self._file.seek(self._offset)
        data = self._file.read(READ_BYTES)
        self._offset += len(data)
        *whole, rest = data.split(b"\n")
        found = [skipped] if skipped else []
        for line in whole:
            self._take(line)
            found.append(self._line())
        self._take(rest)
        return found

    def rest(self) -> list[str]:
        """Give all that is still to be read, the last line also without its LF, and close the log."""
        found = self.lines()
        end = os.fstat(self._file.fileno()).st_size if self._file is not None else 0
        while self._offset < end:  # not for ever: a stray process may still write
            found += self.lines()
        if self._head or self._cut_bytes:
            found.append(self._line())
        if self._file is not None:
            self._file.close()
            self._file = None
        return found

    def moved(self, begin: int, to: int) -> None:
        """Follow what now stands at `to` and did at `begin` before; what stood before it is gone."""
        if self._file is None:
            return
        if self._offset < begin:
            self._num_gone += begin - self._offset
            self._offset, self._head, self._cut_bytes = begin, b"", 0
        self._offset += to - begin

    def _gone(self) -> str:
        num_gone, self._num_gone = self._num_gone, 0
        return f"[{num_gone} bytes of this log were not shown, they came too fast]" if num_gone else ""

    def _skip(self, size: int) -> str:
        behind = size - self._offset
        if behind <= BACKLOG_BYTES:
            return ""
        skipped = behind - KEPT_BYTES
        self._offset += skipped
        self._head, self._cut_bytes = b"", 0
        return f"[{skipped} bytes of this log were not shown, they came too fast; the file has them]"

    def _take(self, piece: bytes) -> None:
        room = LINE_LIMIT_BYTES - len(self._head)
        self._head += piece[:room]
        self._cut_bytes += max(0, len(piece) - room)

    def _line(self) -> str:
        text = self._head.decode("utf-8", "replace")
        if self._cut_bytes:
            text += f" [{self._cut_bytes} bytes of this line cut]"
        self._head, self._cut_bytes = b"", 0
        return text
