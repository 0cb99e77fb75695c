"""The hosts of a run: which transport reaches them and which engine runs the workload there."""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_aorta.config.cluster import Cluster, Host
from pytest_aorta.config.document import PathFault
from pytest_aorta.config.model import RunConfig
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.bare import Bare
from pytest_aorta.containers.docker_cli import DockerCli
from pytest_aorta.containers.engine import Engine
from pytest_aorta.errors import Fault, FleetError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport
from pytest_aorta.fleet.transport import Transport
from pytest_aorta.run.evidence import CHECKS

Say = Callable[[str], None]

LOOK_SECONDS = 10


def fleet_of(settings: Settings) -> Fleet:
    """Make the fleet that a configuration asks for; nothing is started."""
    return fleet_on(settings.cluster, lease_seconds=settings.config.lease_seconds)


def fleet_on(cluster: Cluster, *, lease_seconds: float = 120) -> Fleet:
    """Make a fleet of the hosts of a cluster; nothing is started."""
    reach = _ssh(cluster) if cluster.transport == "ssh" else _here
    return Fleet({host.name: reach(host) for host in cluster.hosts}, lease_seconds=lease_seconds)


def boot_id_of(cluster: Cluster, host: str, state_dir: str) -> str | None:
    """Ask a host over a connection of its own which boot it is in; None: it does not answer."""
    fleet = fleet_on(replace(cluster, hosts=tuple(each for each in cluster.hosts if each.name == host)))
    try:
        fleet.open_reachable({host: state_dir}, LOOK_SECONDS)
        answer = fleet.perform(Ask("clock", timeout_s=LOOK_SECONDS)).get(host)
        return None if answer is None else str(answer["boot_id"])
    finally:
        with contextlib.suppress(FleetError):
            fleet.close()


def engine_of(settings: Settings, say: Say) -> Engine:
    """Choose the container engine; `say` is told what takes long.

    The daemon of this machine is spoken to by its socket; those of other hosts by their client program, through the
    node program's channel: the SDK would need the same program there, a second session, and could not use sudo.
    """
    container = settings.config.container
    if container is None or not container.is_used:
        return Bare()
    if container.runtime.name == "docker" and settings.cluster.transport == "local":
        sdk: Engine = importlib.import_module("pytest_aorta.containers.docker_sdk").DockerSdk(
            container.lifetime, progress=say
        )
        return sdk
    return DockerCli(container.lifetime, "podman" if container.runtime.name == "podman" else "docker", say)


def _here(host: Host) -> Transport:
    """Reach what is on this machine, whatever its name."""
    return LocalTransport()


def _ssh(cluster: Cluster) -> Callable[[Host], Transport]:
    ssh = importlib.import_module("pytest_aorta.fleet.ssh")
    access = _access(cluster)

    def reach(host: Host) -> Transport:
        transport: Transport = ssh.SshTransport(host.name, access)
        return transport

    return reach


def _access(cluster: Cluster) -> Any:
    return importlib.import_module("pytest_aorta.fleet.ssh").Access(
        username=cluster.username,
        key_file=cluster.priv_key_file,
        password=cluster.password.get_secret_value() if cluster.password is not None else None,
        known_hosts=cluster.known_hosts,
        policy=cluster.host_key_policy,
    )


def unusable_here(config: RunConfig, cluster: Cluster | None) -> Iterator[PathFault]:
    """Give what this machine lacks to reach the hosts: the files that the cluster names for ssh."""
    if cluster is not None and cluster.transport == "ssh":
        inputs = importlib.import_module("pytest_aorta.fleet.ssh_inputs")
        for field, why in inputs.unusable_files(_access(cluster)):
            yield PathFault(("cluster", field), why)


def not_in_this_version(config: RunConfig, cluster: Cluster | None) -> Iterator[PathFault]:
    """Give what is asked for and this version does not do: it is refused, never ignored. None: no cluster is known."""
    if cluster is not None and cluster.transport == "slurm":
        yield PathFault(("cluster", "transport"), "slurm is not in this version; give a cluster file with ssh")
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
