"""Where a host has what a container saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.load import load
from pytest_aorta.containers.bare import Bare
from pytest_aorta.errors import LeaseLost, TimedOut
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.folder import RunFolder, new_run_id
from pytest_aorta.run.interruption import Interruption
from pytest_aorta.run.record import RecordKeeper
from pytest_aorta.stages.outside import ask_about_files, path_on_the_host

VOLUMES = ["/data/aorta:/mnt", "/scratch/out:/mnt/out", "/etc/hosts"]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/mnt", "/data/aorta"),
        ("/mnt/artifacts/x", "/data/aorta/artifacts/x"),
        ("/mnt/out/x", "/scratch/out/x"),
        ("/mnt2/x", "/mnt2/x"),
        ("/root/.cache/pytest-aorta/1/workload", "/root/.cache/pytest-aorta/1/workload"),
    ],
)
def test_a_path_is_followed_through_the_nearest_mount(tmp_path: Path, inside: str, outside: str) -> None:
    config = {
        "schema_version": 1,
        "gpus_per_node": 1,
        "enforce_thresholds": False,
        "aorta_path": "/data/aorta",
        "container": {"name": "work", "image": "machine:1", "runtime": {"args": {"volumes": VOLUMES}}},
    }

    assert path_on_the_host(load(tmp_path / "c.json", config_text=config, cwd=tmp_path), inside) == outside


def context(tmp_path: Path, host: str, transport: str) -> RunContext:
    """Give a run on a host whose node program, and that in its container, say nothing at all."""
    cluster: dict[str, Any] = {"transport": transport, "node_dict": {host: {"vpc_ip": "127.0.0.1"}}}
    if transport == "ssh":
        cluster |= {"username": "nobody", "password": "none"}
    config = {"schema_version": 1, "gpus_per_node": 1, "enforce_thresholds": False, "cluster": cluster}
    folder = RunFolder.create(tmp_path, new_run_id())
    fleets = [Fleet({host: ScriptedTransport([Reply(do, silent=True, times=0)])}) for do in ("ping", "find")]
    for fleet in fleets:
        fleet.open({host: "/w.node"})
    run = RunContext(
        settings=load(tmp_path / "c.json", config_text=config, cwd=tmp_path),
        folder=folder,
        record=RecordKeeper.begin(folder, suite="single", plan=(), config={}, inputs={}, environment={}),
        fleet=fleets[0],
        engine=Bare(),
        interruption=Interruption(),
    )
    run.enter(fleets[1])
    return run


@pytest.mark.parametrize(
    ("host", "transport", "is_down"), [("no-such-host.invalid", "ssh", True), ("here", "local", False)]
)
def test_a_silent_host_is_given_up_when_it_takes_no_new_connection(
    tmp_path: Path, host: str, transport: str, *, is_down: bool
) -> None:
    run = context(tmp_path, host, transport)

    answers = ask_about_files(run, {host: Ask("find", {"root": "/w"}, timeout_s=0.1)})

    assert isinstance(answers.failed[host], LeaseLost if is_down else TimedOut)
    loss = run.fleet.loss(host)
    assert (loss is not None and loss.is_cut) is is_down
    for fleet in (run.inside, run.fleet):
        fleet.close()
