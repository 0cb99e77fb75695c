"""The Python that starts torchrun, where the workload lives: it must have torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import CommandFailed, FleetError, HostError, Misnamed
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.reporting.text import one_line
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Accelerator
from pytest_aorta.stages.command import SET_PYTHON, python_command, uses_torchrun

MAX_PRINTED_CHARS = 300
# torch/version.py tells what torch was built for; importing torch itself takes seconds.
PROBE = """
import importlib.metadata, importlib.util, json, os, runpy, sys
spec = importlib.util.find_spec("torch")
told = os.path.join(os.path.dirname(spec.origin or ""), "version.py") if spec else ""
built = runpy.run_path(told) if os.path.isfile(told) else {}
found = {"python": sys.version.split()[0], "torch": importlib.metadata.version("torch") if spec else None}
print(json.dumps({**found, "rocm": built.get("hip", ""), "cuda": built.get("cuda", "")}))
"""


def require_torch(run: RunContext, accelerator: Accelerator) -> None:
    """Require torch, and with it torchrun, on every host where we start torchrun; a script brings its own.

    Raises:
        FleetError: a Python does not start, has no torch, or one that was built without the accelerator; the hosts
            are named.
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
        found = _found(str(answer["stdout"]))
        if found is None:
            printed = one_line(str(answer["stdout"]), MAX_PRINTED_CHARS) or "nothing"
            problems[host] = CommandFailed(
                host,
                f"{python[0]} was asked for its torch, and its last line does not tell; it printed {printed}; "
                "see what else prints there (a wrapper, a sitecustomize)",
            )
            continue
        log.info("%s: Python %s, torch %s", host, found["python"], found["torch"])
        if found["torch"] is None:
            where = f" of the image {container.image}" if run.is_inside and container else ""
            problems[host] = CommandFailed(
                host, f"{python[0]}{where} has no torch, which the workload needs; install it there or set `python`"
            )
        elif why := built_without(accelerator, found):
            problems[host] = Misnamed(host, f"{python[0]} has {why}")
    if problems:
        raise FleetError(problems)


def _found(printed: str) -> dict[str, Any] | None:
    """Give what the probe told in the last line, None if nothing: a wrapper or a sitecustomize may print before it."""
    try:
        found = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() >= {"python", "torch", "rocm", "cuda"} else None


def built_without(accelerator: Accelerator, found: Mapping[str, str | None]) -> str:
    """Say that a torch was built without the accelerator, "" if it was built with it or does not tell."""
    if accelerator == "cpu" or found[accelerator] is not None:
        return ""
    other = next((name for name in ("rocm", "cuda") if found[name]), "the CPU only")
    return (
        f"torch {found['torch']}, built for {other}, and accelerator is {accelerator}; install one for {accelerator} "
        "there, set `python` to a Python that has it, or accelerator to cpu"
    )


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
