"""Interruption: signals that end a run, raised once and never in the middle of cleaning up."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GIVE_UP_AFTER = 3
# Some senders repeat a signal within moments; only one that comes later is somebody who insists.
APART_SECONDS = 1.0
# Who presses Ctrl-C twice does not mean what comes after the run: pytest has its last lines still to print.
AFTERWARDS_SECONDS = 5.0
STANDARD_STREAMS = (0, 1, 2)
NUM_FILES = 256


class Interrupted(KeyboardInterrupt):
    """Somebody asked the run to end; `name` is the signal's."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"interrupted by {name}")


class Interruption:
    """Turns the first ending signal into `Interrupted`; later ones wait for the cleaning up.

    The third signal gives up: the default handlers come back and KeyboardInterrupt is raised. Nothing is left behind
    even then, since the node program ends everything when its channel closes.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._count = 0
        self._held = 0
        self._closed = False
        self._last_at = -math.inf
        self._before: dict[signal.Signals, Any] = {}
        self._terminals: frozenset[int] = frozenset()

    def install(self) -> None:
        """Take the signals; does nothing outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._terminals = frozenset(os.fstat(each).st_rdev for each in STANDARD_STREAMS if os.isatty(each))
            for number in ENDING:
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Give the signals back; after an interruption only when repeated ones have had time to come."""
        if self.received is None:
            self._give_back()
            return
        until = time.monotonic() + AFTERWARDS_SECONDS

        def pass_over(number: int, frame: FrameType | None) -> None:
            if time.monotonic() >= until:
                self._give_back()
                signal.raise_signal(number)

        for number in self._before:
            signal.signal(number, pass_over)
        atexit.register(_ignore_signals)

    def _give_back(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold a signal back until the block ends: cleaning up and writing the record are done whole."""
        before = self.received
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._held == 0 and self.received is not None and before is None:
            raise Interrupted(self.received)

    @contextmanager
    def let_in(self) -> Iterator[None]:
        """Within a block that holds signals back, let them through; one that came before is raised at once."""
        held, self._held = self._held, 0
        try:
            if held and self.received is not None:
                raise Interrupted(self.received)
            yield
        finally:
            self._held = held

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Hold a signal back, also beyond the block's end: whoever asks for `received` acts on it."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def hold_for_good(self) -> None:
        """Hold every further signal back: the run is closed, and only its reports are still to be written."""
        self._held += 1
        self._closed = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        is_insisted = now - self._last_at > APART_SECONDS
        self._last_at = now
        self._count += is_insisted
        first = self.received is None
        self.received = self.received or signal.Signals(number).name
        if number == signal.SIGHUP:
            _leave_terminals(self._terminals)
        if self._count >= GIVE_UP_AFTER and not self._closed:
            self._give_back()
            raise KeyboardInterrupt
        if self._held or not first:
            sys.stderr.write("\n[aorta] cleaning up, please wait; a third signal gives up\n")
            return
        raise Interrupted(self.received)


def _ignore_signals() -> None:
    """Ignore them: while the interpreter ends no handler in Python runs, and the exit code would be the signal's."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _leave_terminals(devices: frozenset[int]) -> None:
    """Write to nowhere instead of to terminals that hung up: every line for them would be an error."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(NUM_FILES):  # pytest keeps copies of the standard streams while it captures them
        with contextlib.suppress(OSError):
            status = os.fstat(number)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev in devices:
                os.dup2(nowhere, number, inheritable=number in STANDARD_STREAMS)
    os.close(nowhere)
