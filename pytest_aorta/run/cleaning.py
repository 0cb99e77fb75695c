"""Cleaning: taking away what a run left on its hosts when its pytest could not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from pytest_aorta.config.cluster import Cluster
from pytest_aorta.config.document import path_text
from pytest_aorta.config.redact import REDACTED
from pytest_aorta.config.settings import Settings, restore
from pytest_aorta.containers.leftovers import is_over, not_undone, remove_containers, undone
from pytest_aorta.errors import AortaError, ConfigError, Fault
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.hosts import fleet_of, not_in_this_version
from pytest_aorta.run.machine import hostname
from pytest_aorta.run.record import RecordKeeper, RunRecord
from pytest_aorta.run.state_dirs import another_state_dir

REAP_SECONDS = 60
REMOVE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was done on the hosts of a run, and what could not be, one line each."""

    done: tuple[str, ...]
    problems: tuple[str, ...]


def is_left_over(record: RunRecord) -> bool:
    """Tell whether a run needs cleaning and may be cleaned without being named.

    A run on this machine's own hosts that another machine began can only be cleaned there.
    """
    if record.presence == "finished":
        return bool(record.uncleaned) and (record.is_here or not _is_local(record))
    return record.presence == "abandoned"


def why_not(record: RunRecord, *, named: bool, force: bool) -> str:
    """Say why a run must not be cleaned now, or give nothing. `named`: the user gave its id, not `last` or --all."""
    if record.presence == "running":
        return f"run {record.run_id} is running now (pid {record.pid}); stop that pytest first"
    if record.presence == "elsewhere" and not (named and force):
        return (
            f"run {record.run_id} was {record.remark}; clean it there, or, when that pytest is certainly gone, with "
            f"`aorta clean {record.run_id} --force`"
        )
    return ""


def clean(folder: RunFolder, record: RunRecord, cluster: Cluster | None = None) -> Cleaned:
    """End recorded process groups (by pid and start time), remove containers and work folders of a run on every host.

    `cluster` says how the hosts are reached, in place of what the record has kept of it (no password). A record that
    was never closed is closed as interrupted, unless a host could not be cleaned; a record that names anything but
    this run's own folders is refused before anything is touched.

    Raises:
        ConfigError: the record's configuration is damaged, or this version cannot reach the hosts.
    """
    if foreign := _foreign(folder, record):
        return Cleaned((), (foreign,))
    keeper = RecordKeeper(folder, record)
    done: list[str] = []
    problems: list[str] = []
    if record.hosts:
        cleaned = clean_hosts(record, _reachable(record, cluster))
        done += cleaned.done
        problems += cleaned.problems
    if record.finished is None and not problems:
        whose = f"pid {record.pid}" + ("" if record.is_here else f" on {record.machine}, by the word of {hostname()}")
        keeper.close("interrupted", f"abandoned: the pytest that ran it ({whose}) is gone; cleaned up later")
        done.append("record closed as interrupted")
    elif record.finished is not None:
        keeper.write()
    return Cleaned(tuple(done), tuple(problems))


def clean_hosts(record: RunRecord, settings: Settings) -> Cleaned:
    """Do so on the recorded hosts, over new connections; the record says afterwards which could not be cleaned."""
    done: list[str] = []
    problems: list[str] = []
    left = _Cleaning(record, done, problems).hosts(settings)
    record.uncleaned = tuple(host for host in record.hosts if host in left)
    return Cleaned(tuple(done), tuple(problems))


def _is_local(record: RunRecord) -> bool:
    cluster = record.config.get("cluster")
    return not isinstance(cluster, dict) or cluster.get("transport") == "local"


def _foreign(folder: RunFolder, record: RunRecord) -> str:
    """Say what a record names that is not this run's own, or give nothing."""
    if record.run_id != folder.run_id:
        return (
            f"run.json is that of run {record.run_id!r}, but lies in a folder named {folder.run_id!r}; nothing was "
            "touched; give the folder its own name again"
        )
    for host, entry in record.hosts.items():
        if REDACTED in entry.work_dir + entry.state_dir:
            return (
                f"run.json cannot say where the folders of {host} are, since a part of their path was taken for a "
                f"secret; nothing was touched; remove the folder {record.run_id} there yourself"
            )
        names = (record.run_id, f"{record.run_id}-{host}")
        work, state = PurePosixPath(entry.work_dir).name, PurePosixPath(entry.state_dir).name
        if work not in names or state != f"{work}.node":
            return (
                f"run.json names the folders {entry.work_dir!r} and {entry.state_dir!r} on {host}, expected names "
                f"{names[0]} and {names[0]}.node; nothing was touched; look at {folder.record}"
            )
    return ""


def _reachable(record: RunRecord, cluster: Cluster | None) -> Settings:
    settings = restore(record.config)
    if cluster is not None:
        settings = replace(settings, cluster=cluster)
    wrong = not_in_this_version(settings.config, settings.cluster)
    faults = [Fault(path_text(fault.path), fault.message) for fault in wrong if fault.path[0] == "cluster"]
    unknown = [host for host in record.hosts if host not in {known.name for known in settings.hosts}]
    if faults:
        raise ConfigError(faults)
    if unknown:
        where = "the record's own configuration" if cluster is None else "the given cluster"
        raise ConfigError(f"{', '.join(unknown)}: not among the hosts of {where}")
    return settings


class _Cleaning:
    """The work on the hosts; each host is tried whatever became of the others."""

    def __init__(self, record: RunRecord, done: list[str], problems: list[str]) -> None:
        self._record = record
        self._done = done
        self._problems = problems

    def hosts(self, settings: Settings) -> set[str]:
        """Clean every recorded host; give those that could not be."""
        fleet = fleet_of(settings)
        left = set(self._record.hosts)
        try:
            asked = {host: another_state_dir(self._state_dir(host), "clean") for host in fleet.hosts}
            unreachable = fleet.open_reachable(asked)
            self._problems += [str(error) for host, error in unreachable.items() if host in self._record.hosts]
            reached = [host for host in self._record.hosts if host not in unreachable]
            ended = self._end(fleet, reached)
            if settings.config.container is not None and settings.uses_container:
                ended = self._remove_containers(fleet, ended, settings.config.container.runtime.name)
            left -= self._remove(fleet, ended)
        except AortaError as error:
            self._problems.append(str(error))
        try:
            fleet.close()
        except AortaError as error:
            self._problems.append(str(error))
        return left

    def _state_dir(self, host: str) -> str:
        entry = self._record.hosts.get(host)
        return entry.state_dir if entry is not None else f"~/.cache/pytest-aorta/{self._record.run_id}-{host}.node"

    def _end(self, fleet: Fleet, hosts: list[str]) -> list[str]:
        """End the processes and undo what the node program had not; give the hosts on which nothing is left."""
        answers = fleet.perform(
            {host: Ask("reap", {"path": self._state_dir(host)}, timeout_s=REAP_SECONDS) for host in hosts}
        )
        ended = []
        for host, answer in answers.items():
            count = len(answer.get("ended", []))
            kept = {name: why for name, why in answer.get("not_undone", {}).items() if not is_over(why)}
            if count or not kept:
                self._done.append(f"{host}: {count} processes ended" if count else f"{host}: no process was left")
            self._done += [f"{host}: {undone(name)}" for name in answer.get("undone", [])]
            self._problems += [f"{host}: {not_undone(*each)}" for each in kept.items()]
            if answer.get("left"):
                self._problems.append(f"{host}: processes {answer['left']} would not end; its work folder stays")
            elif not kept:
                ended.append(host)
        self._problems += [str(error) for error in answers.failed.values()]
        return ended

    def _remove_containers(self, fleet: Fleet, hosts: list[str], program: str) -> list[str]:
        """Remove what carries this run's label and was not started to outlive it; give the hosts on which none is."""
        removed = remove_containers(
            fleet, hosts, "podman" if program == "podman" else "docker", lambda _, each: each.run == self._record.run_id
        )
        self._done += [f"{host}: container {each} removed" for host, names in removed.good.items() for each in names]
        self._problems += [f"{host}: {why}" for host, why in removed.failed.items()]
        return [host for host in hosts if host in removed.good]

    def _remove(self, fleet: Fleet, hosts: list[str]) -> set[str]:
        """Remove the work folders; give the hosts on which none is left."""
        work_dirs = {host: self._record.hosts[host].work_dir for host in hosts}
        answers = fleet.perform(
            {host: Ask("remove", {"path": path}, timeout_s=REMOVE_SECONDS) for host, path in work_dirs.items()}
        )
        self._problems += [str(error) for error in answers.failed.values()]
        # A program that was killed before it had written its record leaves its folder.
        fleet.perform(
            {host: Ask("remove", {"path": self._state_dir(host)}, timeout_s=REMOVE_SECONDS) for host in hosts}
        )
        gone = set()
        for host, answer in answers.items():
            if answer.get("removed"):
                self._done.append(f"{host}: {work_dirs[host]} removed")
            elif self._record.is_here or not _is_local(self._record):
                self._done.append(f"{host}: no work folder was left")
            if answer.get("removed") or self._record.is_here or not _is_local(self._record):
                gone.add(host)
            else:
                where = f"no {work_dirs[host]} on {hostname()}"
                self._done.append(f"{host}: {where}; it may still lie on {self._record.machine}")
        return gone
