"""The checkout of the workload's repository on the hosts: cloned if asked, its entry points there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import CommandFailed, FleetError, HostError, Misnamed
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.gating import Step
from pytest_aorta.stages.command import entry_points
from pytest_aorta.stages.sharing import sharing

CLONE_SECONDS = 600
CORRECT_THE_NAMES = "correct base_config, build_script or the start script's name"


def prepare_checkout(run: RunContext) -> None:
    """Clone the repository where it is missing, and require the entry points on every host, before containers mount it.

    Raises:
        FleetError: a clone failed or a file is missing; the hosts and files are named.
    """
    folder = run.settings.config.aorta_path
    if folder is None or run.settings.config.workload is not None:
        return
    _clone(run, folder)
    require_entry_points(run.settings, run.fleet, {host.name: folder for host in run.group})


def plan_checkout(settings: Settings) -> Iterator[Step]:
    """Say what would be cloned and looked for on each host."""
    config = settings.config
    if config.aorta_path is None or config.workload is not None:
        return
    for host in settings.cluster.hosts:
        if config.aorta_auto_clone:
            what = f"git clone {config.aorta_clone_url} {config.aorta_path}"
            yield Step(host.name, f"{what}, unless it is there or another host that shares the folder does it")
        for name in entry_points(settings):
            yield Step(host.name, f"require the file {config.aorta_path}/{name}")


def require_entry_points(
    settings: Settings, fleet: Fleet, root: Mapping[str, str], *, advice: str = CORRECT_THE_NAMES
) -> None:
    """Require the files without which a run cannot start, below the root of each host.

    Raises:
        FleetError: names every missing file.
    """
    names = entry_points(settings)
    answers = fleet.perform(
        {host: Ask("stat", {"paths": [f"{path}/{name}" for name in names]}) for host, path in root.items()}
    ).or_raise()
    absent = {
        host: [path for path, found in answer["files"].items() if found["kind"] != "file"]
        for host, answer in answers.items()
    }
    require_none({host: f"no file {', '.join(paths)}" for host, paths in absent.items() if paths}, answers, advice)


def require_none(absent: Mapping[str, str], asked: Collection[str], advice: str) -> None:
    """Require that nothing is absent, given what is on which of the hosts that were asked; `advice` says what to do.

    Raises:
        FleetError: names it on every host; where none has it, it is what the configuration names that is wrong.
    """
    kind = Misnamed if len(absent) == len(asked) else CommandFailed
    problems: dict[str, HostError] = {host: kind(host, f"{what}; {advice}") for host, what in absent.items()}
    if problems:
        raise FleetError(problems)


def _clone(run: RunContext, folder: str) -> None:
    config = run.settings.config
    if not config.aorta_auto_clone:
        return
    marker = f"{folder}/{config.base_config}"
    found = run.ask(Ask("stat", {"paths": [marker]}))
    absent = [host for host, answer in found.items() if answer["files"][marker]["kind"] != "file"]
    if absent:
        run.progress(f"cloning {config.aorta_clone_url}")
        argv = ["git", "clone", "--", config.aorta_clone_url, folder]
        clone = Ask("run", {"argv": argv, "timeout_s": CLONE_SECONDS}, timeout_s=CLONE_SECONDS + 10)
        one_each = [hosts[0] for hosts in sharing(run.fleet, dict.fromkeys(absent, folder))]
        _require_success(run.ask(dict.fromkeys(one_each, clone)), "git clone")


def _require_success(answers: Mapping[str, Answer], what: str) -> None:
    problems: dict[str, HostError] = {}
    for host, answer in answers.items():
        if answer["exit_code"] != 0:
            last = (str(answer["stderr"]).strip().splitlines() or ["no output"])[-1]
            problems[host] = CommandFailed(host, f"{what} exited {answer['exit_code']}: {last}")
    if problems:
        raise FleetError(problems)
