"""Containers that a run may have found instead of starting them: do they mount what the configuration says?"""

from __future__ import annotations

from pytest_aorta.errors import CommandFailed, FleetError, HostError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.run.context import RunContext


def require_same_folder(run: RunContext) -> None:
    """Require that a container shows aorta_path where the configuration says.

    A folder and the place where it is mounted are one and the same to the kernel. Where either cannot be looked at, it
    is not known.

    Raises:
        FleetError: another folder is mounted there.
    """
    container, config = run.settings.config.container, run.settings.config
    if container is None or container.lifetime == "per_run" or config.aorta_path is None:
        return
    path, place = config.aorta_path, config.container_mount_path
    outside, inside = _identities(run.fleet, path), _identities(run.inside, place)
    others: dict[str, HostError] = {
        host: CommandFailed(
            host,
            f"container {container.name}, which was there, mounts another folder at {place} than aorta_path ({path}); "
            "remove it there, or set aorta_path to what it mounts",
        )
        for host in outside
        if host in inside and outside[host] != inside[host]
    }
    if others:
        raise FleetError(others)


def _identities(fleet: Fleet, path: str) -> dict[str, str]:
    argv = ["stat", "-L", "-c", "%d:%i", path]
    answers = fleet.perform({host: Ask("run", {"argv": argv, "timeout_s": 60}, timeout_s=70) for host in fleet.hosts})
    return {host: str(answer["stdout"]).strip() for host, answer in answers.items() if answer["exit_code"] == 0}
