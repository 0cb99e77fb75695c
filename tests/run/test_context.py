"""The context: everything registered is undone, and what could not be is known by host."""

from __future__ import annotations

from pathlib import Path

from pytest_aorta.config.load import load
from pytest_aorta.errors import FleetError, LeaseLost
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.folder import RunFolder, new_run_id
from pytest_aorta.run.hosts import engine_of, fleet_of
from pytest_aorta.run.interruption import Interruption
from pytest_aorta.run.record import HostRecord, RecordKeeper


def fail(*hosts: str) -> None:
    raise FleetError({host: LeaseLost(host, "its node program ended") for host in hosts})


def test_a_host_that_could_not_be_cleaned_is_noted_whoever_undid_it(tmp_path: Path) -> None:
    config = {"schema_version": 1, "gpus_per_node": 1, "enforce_thresholds": False}
    settings = load(tmp_path / "c.json", config_text=config, cwd=tmp_path)
    folder = RunFolder.create(tmp_path, new_run_id())
    keeper = RecordKeeper.begin(folder, suite="single", plan=(), config={}, inputs={}, environment={})
    keeper.hosts({host: HostRecord(work_dir="/w", state_dir="/w.node") for host in ("a", "b")})
    run = RunContext(
        settings=settings,
        folder=folder,
        record=keeper,
        fleet=fleet_of(settings),
        engine=engine_of(settings, print),
        interruption=Interruption(),
    )
    undone: list[str] = []
    run.on_teardown("first", lambda: undone.append("first"))
    run.on_teardown("work folders removed", lambda: fail("b"))
    done, problems = run.close()
    assert (done, undone) == (["first"], ["first"])
    assert problems == ["work folders removed: b: its node program ended"]
    assert keeper.document.uncleaned == ("b",)
