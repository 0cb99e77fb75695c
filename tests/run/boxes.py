"""A container as its client program describes it, for hosts that answer from a list."""

from __future__ import annotations

import json
from typing import Any

from pytest_aorta.containers.docker_cli import DockerCli, ProgramName
from pytest_aorta.containers.spec import RUN_LABEL, STATE_LABEL, Spec
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport

ID = "5f0c" * 16
SPEC = Spec("box", "i", labels={RUN_LABEL: "r", STATE_LABEL: "/w.node"})


def ran(stdout: str = "", stderr: str = "", exit_code: int = 0) -> Reply:
    answer = {"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "timed_out": False}
    return Reply("run", answer)


def inspected(state: str, exit_code: int = 0) -> Reply:
    seen: list[Any] = [ID, "/box", state, "i", "sha256:1", {}, exit_code]
    return ran(json.dumps(seen))


def attached(host: str, *replies: Reply, program: ProgramName = "docker") -> tuple[DockerCli, Fleet]:
    """An engine that has found the container of a host running, where the replies come next; and that host's fleet."""
    found = [ran("28.1"), ran(ID), inspected("running"), inspected("running")]
    fleet = Fleet({host: ScriptedTransport([*found, *replies])})
    fleet.open({host: "/w.node"})
    engine = DockerCli("no_launch", program)
    engine.launch(fleet, {host: SPEC})
    return engine, fleet
