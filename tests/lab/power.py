"""The power supply: this process's end of the line to the lab's keeper, which boots hosts and switches them off."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from pathlib import Path

from .plan import Plan
from .processes import LabError, Process

REPOSITORY = Path(__file__).parents[2]
ANSWER_DEADLINE_S = 30
# unshare becomes the keeper, with the same pid. -S: it needs no installed package, and starts the sooner.
KEEPER = ("unshare", "--net", "--", sys.executable, "-E", "-S", "-m", "tests.lab.keeper")


class Power:
    """The keeper's starter. When this process ends, in whatever way, the keeper clears the lab."""

    def __init__(self, plan: Plan, lock: int) -> None:
        self._log = plan.folder / "keeper.log"
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [*KEEPER, plan.to_json(), str(os.getpid()), str(lock)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=REPOSITORY,
                start_new_session=True,
                pass_fds=[lock],
            )
        if self._keeper.stdin is None or self._keeper.stdout is None:
            raise LabError("the keeper of the lab has no pipes")
        self._requests = self._keeper.stdin
        self._answers = self._keeper.stdout
        self._unread = b""

    @property
    def keeper(self) -> Process:
        return Process.of(self._keeper.pid)

    @property
    def is_on(self) -> bool:
        return self._keeper.poll() is None

    def wait_ready(self) -> None:
        """Wait for the switch."""
        if (answer := self._read()) != "ready":
            raise LabError(f"the keeper of the lab said {answer!r} instead of ready")

    def boot(self, name: str) -> Process:
        """Start a host afresh; returns its first process."""
        _, pid, start = self._ask(f"boot {name}")
        return Process(int(pid), start)

    def off(self, name: str) -> None:
        self._ask(f"off {name}")

    def at_switch(self, *argv: str) -> str:
        """Output of a command in the network namespace of the bridge, whose ports have the hosts' names."""
        enter = ["nsenter", f"--net=/proc/{self._keeper.pid}/ns/net", "--"]
        done = subprocess.run([*enter, *argv], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"at the switch: {argv}: {done.stderr.strip()}")
        return done.stdout

    def close(self) -> None:
        """End the lab, and wait until nothing is left of it."""
        with contextlib.suppress(BrokenPipeError, ValueError):  # it has ended, or was told so before
            os.write(self._requests.fileno(), b"end\n")
        self._requests.close()
        self._keeper.wait(ANSWER_DEADLINE_S)
        self._answers.close()

    def _ask(self, line: str) -> list[str]:
        os.write(self._requests.fileno(), f"{line}\n".encode())
        answer = self._read()
        if not answer.startswith("ok"):
            raise LabError(f"{line}: {answer}")
        return answer.split()

    def _read(self) -> str:
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._answers], [], [], ANSWER_DEADLINE_S)
            received = os.read(self._answers.fileno(), 4096) if readable else b""
            if not received:
                raise LabError(f"the keeper of the lab does not answer: {self._log.read_text('utf-8').strip()}")
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()
