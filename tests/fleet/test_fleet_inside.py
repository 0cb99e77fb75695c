from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_aorta.errors import FleetError, LeaseLost
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.inside import InsideTransport
from pytest_aorta.fleet.local import LocalTransport
from pytest_aorta.fleet.program import program_bytes


@pytest.fixture
def outer(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet({"here": LocalTransport()}, lease_seconds=3)
    fleet.open({"here": str(tmp_path / "outer")})
    (tmp_path / "node.pyz").write_bytes(program_bytes())
    yield fleet
    fleet.close()


def entering(host: str, argv: Sequence[str]) -> list[str]:
    """What `docker exec` does, as far as pipes and environment go."""
    return ["env", f"INSIDE={host}", *argv]


def inside(outer: Fleet, tmp_path: Path, python: str = sys.executable) -> Fleet:
    transport = InsideTransport(outer, "here", entering, str(tmp_path / "node.pyz"), python)
    return Fleet({"here": transport}, lease_seconds=3)


def test_a_program_inside_does_what_one_outside_does(outer: Fleet, tmp_path: Path) -> None:
    fleet = inside(outer, tmp_path)
    fleet.open({"here": str(tmp_path / "inner")})
    ran = fleet.perform(Ask("run", {"argv": ["sh", "-c", "echo $INSIDE"]})).or_raise()["here"]
    log = str(tmp_path / "log")
    script = ["sh", "-c", "seq 20000; exit 7"]
    fleet.perform(Ask("start", {"name": "g", "argv": script, "cwd": str(tmp_path), "log": log, "follow": True}))
    lines: list[str] = []
    code = None
    while code is None:
        for event in fleet.events(10):
            lines += event.data.get("lines", [])
            code = event.data.get("exit_code", code)
    fleet.close()

    assert ran["stdout"] == "here\n"
    assert (code, lines) == (7, [str(number) for number in range(1, 20001)])
    assert outer.perform(Ask("ping")).or_raise()
    assert not (tmp_path / "inner").exists()


def test_it_can_be_opened_again_after_it_left(outer: Fleet, tmp_path: Path) -> None:
    for _ in range(2):
        fleet = inside(outer, tmp_path)
        fleet.open({"here": str(tmp_path / "inner")})
        fleet.perform(Ask("clock")).or_raise()
        fleet.close()


def test_a_program_that_cannot_be_started_says_why(outer: Fleet, tmp_path: Path) -> None:
    fleet = inside(outer, tmp_path, python="/nonexistent/python3")
    with pytest.raises(FleetError, match="No such file"):
        fleet.open({"here": str(tmp_path / "inner")})


def test_what_it_started_ends_when_the_outer_program_is_killed(outer: Fleet, tmp_path: Path) -> None:
    fleet = inside(outer, tmp_path)
    fleet.open({"here": str(tmp_path / "inner")})
    answer = fleet.perform(
        Ask("start", {"name": "g", "argv": ["sleep", "99"], "cwd": "/", "log": str(tmp_path / "log")})
    ).or_raise()["here"]
    pid = int(outer.perform(Ask("run", {"argv": ["sh", "-c", "echo $PPID"]})).or_raise()["here"]["stdout"])

    os.kill(pid, signal.SIGKILL)
    (event,) = fleet.events(10)

    assert event.kind == "lost"
    assert "the node program of the host is gone" in event.data["message"]
    assert isinstance(fleet.perform(Ask("clock")).failed["here"], LeaseLost)
    fleet.close()
    outer.close()
    assert (
        not Path(f"/proc/{answer['pid']}").exists()
        or b"sleep" not in Path(f"/proc/{answer['pid']}/cmdline").read_bytes()
    )
