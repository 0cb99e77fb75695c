"""Transport: how a node program is started on a machine and how files get there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class LeftBehind(OSError):
    """A node program could not be started, and it is not certain that its state folder was taken away again."""


class Pipes(Protocol):
    """The two ends of a running node program."""

    def write(self, data: bytes) -> None:
        """Send bytes; may block. Raises OSError when nobody reads any more."""

    def read(self) -> bytes:
        """Wait for bytes; empty at the end. Raises OSError when the connection broke."""

    def end_input(self) -> None:
        """Close what the program reads, upon which it ends everything and leaves."""

    def wait(self, timeout_s: float) -> bool:
        """Wait until the program has ended; tell whether it has."""

    def kill(self) -> None:
        """End the program at once, and whatever it has left running; harmless when it has ended."""

    def close(self) -> None:
        """Let go of what the connection holds; called once, when nobody reads or writes any more."""

    def last_words(self) -> str:
        """Give the end of what the program or its launcher wrote to standard error."""


class Transport(Protocol):
    """Reaches one machine. Paths on it are absolute or begin with `~`."""

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        """Start the node program; raises OSError with a sentence when it cannot be started."""

    def put(self, local: Path, remote: str) -> None:
        """Copy a file there, whole or not at all; raises OSError."""

    def get(self, remote: str, local: Path) -> None:
        """Copy a file here, whole or not at all; raises OSError."""
