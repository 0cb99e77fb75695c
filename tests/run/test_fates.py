"""What became of a container, by the word of its engine."""

from __future__ import annotations

import pytest

from pytest_aorta.containers.bare import Bare
from pytest_aorta.containers.docker_cli import ProgramName
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply
from pytest_aorta.run.fates import fates_of
from tests.run.boxes import ID, attached, inspected, ran

INSIDE_S = 20.0


def begun(age_s: int) -> Reply:
    """Its first process, named `a) b`, and the uptime of the machine."""
    return ran(f"1 (a) b) S {'0 ' * 18}100 0\n{1 + age_s}.0 5.0\n")


@pytest.mark.parametrize(
    ("replies", "said", "next_step"),
    [
        ([inspected("paused")], "is paused", "let it go on: `docker unpause box` on a; who paused it?"),
        ([inspected("exited", 137)], "is not running (exited, exit code 137)", "who stopped it?"),
        ([ran(stderr="no such container", exit_code=1)], "is gone (no such container)", "who removed it?"),
        ([inspected("running"), begun(10)], "was restarted 10 s ago, while the run lived in it", "who restarted it?"),
        (
            [inspected("running"), ran(stderr=f"OCI runtime: {ID}: no room", exit_code=126)],
            "cannot be entered any more (OCI runtime: 5f0c5f0c5f0c: no room)",
            "who stopped it?",
        ),
        (
            [ran(stderr="Cannot connect to the Docker daemon", exit_code=1)],
            "cannot be entered any more (Cannot connect to the Docker daemon; is the daemon running?",
            "who stopped it?",
        ),
        ([], "cannot be entered any more (the script has no reply", "who stopped it?"),
        ([inspected("running")], "cannot be entered any more (the script has no reply", "who stopped it?"),
    ],
)
def test_what_became_of_it_is_said_with_the_next_step(replies: list[Reply], said: str, next_step: str) -> None:
    engine, fleet = attached("a", *replies)
    fate = fates_of(engine, fleet, "box", ["a"], INSIDE_S)["a"]
    assert fate.said.startswith(f"a: its container box {said}")
    assert fate.next_step.startswith(next_step)
    assert fate.is_still == (said == "is paused")
    fleet.close()


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_one_that_runs_on_has_none(program: ProgramName) -> None:
    engine, fleet = attached("a", inspected("running"), begun(int(INSIDE_S) + 1), inspected("paused"), program=program)
    assert fates_of(engine, fleet, "box", ["a"], INSIDE_S) == {}
    step = fates_of(engine, fleet, "box", ["a"], INSIDE_S)["a"].next_step
    assert step.startswith(f"let it go on: `{program} unpause box`")
    fleet.close()


def test_without_containers_there_is_none() -> None:
    assert fates_of(Bare(), Fleet({}), "box", ["a"], INSIDE_S) == {}
