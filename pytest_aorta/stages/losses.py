"""Losses: hosts whose node program was lost while the workload ran, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_aorta.checks import Account
from pytest_aorta.errors import LeaseLost, StoodStill
from pytest_aorta.fleet.channel import BROKE
from pytest_aorta.run.context import RunContext


@dataclass(frozen=True, slots=True)
class Loss:
    """One host that was lost: what is known of it, on whose account it goes, and what to look at.

    Without a host: pytest itself lost all of them.
    """

    host: str | None
    said: str
    fault: Account
    next_step: str


def losses_of(run: RunContext, hosts: Iterable[str]) -> Iterator[Loss]:
    """Say what became of hosts of which the node program where the workload lived was lost."""
    hosts = list(hosts)
    run.those_there(hosts)  # all at once: each may take its time
    yield from dict.fromkeys(loss_of(run, host) or _inside(run, host) for host in hosts)


def loss_of(run: RunContext, host: str) -> Loss | None:
    """Say what became of a host that answered once and cannot be asked any more; None while it can.

    A host that answers over a new connection is not to blame. One that is silent while others are heard is on the
    cluster's account. When none is heard any more it may as well be the way from here to them, which says nothing about
    the hosts. A container that is paused, or whose engine hangs, is as silent, and its host is well.
    """
    lost = run.fleet.loss(host)
    if lost is None:
        return _still(run, host)
    if isinstance(lost, StoodStill):
        return _stood_still(lost)
    if not lost.is_cut:
        return Loss(host, f"{host}: {lost.reason}", "rig", f"who ended it? Look for the OOM killer on {host}")
    if run.those_there([host]):
        return _unlinked(host, lost) if lost.is_broken else _stood_apart(host, lost)
    are_heard = any(run.fleet.loss(each.name) is None for each in run.group)
    said = f"{host}: {lost.reason}: it is down or cut off"
    return Loss(host, said, "cluster" if are_heard else "rig", f"look at the power, the console and the link of {host}")


def _unlinked(host: str, lost: LeaseLost) -> Loss:
    why = lost.reason.removeprefix(BROKE)
    said = f"{host}: its SSH session ended ({why}), and the host answers over a new one"
    return Loss(host, said, "rig", f"who ended it? Look at the log of sshd on {host}: was it restarted, or killed?")


def _stood_apart(host: str, lost: LeaseLost) -> Loss:
    said = f"{host}: {lost.reason}, yet the host answers over a new connection"
    step = f"did its link stand still, or did somebody stop sshd's session or our node program on {host}? Look at both"
    return Loss(host, said, "rig", step)


def _stood_still(lost: StoodStill) -> Loss:
    return Loss(None, str(lost), "rig", "keep pytest running (no Ctrl-Z, no sleep of its machine)")


def _still(run: RunContext, host: str) -> Loss | None:
    """Tell of the container of a host that can still be asked, should it stand still, or its engine."""
    silent = run.inside.loss(host)
    if silent is None or not silent.is_cut:
        return None
    fate = run.fates([host]).get(host)
    return Loss(host, fate.said, "rig", fate.next_step) if fate is not None and fate.is_still else None


def _inside(run: RunContext, host: str) -> Loss:
    """Look at the container of a host that can still be asked."""
    why = run.inside.loss(host) or LeaseLost(host, "the node program ended")
    if isinstance(why, StoodStill):
        return _stood_still(why)
    fate = run.fates([host]).get(host)
    if fate is not None:
        return Loss(host, fate.said, "rig", fate.next_step)
    container = run.settings.config.container
    name = f"container {container.name}" if container is not None else "container"
    said = f"{host}: in its {name}, {why.reason}"
    return Loss(host, said, "rig", f"who ended it? Look for the OOM killer on {host}")
