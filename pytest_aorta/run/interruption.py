"""Interruption: signals that end a run, raised once and never in the middle of cleaning up."""

from __future__ import annotations

import math
import signal
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

    def install(self) -> None:
        """Take the signals; does nothing outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Give the signals back."""
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
        if self._count >= GIVE_UP_AFTER and not self._closed:
            self.restore()
            raise KeyboardInterrupt
        if self._held or not first:
            sys.stderr.write("\n[aorta] cleaning up, please wait; a third signal gives up\n")
            return
        raise Interrupted(self.received)
