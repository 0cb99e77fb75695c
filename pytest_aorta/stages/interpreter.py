"""The Python that starts torchrun, where the workload lives: it must have torch."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import CommandFailed, FleetError, HostError, Misnamed
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.stages.command import SET_PYTHON, python_command, uses_torchrun

PROBE = (
    "import importlib.metadata as m, importlib.util as u, json, sys;"
    "f = u.find_spec('torch') is not None;"
    "print(json.dumps({'python': sys.version.split()[0], 'torch': m.version('torch') if f else None}))"
)


def require_torch(run: RunContext) -> None:
    """Require torch, and with it torchrun, on every host where we start torchrun; a script brings its own.

    Raises:
        FleetError: a Python does not start or has no torch; the hosts are named.
    """
    if not uses_torchrun(run.settings):
        return
    python, container = python_command(run.settings), run.settings.config.container
    answers = run.inside.perform(Ask("run", {"argv": [*python, "-c", PROBE], "timeout_s": 60}, timeout_s=70))
    problems = {host: _told(error) for host, error in answers.failed.items()}
    for host, answer in answers.items():
        if answer["exit_code"] != 0:
            last = (str(answer["stderr"]).strip().splitlines() or ["no output"])[-1]
            problems[host] = CommandFailed(host, f"{python[0]} exited {answer['exit_code']}: {last}")
            continue
        found = json.loads(answer["stdout"])
        log.info("%s: Python %s, torch %s", host, found["python"], found["torch"])
        if found["torch"] is None:
            where = f" of the image {container.image}" if run.is_inside and container else ""
            problems[host] = CommandFailed(
                host, f"{python[0]}{where} has no torch, which the workload needs; install it there or set `python`"
            )
    if problems:
        raise FleetError(problems)


def _told(error: HostError) -> HostError:
    """Give why a Python did not start, with what to do where there is none of that name."""
    if not isinstance(error, CommandFailed) or not error.reason.startswith("cannot run "):
        return error
    return Misnamed(error.host, f"{error.reason}; {SET_PYTHON}")


def plan_torch(settings: Settings) -> Iterator[Step]:
    """Say which Python would be asked."""
    if uses_torchrun(settings):
        for host in settings.cluster.hosts:
            yield Step(host.name, f"{' '.join(python_command(settings))}: check that torch is installed")
