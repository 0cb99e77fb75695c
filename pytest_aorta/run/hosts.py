"""The hosts of a run: which transport reaches them and which engine runs the workload there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from pytest_aorta.config.cluster import Cluster
from pytest_aorta.config.document import PathFault
from pytest_aorta.config.model import RunConfig
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.bare import Bare
from pytest_aorta.containers.engine import Engine
from pytest_aorta.errors import Fault
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport
from pytest_aorta.run.evidence import CHECKS


def fleet_of(settings: Settings) -> Fleet:
    """Make the fleet that a configuration asks for; nothing is started."""
    return Fleet(
        {host.name: LocalTransport() for host in settings.cluster.hosts}, lease_seconds=settings.config.lease_seconds
    )


def engine_of(settings: Settings) -> Engine:
    """Choose the container engine."""
    return Bare()


def not_in_this_version(config: RunConfig, cluster: Cluster | None) -> Iterator[PathFault]:
    """Give what is asked for and this version does not do: it is refused, never ignored. None: no cluster is known."""
    if cluster is not None and cluster.transport != "local":
        absent = f"{cluster.transport} is not in this version"
        yield PathFault(("cluster", "transport"), f"{absent}; run on the node itself, without `cluster`")
    if config.container is not None and config.container.is_used:
        absent = f"{config.container.runtime.name} is not in this version"
        where = ("container", "runtime", "name")
        yield PathFault(where, f"{absent}; without `container` all runs on the host itself")
    for name in config.evidence:
        if name not in CHECKS:
            near = difflib.get_close_matches(name, CHECKS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(CHECKS)}"
            yield PathFault(("evidence", name), f"no check of this name in this version; {hint}")


def clashing_folders(settings: Settings) -> Iterator[Fault]:
    """Give a work folder that would be the run folder itself: it is removed at the end, results and all."""
    work_dir = settings.config.work_dir
    if work_dir is None or settings.cluster.transport != "local":
        return
    if Path(work_dir).expanduser().resolve() == settings.output_dir.resolve():
        yield Fault(
            "work_dir", f"seen {work_dir}, which is output_dir, expected another folder: it is emptied after the run"
        )
