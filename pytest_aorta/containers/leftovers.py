"""Leftovers: containers of ours that outlived the run which started them without being asked to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from pytest_aorta.containers.causes import ENDED, GONE, cause
from pytest_aorta.containers.docker_cli import CliDriver, ProgramName, containers_of
from pytest_aorta.containers.lifetime import Found
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.fleet.fleet import Fleet

_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


def remove_containers(
    fleet: Fleet, hosts: Iterable[str], program: ProgramName, wanted: Callable[[str, Found], bool]
) -> Outcome[list[str]]:
    """Remove those of our containers that are wanted (host, container) and not kept; gives their names by host."""
    listed = containers_of(fleet, hosts, program)
    client = CliDriver(program)
    client.reach(fleet, listed.good)
    removed: dict[str, list[str]] = {}
    failed = dict(listed.failed)
    for host, found in listed.good.items():
        chosen = [each for each in found if not each.is_kept and wanted(host, each)]
        problems = [
            f"container {each.name}: {why}"
            for each in chosen
            for why in client.remove({host: each.container_id}).failed.values()
        ]
        if problems:
            failed[host] = "; ".join(problems)
        else:
            removed[host] = [each.name for each in chosen]
    return Outcome(removed, failed)


def is_over(why: str) -> bool:
    """Tell whether an engine said that the container is not there any more, or has ended: nothing runs in it."""
    return GONE.search(why) is not None or ENDED.search(why) is not None


def undone(name: str) -> str:
    """Say what an undoing of that name has done on its host."""
    return " ".join(_subject_and_verb(name))


def not_undone(name: str, why: str) -> str:
    """Say what an undoing of that name has not done."""
    subject, verb = _subject_and_verb(name)
    return f"{subject} could not be {verb}: {cause(why)}"


def _subject_and_verb(name: str) -> tuple[str, str]:
    if _CONTAINER_ID.fullmatch(name):
        return f"container {name[:12]}", "removed"
    return name, "removed" if name.startswith("/") else "ended"
