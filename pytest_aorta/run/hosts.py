"""The hosts of a run: which transport reaches them and which engine runs the workload there; what is not here yet."""

from __future__ import annotations

import difflib

from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.bare import Bare
from pytest_aorta.containers.engine import Engine
from pytest_aorta.errors import ConfigError, Fault
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport
from pytest_aorta.run.evidence import CHECKS

PARSERS = ("auto", "timeline")


def fleet_of(settings: Settings) -> Fleet:
    """Make the fleet that a configuration asks for; nothing is started.

    Raises:
        ConfigError: this version has no such transport.
    """
    transport = settings.cluster.transport
    if transport != "local":
        raise ConfigError(
            [
                Fault(
                    "cluster.transport",
                    f"{transport} is not in this version; run on the node itself, without `cluster`",
                )
            ]
        )
    return Fleet(
        {host.name: LocalTransport() for host in settings.cluster.hosts}, lease_seconds=settings.config.lease_seconds
    )


def engine_of(settings: Settings) -> Engine:
    """Choose the container engine.

    Raises:
        ConfigError: this version has no such engine.
    """
    container = settings.config.container
    if container is not None and container.runtime.name != "none":
        raise ConfigError(
            [
                Fault(
                    "container.runtime.name",
                    f"{container.runtime.name} is not in this version; without `container` all runs on the host itself",
                )
            ]
        )
    return Bare()


def refuse_unknown(settings: Settings) -> None:
    """Refuse what the configuration asks for and this version does not do; a knob is never ignored.

    Raises:
        ConfigError: every such field.
    """
    config = settings.config
    faults = []
    if config.analysis.parser not in PARSERS:
        faults.append(
            Fault(
                "analysis.parser", f"{config.analysis.parser} is not in this version; use one of {', '.join(PARSERS)}"
            )
        )
    for name in config.evidence:
        if name not in CHECKS:
            near = difflib.get_close_matches(name, CHECKS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(CHECKS)}"
            faults.append(Fault(f"evidence.{name}", f"no check of this name in this version{hint}"))
    if faults:
        raise ConfigError(faults)
