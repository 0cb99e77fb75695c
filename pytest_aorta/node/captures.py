"""Capture: one command run to its end, its output kept, its deadline enforced."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import Callable, Mapping

from .endings import Ending
from .groups import Groups
from .processes import GROUP_TAG
from .requests import Answer

OUTPUT_LIMIT_BYTES = 256 * 1024
PIPE_PATIENCE_S = 0.5
GRACE_S = 2.0

OnReady = Callable[[], None]


class Output:
    """What came through one pipe: beginning and end, the middle cut when there is too much."""

    def __init__(self, limit_bytes: int) -> None:
        self._half = limit_bytes // 2
        self._head = b""
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._total = 0

    def take(self, data: bytes) -> None:
        """Add what was read."""
        self._total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._half:
            self._tail_bytes -= len(self._tail.pop(0))

    def text(self) -> str:
        """Give it as text, saying what is missing."""
        tail = b"".join(self._tail)[-self._half :]
        cut = self._total - len(self._head) - len(tail)
        note = f"\n[... {cut} bytes cut ...]\n".encode() if cut else b""
        return (self._head + note + tail).decode("utf-8", "replace")


class Capture:
    """A running command. The loop calls `step` until it gives the answer."""

    def __init__(
        self, groups: Groups, selector: selectors.BaseSelector, timeout_s: float, limit_bytes: int = OUTPUT_LIMIT_BYTES
    ) -> None:
        self._groups = groups
        self._selector = selector
        self._deadline_s = time.monotonic() + timeout_s
        self._outputs: dict[str, Output] = {name: Output(limit_bytes) for name in ("stdout", "stderr")}
        self._open: dict[int, OnReady] = {}
        self._input = b""
        self._ended_at_s: float | None = None
        self.ending: Ending | None = None

    def start(self, argv: list[str], *, cwd: str | None, env: Mapping[str, str | None], given: str) -> None:
        """Start the command; `given` is its standard input.

        Raises:
            CommandError: it cannot be run.
        """
        self._input = given.encode("utf-8", "surrogateescape")
        self._group = self._groups.adopt(
            lambda name, on_end: self._groups.children.spawn(
                argv,
                cwd=cwd,
                env={**env, GROUP_TAG: name},
                on_end=on_end,
                stdin=subprocess.PIPE if self._input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ),
            self._ended,
        )
        popen = self._group.child.popen
        for name, pipe in (("stdout", popen.stdout), ("stderr", popen.stderr)):
            if pipe is not None:
                self._watch(pipe.fileno(), selectors.EVENT_READ, self._reader(pipe.fileno(), self._outputs[name]))
        if popen.stdin is not None:
            self._watch(popen.stdin.fileno(), selectors.EVENT_WRITE, self._write)

    def step(self) -> Answer | None:
        """Enforce the deadline; give the answer once the command has ended and its output is in."""
        now_s = time.monotonic()
        if self._ended_at_s is None:
            if now_s > self._deadline_s and self.ending is None:
                self.ending = self._groups.ending(self._group.name, GRACE_S)
            return None
        if self._open and now_s < self._ended_at_s + PIPE_PATIENCE_S:
            return None  # something it left behind holds the pipe: not for long
        self._close()
        child = self._group.child
        return {
            "exit_code": child.exit_code,
            "signal": child.signal,
            "stdout": self._outputs["stdout"].text(),
            "stderr": self._outputs["stderr"].text(),
            "timed_out": self.ending is not None,
            "seconds": round(child.seconds, 3),
        }

    def _ended(self) -> None:
        self._ended_at_s = time.monotonic()

    def _watch(self, descriptor: int, mask: int, on_ready: OnReady) -> None:
        self._open[descriptor] = on_ready
        self._selector.register(descriptor, mask, on_ready)

    def _unwatch(self, descriptor: int) -> None:
        if self._open.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)

    def _reader(self, descriptor: int, output: Output) -> OnReady:
        def read() -> None:
            data = os.read(descriptor, 65536)
            if data:
                output.take(data)
            else:
                self._unwatch(descriptor)

        return read

    def _write(self) -> None:
        pipe = self._group.child.popen.stdin
        if pipe is None:
            return
        try:
            written = os.write(pipe.fileno(), self._input[:4096])  # as much as a ready pipe takes without blocking
        except BrokenPipeError:
            self._input = b""
        else:
            self._input = self._input[written:]
        if not self._input:
            self._unwatch(pipe.fileno())
            pipe.close()

    def _close(self) -> None:
        popen = self._group.child.popen
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            if pipe is not None and not pipe.closed:
                self._unwatch(pipe.fileno())
                pipe.close()
