"""Processes known by pid and start time, so that a pid that was given to somebody else is never signalled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ENDED = "ZX"  # zombie, dead


class LabError(Exception):
    """The lab itself does not work: nothing was learned about what is tested."""


@dataclass(frozen=True)
class Process:
    """One process, whatever becomes of its pid."""

    pid: int
    start: str

    @classmethod
    def of(cls, pid: int) -> Process:
        state = _state_and_start(pid)
        if state is None:
            raise LabError(f"there is no process {pid}")
        return cls(pid, state[1])

    @property
    def running(self) -> bool:
        found = _state_and_start(self.pid)
        return found is not None and found[1] == self.start and found[0] not in ENDED

    def kill(self) -> None:
        """Send SIGKILL, unless it is gone."""
        if self.running:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def wait_gone(self, timeout_s: float = 10) -> None:
        wait_until(lambda: not self.running, f"process {self.pid} to end", timeout_s)


def wait_until(is_true: Callable[[], bool], what: str, timeout_s: float, *, pause_s: float = 0.01) -> None:
    """Ask again and again.

    Raises:
        LabError: It did not become true in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline_s:
            raise LabError(f"waited {timeout_s} s for {what}")
        time.sleep(pause_s)


def _state_and_start(pid: int) -> tuple[str, str] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return fields[0], fields[19]
