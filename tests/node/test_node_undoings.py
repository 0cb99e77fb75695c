from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_aorta.errors import CommandFailed
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport
from pytest_aorta.node.files import prepare
from pytest_aorta.node.state import reap

Asking = Callable[..., Answer]


def writing(path: Path, text: str) -> list[str]:
    return ["sh", "-c", 'printf %s "$1" >> "$2"', "sh", text, str(path)]


def test_what_was_not_undone_is_undone_when_the_program_leaves_newest_first(tmp_path: Path) -> None:
    fleet, seen = Fleet({"here": LocalTransport()}), tmp_path / "seen"
    fleet.open({"here": str(tmp_path / "state")})
    for name in ("one", "two", "three"):
        fleet.perform(Ask("undo", {"name": name, "argv": writing(seen, name)})).or_raise()
    assert fleet.perform(Ask("undone", {"name": "two"})).or_raise()["here"] == {"known": True}
    assert fleet.perform(Ask("undone", {"name": "two"})).or_raise()["here"] == {"known": False}

    fleet.close()

    assert seen.read_text() == "threeone"
    assert not (tmp_path / "state").exists()


def test_groups_have_ended_before_anything_is_undone(tmp_path: Path) -> None:
    fleet, seen = Fleet({"here": LocalTransport()}), tmp_path / "seen"
    fleet.open({"here": str(tmp_path / "state")})
    log = str(tmp_path / "log")
    argv = ["sh", "-c", f"trap 'printf group >> {seen}; exit' TERM; echo up; sleep 60 & wait"]
    fleet.perform(Ask("start", {"name": "g", "argv": argv, "cwd": str(tmp_path), "log": log, "follow": True}))
    while not any(event.kind == "lines" for event in fleet.events(10)):
        pass
    fleet.perform(Ask("undo", {"name": "u", "argv": writing(seen, "undo")})).or_raise()

    fleet.close()

    assert seen.read_text() == "groupundo"


def test_what_a_killed_program_could_not_undo_is_undone_by_reaping(tmp_path: Path) -> None:
    fleet, seen, state = Fleet({"here": LocalTransport()}), tmp_path / "seen", tmp_path / "state"
    fleet.open({"here": str(state)})
    try:
        fleet.perform(Ask("undo", {"name": "container", "argv": writing(seen, "gone")})).or_raise()
        fleet.perform(Ask("undo", {"name": "bad", "argv": ["sh", "-c", "echo no daemon >&2; exit 1"]})).or_raise()
        node = json.loads((state / "groups.json").read_text())["node"]["pid"]
        os.kill(node, signal.SIGKILL)
        while any(event.kind != "lost" for event in fleet.events(10)):
            pass

        answer = reap(str(state))
    finally:
        fleet.close()

    assert answer["undone"] == ["container"]
    assert answer["not_undone"] == {"bad": "no daemon"}
    assert seen.read_text() in {"gone", "gonegone"}  # closing the fleet reaps as well


def test_an_undoing_that_fails_while_a_program_reaps_is_told_as_such(tmp_path: Path, ask: Asking) -> None:
    """The loop of that program takes in every child that ends: nobody else may wait for the status of one."""
    dead = Fleet({"dead": LocalTransport()})
    dead.open({"dead": str(tmp_path / "dead")})
    document = json.loads((tmp_path / "dead" / "groups.json").read_text())
    dead.close()
    undo = [
        {"name": "bad", "argv": ["sh", "-c", "echo no daemon >&2; exit 1"], "timeout_s": 30},
        {"name": "good", "argv": ["true"], "timeout_s": 30},
    ]
    for number in range(8):
        state = tmp_path / f"state{number}"
        prepare(str(state))
        (state / "groups.json").write_text(json.dumps({**document, "undo": undo}))

        answer = ask("reap", path=str(state))

        assert (answer["undone"], answer["not_undone"]) == (["good"], {"bad": "no daemon"})
        assert state.exists()


def test_an_undoing_that_fails_or_hangs_keeps_the_record(tmp_path: Path) -> None:
    fleet, state = Fleet({"here": LocalTransport()}), tmp_path / "state"
    fleet.open({"here": str(state)})
    fleet.perform(Ask("undo", {"name": "slow", "argv": ["sleep", "60"], "timeout_s": 0.2})).or_raise()
    fleet.perform(Ask("undo", {"name": "absent", "argv": ["/nonexistent/x"]})).or_raise()

    answer = fleet.perform(Ask("leave", {"forget": True})).or_raise()["here"]
    fleet.close()

    assert answer["left"] == []
    assert answer["not_undone"]["slow"] == "`sleep 60` was not done within 0.2 s"
    assert "No such file" in answer["not_undone"]["absent"]
    assert {entry["name"] for entry in json.loads((state / "groups.json").read_text())["undo"]} == {"slow", "absent"}


def test_a_program_is_alive_until_it_ends(tmp_path: Path, ask: Asking) -> None:
    other = Fleet({"other": LocalTransport()})
    other.open({"other": str(tmp_path / "other")})

    assert ask("alive", path=str(tmp_path / "other")) == {"recorded": True, "alive": True}
    other.close()
    assert ask("alive", path=str(tmp_path / "other")) == {"recorded": False, "alive": False}


def test_an_undoing_without_a_command_is_refused(fleet: Fleet) -> None:
    answers = fleet.perform(Ask("undo", {"name": "x", "argv": []}))
    assert isinstance(answers.failed["here"], CommandFailed)
    assert "argv is empty" in answers.failed["here"].reason


@pytest.mark.parametrize(
    "entry", [{"name": "x", "argv": [], "timeout_s": 1}, {"name": "x"}, {"argv": "rm", "name": ""}]
)
def test_a_damaged_record_runs_nothing(tmp_path: Path, entry: dict[str, object]) -> None:
    state = tmp_path / "state"
    fleet = Fleet({"here": LocalTransport()})
    fleet.open({"here": str(state)})
    document = json.loads((state / "groups.json").read_text())
    fleet.close()
    state.mkdir()
    (state / "groups.json").write_text(json.dumps({**document, "undo": [entry]}))

    with pytest.raises(Exception, match="is no record of a node program"):
        reap(str(state))


def collected(fleet: Fleet, name: str, seconds: float = 10) -> tuple[str, dict[str, object]]:
    """Give what a program said up to its end, and its end."""
    said, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline:
        for event in fleet.events(1):
            if event.data["name"] != name:
                continue
            if event.kind == "exited":
                return said, event.data
            said += event.data["data"]
    raise AssertionError(f"no end; it said {said!r}")


def test_an_open_program_is_spoken_to_through_the_channel(fleet: Fleet, ask: Asking) -> None:
    ask("open", name="cat", argv=["sh", "-c", "cat; echo so long >&2; exit 3"])
    ask("tell", name="cat", data="grüß\n")
    ask("tell", name="cat", data="x" * 200_000 + "\n", end=True)

    said, ending = collected(fleet, "cat")

    assert said == "grüß\n" + "x" * 200_000 + "\n"
    assert (ending["exit_code"], ending["last_words"]) == (3, "so long")


def test_an_open_program_that_does_not_read_holds_up_nothing(fleet: Fleet, ask: Asking) -> None:
    ask("open", name="deaf", argv=["sleep", "60"])
    ask("tell", name="deaf", data="x" * 300_000)

    assert ask("clock")["boot_id"]
    assert ask("shut", name="deaf", grace_s=1.0) == {"left": []}
    assert collected(fleet, "deaf")[1]["signal"] == signal.SIGTERM
    assert "reads no more" in fleet.perform(Ask("tell", {"name": "deaf", "data": "x"})).failed["here"].reason


def test_an_open_program_can_be_a_node_program(fleet: Fleet, ask: Asking, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest_aorta.node", "--state-dir", str(tmp_path / "inner")]
    ask("open", name="inner", argv=argv, cwd=str(Path.cwd()))
    ask("tell", name="inner", data='{"hello":"aorta-controller","version":1}\n{"id":1,"do":"leave"}\n')

    said, ending = collected(fleet, "inner", 20)

    assert json.loads(said.splitlines()[0])["hello"] == "aorta-node"
    assert ending["exit_code"] == 0
