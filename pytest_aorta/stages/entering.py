"""Entering containers: the node program inside each, where the workload lives, and leaving them again."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from pytest_aorta.config.container import Container
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.leftovers import is_over
from pytest_aorta.errors import CommandFailed, ConfigError, FleetError, HostError, Misnamed
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.inside import InsideTransport
from pytest_aorta.fleet.program import NAME, program_bytes
from pytest_aorta.run.context import RunContext
from pytest_aorta.stages.command import SET_PYTHON, python_command

GIVE_SECONDS = 600
REAP_SECONDS = 30
_NO_PROGRAM = re.compile(r"executable file .*not found|exec: \S+ stat \S+ no such file")


def required(settings: Settings) -> Container:
    """Give the configured container; raises ConfigError where there is none."""
    if settings.config.container is None:
        raise ConfigError("this configuration has no container")
    return settings.config.container


def enter(run: RunContext, work_dirs: Mapping[str, str]) -> None:
    """Start the node programs inside and have the workload live there from now on."""
    programs = {host: f"{path}/{NAME}" for host, path in work_dirs.items()}
    with tempfile.TemporaryDirectory(prefix="aorta-") as folder:
        program = Path(folder) / NAME
        program.write_bytes(program_bytes())
        program.chmod(0o644)
        run.fleet.send(program, programs)
    _require_visible(run, programs)
    inside = _inside(run, programs)
    states = {host: f"{path}/inside.node" for host, path in work_dirs.items()}
    reaping = _have_ended(run, programs, states)
    run.on_teardown("node programs in the containers ended", lambda: _leave(run, inside, reaping), is_inside=True)
    try:
        inside.open(states)
    except FleetError as error:
        raise FleetError({host: _told(run.settings, each) for host, each in error.by_host.items()}) from error
    run.enter(inside)


def _have_ended(run: RunContext, programs: Mapping[str, str], states: Mapping[str, str]) -> dict[str, list[str]]:
    """Have what runs in containers that stay be ended by their hosts, should their own node programs be gone.

    Returns:
        By host, the command that does it; none for containers that are removed with all that runs in them.
    """
    container = required(run.settings)
    if container.lifetime == "per_run":
        return {}
    (python, *_) = python_command(run.settings)
    reaping = {
        host: run.engine.argv(host, [python, program, "--reap", states[host]]) for host, program in programs.items()
    }
    name = _undoing(container)
    run.ask(
        {host: Ask("undo", {"name": name, "argv": argv, "timeout_s": REAP_SECONDS}) for host, argv in reaping.items()}
    )
    return reaping


def _undoing(container: Container) -> str:
    return f"what ran in container {container.name}"


def _leave(run: RunContext, inside: Fleet, reaping: Mapping[str, list[str]]) -> None:
    """Have the node programs leave; where one is lost in a container that stays, end what it has left there.

    Raises:
        FleetError: on one or more hosts something could not be ended.
    """
    left = {host for host in reaping if inside.loss(host) is not None}
    errors: dict[str, HostError] = {}
    try:
        inside.close()
    except FleetError as error:
        errors |= error.by_host
    left = {host for host in left | (errors.keys() & reaping.keys()) if run.fleet.loss(host) is None}
    asks = {host: Ask("run", {"argv": reaping[host], "timeout_s": REAP_SECONDS}, REAP_SECONDS + 10) for host in left}
    answers = run.fleet.perform(asks)
    errors |= answers.failed
    for host, answer in answers.items():
        said = str(answer["stderr"]).strip()
        errors.pop(host, None)
        if answer["exit_code"] != 0 and not is_over(said):
            name = required(run.settings).name
            errors[host] = CommandFailed(host, f"what still runs in its container {name} could not be ended: {said}")
    ended = [host for host in reaping if host not in errors]
    run.fleet.perform({host: Ask("undone", {"name": _undoing(required(run.settings))}) for host in ended})
    if errors:
        raise FleetError(errors)


def _told(settings: Settings, error: HostError) -> HostError:
    """Give why the node program did not start in a container, with what to do where the image has no such Python."""
    if not _NO_PROGRAM.search(error.reason):
        return error
    image, (python, *_) = required(settings).image, python_command(settings)
    return Misnamed(error.host, f"the image {image} has no program {python!r}; {SET_PYTHON}")


def _inside(run: RunContext, programs: Mapping[str, str]) -> Fleet:
    (python, *_) = python_command(run.settings)
    return Fleet(
        {host: InsideTransport(run.fleet, host, run.engine.argv, path, python) for host, path in programs.items()},
        lease_seconds=run.settings.config.lease_seconds,
    )


def _require_visible(run: RunContext, programs: Mapping[str, str]) -> None:
    """Require that the containers see our work folder; one that we did not start may not mount it."""
    answers = run.ask(
        {
            host: Ask("run", {"argv": run.engine.argv(host, ["test", "-r", path]), "timeout_s": 60}, timeout_s=70)
            for host, path in programs.items()
        }
    )
    container = required(run.settings)
    problems: dict[str, HostError] = {}
    for host, answer in answers.items():
        if answer["exit_code"] == 0:
            continue
        said = str(answer["stderr"]).strip()
        next_step = _how_to_read(container, PurePosixPath(programs[host]).parents[1])
        said = f" ({said})" if said else ""
        problems[host] = CommandFailed(host, f"the container cannot read {programs[host]}{said}; {next_step}")
    if problems:
        raise FleetError(problems)


def _how_to_read(container: Container, folder: PurePosixPath) -> str:
    """Say what to do about a container that cannot read our files; one that we have just started does mount them."""
    user = container.runtime.args.user
    if container.lifetime != "per_run":
        return f"mount {folder} into it at the same path, or set work_dir to a folder that it mounts so"
    if user is None:
        return "it is there, for its owner and root only: does the image run as another user, or SELinux forbid it?"
    whose = f"it is for its owner and root only, and user {user} (container.runtime.args.user) is neither"
    return f"{whose}; leave user out, or give the login user's number"


def give_back(run: RunContext, work_dirs: Mapping[str, str], owners: Mapping[str, tuple[int, int]]) -> None:
    """Give what the workload wrote as another user to the login user of each host.

    Only who wrote it may do so, so a container that was ended meanwhile is started once more.
    """
    paths = {host: [path] for host, path in work_dirs.items()}
    if run.settings.config.aorta_path is not None:
        for given in paths.values():
            given.append(run.settings.config.container_mount_path)
    asks = {
        host: Ask("give", {"paths": paths[host], "uid": uid, "gid": gid}, timeout_s=GIVE_SECONDS)
        for host, (uid, gid) in owners.items()
        if uid != 0
    }
    ended = [host for host in asks if run.inside.loss(host) is not None and run.fleet.loss(host) is None]
    answers = run.inside.perform({host: ask for host, ask in asks.items() if host not in ended})
    failed = {**answers.failed, **_give_again(run, {host: asks[host] for host in ended}, work_dirs)}
    if failed:
        raise FleetError(failed)


def _give_again(run: RunContext, asks: Mapping[str, Ask], work_dirs: Mapping[str, str]) -> dict[str, HostError]:
    """Ask containers that are started again for it; gives what failed."""
    failed: dict[str, HostError] = {}
    for host, why in run.engine.revive(asks).items():
        said = f"what its container wrote as root stays root's: it has ended and cannot be started again ({why})"
        failed[host] = CommandFailed(host, said)
    hosts = [host for host in asks if host not in failed]
    if not hosts:
        return failed
    again = _inside(run, {host: f"{work_dirs[host]}/{NAME}" for host in hosts})
    try:
        failed |= again.open_reachable({host: f"{work_dirs[host]}/again.node" for host in hosts})
        failed |= again.perform({host: asks[host] for host in hosts if host not in failed}).failed
    finally:
        again.close()
    return failed
