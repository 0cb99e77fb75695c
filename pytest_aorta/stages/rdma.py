"""test_setup_rdma: torchrun and the configured RDMA devices on every host (distributed runs)."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import CommandFailed, FleetError, HostError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.gating import NotNeeded, Step
from pytest_aorta.run.products import Containers, Fabric, WorkloadTree
from pytest_aorta.stages.interpreter import plan_torch, require_torch

PREFIX = "/dev/infiniband/"


def set_up_rdma(run: RunContext, containers: Containers, tree: WorkloadTree) -> Fabric:
    """Check that torchrun can be started and each configured RDMA device exists where the ranks will run."""
    require_torch(run, containers.accelerator)
    devices = rdma_devices(run.settings)
    if not devices:
        return Fabric(devices=dict.fromkeys(containers.by_host, ()))
    answers = run.ask_inside(Ask("stat", {"paths": list(devices)}))
    problems: dict[str, HostError] = {}
    for host, answer in answers.items():
        absent = [path for path, found in answer["files"].items() if found["kind"] == "absent"]
        if absent:
            problems[host] = CommandFailed(
                host,
                f"no {', '.join(absent)}; load the RDMA driver there or take the device out of container.runtime.args",
            )
    if problems:
        raise FleetError(problems)
    return Fabric(devices=dict.fromkeys(answers, devices))


def rdma_devices(settings: Settings) -> tuple[str, ...]:
    """Give the configured RDMA devices by their name inside the container."""
    container = settings.config.container
    configured = container.runtime.args.devices if container is not None else ()
    inside = (entry.split(":")[1] if entry.count(":") else entry for entry in configured)
    return tuple(path for path in inside if path.startswith(PREFIX))


def one_node(settings: Settings) -> NotNeeded | None:
    """One node has no fabric to set up."""
    if len(settings.cluster.hosts) > 1:
        return None
    return NotNeeded("one node: no fabric to set up", Fabric())


def plan(settings: Settings) -> Iterator[Step]:
    """Say which Python would be asked, and which devices would be looked for."""
    yield from plan_torch(settings)
    for host in settings.cluster.hosts:
        for device in rdma_devices(settings):
            yield Step(host.name, f"require the device {device}")
