"""What is brought back of a phase: logs without secrets, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import ScriptedTransport
from pytest_aorta.run.context import RunContext
from pytest_aorta.stages.phase import bring_logs, scrub_files
from tests.run.test_context import context

PLANTED = "planted-token-1234"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunContext]:
    fleet = Fleet({"a": ScriptedTransport(files={"/w/benchmark.log": f"HF_TOKEN={PLANTED}\nstep 1\n".encode()})})
    run = context(tmp_path, fleet, cluster={"transport": "local", "node_dict": {"a": {"vpc_ip": "127.0.0.1"}}})
    run.folder = replace(run.folder, secrets=(PLANTED,))
    run.connect()
    yield run
    fleet.close()


def kept(folder: Path) -> list[str]:
    return sorted(path.read_text("utf-8") for path in folder.rglob("*") if path.is_file() and "node" in path.name)


def test_a_log_comes_without_secrets(run: RunContext) -> None:
    brought = bring_logs(run, "benchmark", {"a": "/w/benchmark.log"})

    assert brought == {"benchmark_log_node_0": "benchmark-node-0.log"}
    assert kept(run.folder.path) == ["HF_TOKEN=<redacted>\nstep 1\n"]


def test_of_a_log_that_cannot_be_scrubbed_nothing_stays(run: RunContext) -> None:
    (run.folder.path / "..benchmark-node-0.log.raw.part").mkdir()  # no file can be written there

    assert bring_logs(run, "benchmark", {"a": "/w/benchmark.log"}) == {}
    assert kept(run.folder.path) == []


def test_of_several_files_none_stays_that_was_not_scrubbed(tmp_path: Path) -> None:
    paths = [tmp_path / f"node_{number}.jsonl" for number in range(3)]
    for path in paths:
        path.write_text(PLANTED, "utf-8")
    (tmp_path / ".node_1.jsonl.part").mkdir()

    with pytest.raises(OSError, match="node_1"):
        scrub_files(paths, (PLANTED,))
    assert kept(tmp_path) == ["<redacted>"]
