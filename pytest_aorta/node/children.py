"""Children: every process that this program starts, reaped in one place, each in a session of its own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from typing import Any, Callable, Mapping

from .processes import TAG, process
from .requests import CommandError, sentence

PR_SET_CHILD_SUBREAPER = 36


class Child:
    """One process we started; it leads its own session and process group."""

    def __init__(self, popen: subprocess.Popen[bytes], on_end: Callable[[], None]) -> None:
        self.popen = popen
        self.pid = popen.pid
        entry = process(popen.pid)  # not reaped yet, so the entry is there even if it ended already
        self.start_ticks = entry.start_ticks if entry else 0
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.seconds = 0.0
        self._started_s = time.monotonic()
        self._on_end = on_end

    @property
    def running(self) -> bool:
        """Tell whether it has not been reaped."""
        return self.popen.returncode is None

    def ended(self, status: int) -> None:
        """Take in the status from waitpid."""
        self.seconds = time.monotonic() - self._started_s
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            self.popen.returncode = -os.WTERMSIG(status)
        else:
            self.exit_code = os.WEXITSTATUS(status)
            self.popen.returncode = self.exit_code
        self._on_end()


class Children:
    """Starts and reaps. As a sub-reaper it also inherits the orphans of what it started, and reaps those too."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._by_pid: dict[int, Child] = {}

    def spawn(
        self,
        argv: list[str],
        *,
        cwd: str | None,
        env: Mapping[str, str | None],
        on_end: Callable[[], None],
        **streams: Any,
    ) -> Child:
        """Start a program; `env` lies over our own environment, null removes a name; `streams` go to Popen.

        Raises:
            CommandError: it cannot be run.
        """
        if not argv or not argv[0]:
            raise CommandError("bad_request", "argv is empty, expected the program and its arguments")
        merged = {**os.environ, **env, TAG: self.token}
        environ = {name: value for name, value in merged.items() if value is not None}
        if cwd is not None and not os.path.isdir(cwd):
            raise CommandError("failed", f"cannot run {argv[0]!r} in {cwd!r}: no such directory")
        try:
            popen = subprocess.Popen(argv, cwd=cwd, env=environ, start_new_session=True, **streams)
        except (OSError, ValueError) as error:
            raise CommandError("failed", f"cannot run {argv[0]!r}: {sentence(error)}") from error
        child = Child(popen, on_end)
        self._by_pid[child.pid] = child
        return child

    def reap(self) -> None:
        """Take in everything that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._by_pid.pop(pid, None)
            if child is not None:
                child.ended(status)


def become_subreaper() -> bool:
    """Have orphans of our children handed to us; False where the kernel or the C library cannot."""
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
