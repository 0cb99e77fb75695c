"""The context: everything registered is undone, and what could not be is known by host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_aorta.config.load import load
from pytest_aorta.errors import ContainerError, FleetError, LeaseLost
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.folder import RunFolder, new_run_id
from pytest_aorta.run.hosts import engine_of
from pytest_aorta.run.interruption import Interruption
from pytest_aorta.run.record import HostRecord, RecordKeeper
from pytest_aorta.run.state_dirs import STATE_SUFFIX
from tests.run.boxes import attached, inspected


def fail(*hosts: str) -> None:
    raise FleetError({host: LeaseLost(host, "its node program ended") for host in hosts})


def refuse(causes: dict[str, str]) -> None:
    raise ContainerError("could not remove the container: " + "; ".join(causes), by_host=causes)


def context(tmp_path: Path, fleet: Fleet, **fields: Any) -> RunContext:
    config = {"schema_version": 1, "gpus_per_node": 1, "enforce_thresholds": False, **fields}
    settings = load(tmp_path / "c.json", config_text=config, cwd=tmp_path)
    folder = RunFolder.create(tmp_path, new_run_id())
    keeper = RecordKeeper.begin(folder, suite="single", plan=(), config={}, inputs={}, environment={})
    keeper.hosts({host: HostRecord(work_dir="/w", state_dir="/w.node") for host in ("a", "b")})
    return RunContext(
        settings=settings,
        folder=folder,
        record=keeper,
        fleet=fleet,
        engine=engine_of(settings, print),
        interruption=Interruption(),
    )


def test_a_host_that_could_not_be_cleaned_is_noted_whoever_undid_it(tmp_path: Path) -> None:
    run = context(tmp_path, Fleet({}))
    undone: list[str] = []
    run.on_teardown("first", lambda: undone.append("first"))
    run.on_teardown("work folders removed", lambda: fail("b"))
    done, problems = run.close()
    assert (done, undone) == (["first"], ["first"])
    assert [(each.said, each.host) for each in problems] == [("work folders removed: b: its node program ended", "b")]
    assert run.record.document.uncleaned == ("b",)


def test_the_folder_of_a_look_at_a_host_is_one_that_a_sweep_finds(tmp_path: Path) -> None:
    run = context(tmp_path, Fleet({}))
    assert run.look_dir("a").endswith(STATE_SUFFIX)
    assert run.look_dir("a") != run.state_dir("a")


def test_a_host_whose_container_stays_is_noted(tmp_path: Path) -> None:
    run = context(tmp_path, Fleet({}))
    run.on_teardown("docker: containers removed", lambda: refuse({"a": "no daemon"}))

    _, [problem] = run.close()
    assert (problem.said, problem.host) == ("docker: containers removed: could not remove the container: a", "a")
    assert run.record.document.uncleaned == ("a",)


def test_a_lost_host_is_told_once_whatever_could_not_be_undone_there(tmp_path: Path) -> None:
    fleet = Fleet({"a": ScriptedTransport(), "b": ScriptedTransport([Reply("clock", dies=True)])})
    fleet.open({"a": "/w.node", "b": "/w.node"})
    run = context(tmp_path, fleet)
    fleet.perform({"b": Ask("clock")})
    fleet.events(10)
    run.on_teardown("node programs left", fleet.close)
    run.on_teardown("work folders removed", lambda: fail("b"))
    run.on_teardown("docker: containers removed", lambda: refuse({"a": "no daemon", "b": "it is gone"}))

    _, problems = run.close()

    told, other = problems
    assert told.said.startswith("b could not be asked to clean up (the node program ended); ")
    assert (told.host, other.host) == ("b", "a")
    assert other.said == "docker: containers removed: a: no daemon"
    assert run.record.document.uncleaned == ("a", "b")


def test_a_paused_container_that_stays_is_named_and_its_host_noted(tmp_path: Path) -> None:
    box = {"name": "box", "image": "i", "lifetime": "no_launch", "runtime": {"name": "docker"}}
    run = context(tmp_path, Fleet({}), container=box)
    here = run.head.name
    run.record.hosts({here: HostRecord(work_dir="/w", state_dir="/w.node")})
    run.engine, run.fleet = attached(here, inspected("paused"))
    inside = Fleet({here: ScriptedTransport([Reply("clock", dies=True)])})
    inside.open({here: "/w.node"})
    run.enter(inside)
    inside.perform({here: Ask("clock")})
    inside.events(10)
    run.on_teardown("work folders removed", print)
    run.on_teardown("node programs in the containers ended", inside.close, is_inside=True)

    done, [problem] = run.close()

    assert problem.said.startswith(f"{here}: its container box is paused, so what runs in it could not be ended; ")
    assert problem.host == here
    assert done == [f"node programs in the containers ended (not on {here})", "work folders removed"]
    assert run.record.document.uncleaned == (here,)
