"""Proxy: the program that an ssh configuration names as the way to a host, run as ssh runs it.

paramiko's own takes the end of what such a program says for silence, and turns in circles until its time is over.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from typing import BinaryIO

SETTLING_S = 0.5
END_TIMEOUT_S = 2.0
_KEPT_BYTES = 4000
_WORDS_LIMIT = 300


class ProxyEnded(OSError):
    """The program ended before there was a connection; the message says how."""


class Proxy:
    """One ProxyCommand, in a session of its own: neither Ctrl-C nor a question gets to it."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: BinaryIO | None = None
        self._ours: socket.socket | None = None

    def start(self) -> socket.socket:
        """Start it; give what it reads and writes, to be closed by the caller."""
        ours, theirs = socket.socketpair()
        self._ours = ours
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        with theirs:
            self._process = subprocess.Popen(
                [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {self._command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )
        return ours.dup()  # while we hold the other one, the program does not end because the caller closed his

    @property
    def name(self) -> str:
        """Name it by its program: what else the command holds may be secret."""
        program = (self._command.split() or ["nothing"])[0]
        return f"the ProxyCommand of the ssh configuration ({program} ...)"

    def why_ended(self, heard: bytes) -> str:
        """Say how it ended; empty while it runs. `heard` is what it gave for a greeting, as far as that was read."""
        if self._process is None or self._errors is None or self._ours is None:
            return ""
        try:
            status = self._process.wait(SETTLING_S)
        except subprocess.TimeoutExpired:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _KEPT_BYTES))
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "") or self._printed(heard)
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"{how}, {f'and said {words[-_WORDS_LIMIT:]!r}' if words else 'and said nothing'}"

    def _printed(self, heard: bytes) -> str:
        with contextlib.suppress(OSError):
            heard += self._ours.recv(_WORDS_LIMIT, socket.MSG_DONTWAIT) if self._ours is not None else b""
        return heard.decode("utf-8", "replace").strip()

    def end(self) -> None:
        """End it; harmless when it has ended, or never began."""
        if self._ours is not None:
            self._ours.close()
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGHUP)  # as ssh does
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if self._errors is not None:
            self._errors.close()
