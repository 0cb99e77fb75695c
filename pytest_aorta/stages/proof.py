"""Proof: which hosts share what they wrote, and of which nobody can tell by it whether they trained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from pytest_aorta.hostlist import host_list
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.products import Execution

Entry = Mapping[str, Any]  # of a file, as `find` gives it


@dataclass
class Sightings:
    """The files that hosts see, host by host; `shared` has the traces of a host that others see as well."""

    shared: dict[str, set[str]] = field(default_factory=dict)
    _first: dict[tuple[str, int, int], str] = field(default_factory=dict)
    _traces: dict[str, set[str]] = field(default_factory=dict)

    def counted(self, host: str, files: list[dict[str, Any]], is_trace: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Take what a host sees; give what no host before it saw: a shared file is counted once."""
        traces = self._traces[host] = {entry["path"] for entry in files if is_trace(entry["path"])}
        owners = [self._first.setdefault(_identity(entry), host) for entry in files]
        elsewhere = {entry["path"]: owner for entry, owner in zip(files, owners, strict=True) if owner != host}
        if elsewhere:
            others = ", ".join(sorted(set(elsewhere.values())))
            log.info("%s: shares its folder with %s; files are counted there", host, others)
        for path in traces & elsewhere.keys():
            for sharer in (elsewhere[path], host):
                self.shared.setdefault(sharer, set()).add(path)
        return [entry for entry in files if entry["path"] not in elsewhere]

    def only_shared(self) -> dict[str, set[str]]:
        """Give the hosts that have no trace but shared ones, with these."""
        return {host: paths for host, paths in self.shared.items() if self._traces[host] <= paths}


def _identity(entry: Entry) -> tuple[str, int, int]:
    """Give what a file that two hosts see through a shared file system has in common: path, size, time of change."""
    return str(entry["path"]), int(entry["size"]), int(entry["mtime_ns"])


def unread(run: RunContext) -> dict[str, str]:
    """Say of the hosts behind the head that nobody reads their traces (`multi_node.collect_traces` is false)."""
    hosts = [host.name for host in run.group[1:]]
    why = f"whether {host_list(hosts)} trained: multi_node.collect_traces is false, so no trace from there is read"
    return dict.fromkeys(hosts, why)


def unproven(run: RunContext, execution: Execution, shared: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Say of hosts that share their traces that any one of them may have written them all.

    `shared` has the traces that each host sees as others do. A host is shown by a rank that was seen running there, or
    by its name before a trace's, as `tensorboard_trace_handler` writes it. Where torchrun starts the ranks, each rank
    has its host, and a missing one is told by its number.
    """
    workload = run.settings.config.workload
    if workload is None or workload.launcher != "none":
        return {}
    hosts = [
        host
        for host, paths in shared.items()
        if host not in execution.rank_hosts and not _names_one(paths, _names_of(run, host))
    ]
    why = (
        f"whether {host_list(hosts)} trained: the folder of the traces is shared, no process with a RANK was seen "
        "there, and no trace's name begins with the host's"
    )
    return dict.fromkeys(hosts, why)


def _names_of(run: RunContext, host: str) -> set[str]:
    try:
        facts = json.loads(run.folder.facts(host).read_text("utf-8"))
    except (OSError, ValueError):
        return {host}
    return {host, str(facts["hostname"])}


def _names_one(paths: Iterable[str], names: Iterable[str]) -> bool:
    begins = re.compile(rf"(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9-])")
    return any(begins.match(PurePosixPath(path).name) for path in paths)
