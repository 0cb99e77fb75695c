"""Entering containers: the node program inside each, where the workload lives, and leaving them again."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from pytest_aorta.config.container import Container
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.causes import not_done
from pytest_aorta.containers.driver import SILENT_TIMEOUT_S
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
LOOK_SECONDS = 30
_NO_PROGRAM = re.compile(r"executable file .*not found|exec: \S+ stat \S+ no such file")


def required(settings: Settings) -> Container:
    """Give the configured container; raises ConfigError where there is none."""
    if settings.config.container is None:
        raise ConfigError("this configuration has no container")
    return settings.config.container


class Entered:
    """The node programs in the containers of a run, and how its hosts end what one of them, once lost, has left there.

    `reaping` has the commands for that, by host; none where containers are removed with all that runs in them.
    """

    def __init__(self, run: RunContext, programs: Mapping[str, str], states: Mapping[str, str]) -> None:
        self.fleet = _inside(run, programs)
        self._run = run
        self._container = required(run.settings)
        self._what = f"what ran in container {self._container.name}"
        self._left: dict[str, HostError | None] = {}
        (python, *_) = python_command(run.settings)
        is_removed = self._container.lifetime == "per_run"
        self._reaping = {
            host: run.engine.argv(host, [python, program, "--reap", states[host]])
            for host, program in ({} if is_removed else programs).items()
        }

    def arrange(self) -> None:
        """Have the hosts end what runs in containers that stay, should nobody have told them that it has ended."""
        self._run.ask({host: self._undo(host, REAP_SECONDS) for host in self._reaping})

    def end_left(self) -> None:
        """End what lost node programs left, while it is still theirs; `leave` says what could not be ended."""
        self._reap({host for host in self._reaping if self.fleet.loss(host) is not None})

    def leave(self) -> None:
        """Have the node programs leave, and end what those left that do not.

        Raises:
            FleetError: on one or more hosts something could not be ended.
        """
        lost = {host for host in self._reaping if self.fleet.loss(host) is not None}
        errors: dict[str, HostError] = {}
        try:
            self.fleet.close()
        except FleetError as error:
            errors |= error.by_host
        self._reap((lost | errors.keys()) & self._reaping.keys())
        for host, why in self._left.items():
            errors.pop(host, None)
            errors |= {host: why} if why is not None else {}
        self._run.in_use |= errors.keys() & self._reaping.keys()
        ended = [host for host in self._reaping if host not in self._run.in_use]
        self._run.fleet.perform({host: Ask("undone", {"name": self._what}) for host in ended})
        if errors:
            raise FleetError(errors)

    def _undo(self, host: str, timeout_s: float) -> Ask:
        return Ask("undo", {"name": self._what, "argv": self._reaping[host], "timeout_s": timeout_s})

    def _reap(self, hosts: Iterable[str]) -> None:
        """Note by host why what is left there could not be ended, or that it was; each is tried once.

        Of hosts whose container stands still, the end of the run says so. Where an engine did not answer, the node
        program on the host tries it when it leaves, and nobody waits for that as long again.
        """
        known = self._left.keys() | self._run.in_use
        open_ones = [host for host in hosts if host not in known and self._run.fleet.loss(host) is None]
        asks = {
            host: Ask("run", {"argv": self._reaping[host], "timeout_s": REAP_SECONDS}, REAP_SECONDS + 10)
            for host in open_ones
        }
        answers = self._run.fleet.perform(asks)
        self._left |= answers.failed
        for host, answer in answers.items():
            said = str(answer["stderr"]).strip()
            is_ended = answer["exit_code"] == 0 or is_over(said)
            why = not_done(f"{self._run.engine.name} exec", REAP_SECONDS, said) if answer["timed_out"] else said
            told = f"what still runs in its container {self._container.name} could not be ended: {why}"
            self._left[host] = None if is_ended else CommandFailed(host, told)
        late = [host for host, answer in answers.items() if answer["timed_out"]]
        self._run.fleet.perform({host: self._undo(host, SILENT_TIMEOUT_S) for host in late})


def enter(run: RunContext, work_dirs: Mapping[str, str]) -> Entered:
    """Start the node programs inside and have the workload live there from now on."""
    programs = {host: f"{path}/{NAME}" for host, path in work_dirs.items()}
    with tempfile.TemporaryDirectory(prefix="aorta-") as folder:
        program = Path(folder) / NAME
        program.write_bytes(program_bytes())
        program.chmod(0o644)
        run.fleet.send(program, programs)
    _require_visible(run, programs)
    states = {host: f"{path}/inside.node" for host, path in work_dirs.items()}
    entered = Entered(run, programs, states)
    entered.arrange()
    run.on_teardown("node programs in the containers ended", entered.leave, is_inside=True)
    try:
        entered.fleet.open(states)
    except FleetError as error:
        raise FleetError({host: _told(run.settings, each) for host, each in error.by_host.items()}) from error
    run.enter(entered.fleet)
    return entered


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
            host: Ask(
                "run",
                {"argv": run.engine.argv(host, ["test", "-r", path]), "timeout_s": LOOK_SECONDS},
                LOOK_SECONDS + 10,
            )
            for host, path in programs.items()
        }
    )
    container = required(run.settings)
    problems: dict[str, HostError] = {}
    for host, answer in answers.items():
        if answer["exit_code"] == 0:
            continue
        said = str(answer["stderr"]).strip()
        if answer["timed_out"]:
            problems[host] = CommandFailed(host, not_done(f"{run.engine.name} exec", LOOK_SECONDS, said))
            continue
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
    looked = run.engine.look(asks)
    shut = {host: f"it cannot be looked at ({why})" for host, why in looked.failed.items()}
    shut |= {host: "it is paused" for host, found in looked.good.items() if found is not None and found.is_paused}
    rest = [host for host in asks if host not in shut]
    ended = [host for host in rest if (found := looked.good.get(host)) is None or not found.is_running]
    revived = run.engine.revive(ended)
    shut |= {host: f"it has ended and cannot be started again ({why})" for host, why in revived.items()}
    failed: dict[str, HostError] = {
        host: CommandFailed(host, f"what its container wrote as root stays root's: {why}") for host, why in shut.items()
    }
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
