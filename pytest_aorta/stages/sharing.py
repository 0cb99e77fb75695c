"""Sharing: which hosts see the same folder, so that one of them works in it and the others look at the result."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.run.context import log

Groups = tuple[tuple[str, ...], ...]


def sharing(fleet: Fleet, paths: Mapping[str, str]) -> Groups:
    """Group hosts by whether they see the same folder at their path, in host order.

    Every host leaves a mark in its folder (or in the nearest one above it that is there) and looks for those of the
    others. A host that may not write there counts as alone.
    """
    if len(paths) < 2:
        return tuple((host,) for host in paths)
    nonce = secrets.token_hex(6)
    marks = {host: f".aorta-mark-{nonce}-{number}" for number, host in enumerate(paths)}
    left = fleet.perform({host: Ask("mark", {"path": paths[host], "name": marks[host]}) for host in paths})
    for host, error in left.failed.items():
        log.info("%s: whether %s is shared is not known: %s", host, paths[host], error.reason)
    folders = {host: str(answer["folder"]) for host, answer in left.items()}
    names = {marks[host]: host for host in folders}
    try:
        seen = fleet.perform({host: Ask("marks", {"folder": folders[host], "names": list(names)}) for host in folders})
    finally:
        fleet.perform({host: Ask("unmark", {"folder": folders[host], "name": marks[host]}) for host in folders})
    leaders: dict[str, str] = {}
    for host in paths:
        others = [names[name] for name in seen[host]["seen"]] if host in seen else []
        leaders[host] = leaders.get(others[0], others[0]) if others else host
    groups: dict[str, list[str]] = {}
    for host, leader in leaders.items():
        groups.setdefault(leader, []).append(host)
    for hosts in groups.values():
        if len(hosts) > 1:
            log.info("%s share %s", ", ".join(hosts), paths[hosts[0]])
    return tuple(map(tuple, groups.values()))
