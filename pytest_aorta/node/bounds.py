"""Bound: a log that a program writes for ever keeps its beginning and its end."""

from __future__ import annotations

import os
import stat

from .logs import Tail

LIMIT_BYTES = 64 * 1024 * 1024
HEAD_BYTES = 16 * 1024 * 1024
END_BYTES = 16 * 1024 * 1024


class Bound:
    """Takes the middle out of one log, which is written by appending; `tail` is who follows it."""

    def __init__(self, path: str, tail: Tail | None, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path = path
        self._tail = tail
        self._limit_bytes = limit_bytes
        self._head_bytes = min(HEAD_BYTES, limit_bytes // 4)
        self._end_bytes = min(END_BYTES, limit_bytes // 4)
        self._cut_at = -1
        self._note = b""
        self._num_cut = 0

    def hold(self) -> None:
        """Shorten the log if it is too long by now."""
        try:
            if os.lstat(self._path).st_size <= self._limit_bytes:
                return
            descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._shorten(descriptor)
        except OSError:
            return  # a file system that is gone or broken shows elsewhere
        finally:
            os.close(descriptor)

    def _shorten(self, log: int) -> None:
        """Move the end down to the head, then cut: who appends meanwhile loses nothing but in the cut's own moment."""
        if self._cut_at < 0:
            self._cut_at = os.pread(log, self._head_bytes, 0).rfind(b"\n") + 1 or self._head_bytes
        size = os.fstat(log).st_size
        begin = size - self._end_bytes - 1
        end = os.pread(log, self._end_bytes + 1, begin)
        first = end.find(b"\n") + 1
        begin, end = begin + first, end[first:]
        self._num_cut += begin - self._cut_at - len(self._note)
        self._note = f"[{self._num_cut} bytes were left out here: this log grew too long]\n".encode()
        at = _write(log, self._note + end, self._cut_at)
        most = self._limit_bytes * 3 // 4
        while at < most and (more := os.pread(log, most - at, size)):
            at = _write(log, more, at)
            size += len(more)
        self._num_cut += os.fstat(log).st_size - size  # the next note says so
        os.ftruncate(log, at)
        if self._tail is not None:
            self._tail.moved(begin, self._cut_at + len(self._note))


def _write(log: int, data: bytes, at: int) -> int:
    """Write over what stands at an offset, and give the offset behind."""
    rest = memoryview(data)
    while rest:
        num_written = os.pwrite(log, rest, at)
        rest, at = rest[num_written:], at + num_written
    return at
