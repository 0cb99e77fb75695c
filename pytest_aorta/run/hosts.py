"""The hosts of a run: which transport reaches them and which engine runs the workload there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

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


def not_in_this_version(settings: Settings) -> Iterator[Fault]:
    """Give what the configuration asks for and this version does not do: it is refused, never ignored."""
    config = settings.config
    if settings.cluster.transport != "local":
        absent = f"{settings.cluster.transport} is not in this version"
        yield Fault("cluster.transport", f"{absent}; run on the node itself, without `cluster`")
    if settings.uses_container and config.container is not None:
        absent = f"{config.container.runtime.name} is not in this version"
        yield Fault("container.runtime.name", f"{absent}; without `container` all runs on the host itself")
    for name in config.evidence:
        if name not in CHECKS:
            near = difflib.get_close_matches(name, CHECKS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(CHECKS)}"
            yield Fault(f"evidence.{name}", f"no check of this name in this version; {hint}")


def clashing_folders(settings: Settings) -> Iterator[Fault]:
    """Give a work folder that would be the run folder itself: it is removed at the end, results and all."""
    work_dir = settings.config.work_dir
    if work_dir is None or settings.cluster.transport != "local":
        return
    if Path(work_dir).expanduser().resolve() == settings.output_dir.resolve():
        yield Fault(
            "work_dir", f"seen {work_dir}, which is output_dir, expected another folder: it is emptied after the run"
        )
