"""One node program on this machine, and waiting for what it says."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet.ask import Answer, Ask, Event
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport

PATIENCE_S = 60.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet of this machine alone, called `here`."""
    fleet = Fleet({"here": LocalTransport()})
    fleet.open({"here": str(tmp_path / "state")})
    yield fleet
    fleet.close()


@pytest.fixture
def ask(fleet: Fleet) -> Callable[..., Answer]:
    """Ask the node program and require an answer."""

    def perform(do: str, /, **args: Any) -> Answer:
        return fleet.perform(Ask(do, args)).or_raise()["here"]

    return perform


@pytest.fixture
def start(fleet: Fleet, tmp_path: Path) -> Callable[..., int]:
    """Start a group that runs a shell script; gives its pid."""

    def start_group(name: str, script: str, *, follow: bool = True, **env: str | None) -> int:
        argv = ["sh", "-c", script]
        args = {"name": name, "argv": argv, "cwd": str(tmp_path), "env": env, "log": str(tmp_path / f"{name}.log")}
        return int(fleet.perform(Ask("start", {**args, "follow": follow})).or_raise()["here"]["pid"])

    return start_group


@pytest.fixture
def until(fleet: Fleet) -> Callable[[Callable[[Event], bool]], list[Event]]:
    """Collect events up to the first one that fits."""

    def collect(fits: Callable[[Event], bool]) -> list[Event]:
        found: list[Event] = []
        deadline = time.monotonic() + PATIENCE_S
        while not any(fits(event) for event in found):
            assert time.monotonic() < deadline, f"the awaited event did not come; these came: {found}"
            found += fleet.events(1.0)
        return found

    return collect


@pytest.fixture
def said(until: Callable[[Callable[[Event], bool]], list[Event]]) -> Callable[[str], str]:
    """Wait for a log line that begins with a word; gives the rest of it."""

    def wait_for(word: str) -> str:
        def fits(event: Event) -> bool:
            return event.kind == "lines" and any(line.startswith(word) for line in event.data["lines"])

        lines = [line for event in until(fits) if event.kind == "lines" for line in event.data["lines"]]
        return str(next(line for line in lines if line.startswith(word))).removeprefix(word).strip()

    return wait_for


@pytest.fixture
def gone() -> Callable[[int], None]:
    """Wait until a process has ended."""

    def wait_for(pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            ended, _, _ = select.select([descriptor], [], [], PATIENCE_S)
            assert ended, f"process {pid} still runs"
        finally:
            os.close(descriptor)

    return wait_for
