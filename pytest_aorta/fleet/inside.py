"""Inside: the node program of a container, started by that of its host and spoken to through it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pytest_aorta.errors import HostError
from pytest_aorta.fleet.ask import Ask, Event
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.program import command
from pytest_aorta.fleet.transport import Pipes

RELAY = "inside"
CALL_TIMEOUT_S = 30.0


class Enters(Protocol):
    """Gives the argument list that runs something inside the container of a host."""

    def __call__(self, host: str, argv: Sequence[str]) -> list[str]:
        """Wrap an argument list."""


class InsideTransport:
    """Reaches the inside of a host's container. Its folders lie at the same paths inside and outside."""

    def __init__(self, fleet: Fleet, host: str, enters: Enters, program: str, python: str = "python3") -> None:
        self._fleet = fleet
        self._host = host
        self._enters = enters
        self._program = program
        self._python = python

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        """Start the program that was put at `program` before."""
        argv = self._enters(self._host, command(self._python, self._program, lease_s, state_dir))
        return InsidePipes(self._fleet, self._host, argv)

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the host."""
        try:
            self._fleet.send(local, {self._host: remote})
        except HostError as error:
            raise OSError(error.reason) from error

    def get(self, remote: str, local: Path) -> None:
        """Copy a file from the host."""
        try:
            self._fleet.fetch(self._host, remote, local)
        except HostError as error:
            raise OSError(error.reason) from error


class InsidePipes:
    """The program inside, as the host's node program relays it."""

    def __init__(self, fleet: Fleet, host: str, argv: Sequence[str]) -> None:
        self._fleet = fleet
        self._host = host
        self._said: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._last_words = ""
        fleet.subscribe(host, RELAY, self._take)
        self._ask("open", argv=list(argv))

    def write(self, data: bytes) -> None:
        """Send all of it."""
        self._ask("tell", data=data.decode("ascii"))

    def read(self) -> bytes:
        """Wait for bytes."""
        event = self._said.get()
        if event.kind == "said":
            return str(event.data["data"]).encode()
        self._said.put(event)  # whoever reads again finds the end again
        if event.kind == "lost":
            raise OSError(f"the node program of the host is gone: {event.data['message']}")
        return b""

    def end_input(self) -> None:
        """Close the program's input."""
        self._ask("tell", end=True)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended."""
        return self._ended.wait(timeout_s)

    def kill(self) -> None:
        """End the program; the container itself is removed by its engine."""
        if not self._ended.is_set():
            self._ask("shut", grace_s=0.0)

    def close(self) -> None:
        """Let go of nothing: the channel is that of the host."""

    def last_words(self) -> str:
        """Give the end of its standard error."""
        return self._last_words

    def _take(self, event: Event) -> None:
        if event.kind != "said":
            self._last_words = str(event.data.get("last_words", ""))
            self._ended.set()
        self._said.put(event)

    def _ask(self, do: str, **args: object) -> None:
        answers = self._fleet.perform({self._host: Ask(do, {"name": RELAY, **args}, CALL_TIMEOUT_S)})
        if self._host not in answers:
            raise OSError(answers.failed[self._host].reason)
