"""Sweeping: taking away what dead runs left on the hosts of a cluster, whoever ran them, told from the hosts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pytest_aorta.config.cluster import Cluster
from pytest_aorta.containers.commands import is_closed
from pytest_aorta.containers.docker_cli import ProgramName
from pytest_aorta.containers.leftovers import is_over, not_undone, remove_containers, undone
from pytest_aorta.containers.lifetime import Found
from pytest_aorta.errors import AortaError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.node.files import MARKER
from pytest_aorta.node.state import GROUPS_FILE
from pytest_aorta.run.cleaning import REAP_SECONDS, REMOVE_SECONDS, Cleaned
from pytest_aorta.run.folder import new_run_id
from pytest_aorta.run.hosts import fleet_on
from pytest_aorta.run.state_dirs import STATE_SUFFIX, state_dir_of

CACHE = "~/.cache/pytest-aorta"
YOUNG_NS = 600 * 10**9
ABSENT = "No such file or directory"
BY_HAND = "look whose it is (ls -ld), and remove it by hand if no run needs it"


def sweep(cluster: Cluster) -> Cleaned:
    """On every host that answers, end, undo and remove what runs left whose node program does not live any more.

    Only what the login user itself left in its cache folder, and containers with our label, are looked at; runs that
    live, containers that are meant to be kept, and what another host left in a home that it shares are left alone.
    """
    return sweep_fleet(fleet_on(cluster))


def sweep_fleet(fleet: Fleet) -> Cleaned:
    """Do so on the hosts of a fleet, which is opened and closed again."""
    done: list[str] = []
    problems: list[str] = []
    try:
        own = new_run_id()
        unreachable = fleet.open_reachable({host: state_dir_of(f"{CACHE}/{own}-{host}") for host in fleet.hosts})
        problems += map(str, unreachable.values())
        reached = [host for host in fleet.hosts if host not in unreachable]
        for host, folders in _state_folders(fleet, reached, own, problems).items():
            for folder in folders:
                _reap(fleet, host, folder, done, problems)
        _remove_containers(fleet, reached, done, problems)
    except AortaError as error:
        problems.append(str(error))
    try:
        fleet.close()
    except AortaError as error:
        problems.append(str(error))
    return Cleaned(tuple(done), tuple(problems))


def _state_folders(fleet: Fleet, hosts: list[str], own: str, problems: list[str]) -> Mapping[str, list[str]]:
    """Give the state folders on each host whose node program is gone; those of this sweep begin with `own`."""
    look = {"root": CACHE, "names": [GROUPS_FILE, MARKER], "since_ns": 0, "depth": 2, "skip_closed": True}
    clocks = fleet.perform({host: Ask("clock") for host in hosts})
    answers = fleet.perform({host: Ask("find", look) for host in hosts})
    problems += [str(error) for error in answers.failed.values() if ABSENT not in error.reason]
    found: dict[str, list[str]] = {}
    for host, answer in answers.items():
        problems += [f"{host}: {CACHE}/{path} may not be looked into; {BY_HAND}" for path in answer["closed"]]
        now_ns = int(clocks[host]["wall_ns"]) if host in clocks else 0
        shown = (entry["path"] for entry in answer["files"] if _counts(entry, now_ns))
        names = {path.partition("/")[0] for path in shown if path.count("/") == 1 and not path.startswith(own)}
        folders = [f"{CACHE}/{name}" for name in sorted(names) if name.endswith(STATE_SUFFIX)]
        found[host] = [folder for folder in folders if not _is_alive(fleet, host, folder)]
    return found


def _counts(entry: Mapping[str, Any], now_ns: int) -> bool:
    """Tell whether a file shows a state folder: a record always, the mark alone when no program can be coming up."""
    return not entry["path"].endswith(MARKER) or int(entry["mtime_ns"]) < now_ns - YOUNG_NS


def _is_alive(fleet: Fleet, host: str, folder: str) -> bool:
    """Tell whether the run of a state folder lives; what cannot be told counts as living."""
    answer = fleet.perform({host: Ask("alive", {"path": folder})}).get(host)
    return answer is None or bool(answer["alive"])


def _reap(fleet: Fleet, host: str, folder: str, done: list[str], problems: list[str]) -> None:
    answers = fleet.perform({host: Ask("reap", {"path": folder}, timeout_s=REAP_SECONDS)})
    problems += map(str, answers.failed.values())
    if host not in answers:
        return
    answer, run = answers[host], folder.rpartition("/")[2].removesuffix(STATE_SUFFIX)
    kept = {name: why for name, why in answer["not_undone"].items() if not is_over(why)}
    problems += [f"{host}: run {run}: {not_undone(*each)}" for each in kept.items()]
    if answer["left"]:
        problems.append(f"{host}: run {run}: processes {answer['left']} would not end")
    if kept or answer["left"]:
        return
    told = [f"{len(answer['ended'])} processes ended", *map(undone, answer["undone"])]
    for path in (folder, f"{CACHE}/{run}"):
        removed = fleet.perform({host: Ask("remove", {"path": path}, timeout_s=REMOVE_SECONDS)})
        problems += map(str, removed.failed.values())
        told += [f"{path} removed" for each in removed.values() if each["removed"]]
    done.append(f"{host}: run {run}: {', '.join(told)}")


def _remove_containers(fleet: Fleet, hosts: list[str], done: list[str], problems: list[str]) -> None:
    """Remove those of dead runs; who may not use the engine has none there but those that a state folder names."""

    def is_left_over(host: str, container: Found) -> bool:
        return bool(container.state_dir) and not _is_alive(fleet, host, container.state_dir)

    for program in get_args(ProgramName):
        removed = remove_containers(fleet, hosts, program, is_left_over)
        done += [f"{host}: container {name} removed" for host, names in removed.good.items() for name in names]
        for host, why in removed.failed.items():
            if is_closed(why) and program == "podman":
                continue  # each user has containers of its own: whom it refuses has none
            if is_closed(why):
                done.append(f"{host}: containers were not looked for, which runs without them do not need: {why}")
            else:
                problems.append(f"{host}: {why}")
