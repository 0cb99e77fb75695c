"""Losses: hosts whose node program was lost while the workload ran, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_aorta.checks import Account
from pytest_aorta.containers.causes import cause
from pytest_aorta.errors import LeaseLost, StoodStill
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.channel import BROKE
from pytest_aorta.run.context import RunContext

LOOK_SECONDS = 15
STARTED_AT = 19  # which field of /proc/PID/stat, counted from the one after the name
TICKS_A_SECOND = 100  # what Linux tells user space on all machines with GPUs
ENDED = re.compile(r"no such container|is not running|container state improper", re.IGNORECASE)
LONG_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


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
    yield from dict.fromkeys(loss_of(run, host) or _inside(run, host) for host in hosts)


def loss_of(run: RunContext, host: str) -> Loss | None:
    """Say what became of a host that answered once and cannot be asked any more; None while it can.

    A host that answers over a new connection is not to blame. One that is silent while others are heard is on the
    cluster's account. When none is heard any more it may as well be the way from here to them, which says nothing about
    the hosts.
    """
    lost = run.fleet.loss(host)
    if lost is None:
        return None
    if isinstance(lost, StoodStill):
        return _stood_still(lost)
    if not lost.is_cut:
        return Loss(host, f"{host}: {lost.reason}", "rig", f"who ended it? Look for the OOM killer on {host}")
    if run.is_there(host):
        return _unlinked(host, lost)
    are_heard = any(run.fleet.loss(each.name) is None for each in run.group)
    said = f"{host}: {lost.reason}: it is down or cut off"
    return Loss(host, said, "cluster" if are_heard else "rig", f"look at the power, the console and the link of {host}")


def _unlinked(host: str, lost: LeaseLost) -> Loss:
    why = lost.reason.removeprefix(BROKE)
    said = f"{host}: its SSH session ended ({why}), and the host answers over a new one"
    return Loss(host, said, "rig", f"who ended it? Look at the log of sshd on {host}: was it restarted, or killed?")


def _stood_still(lost: StoodStill) -> Loss:
    return Loss(None, str(lost), "rig", "keep pytest running (no Ctrl-Z, no sleep of its machine)")


def _age_s(text: str) -> float | None:
    """Give how long ago the first process of a container was started, from its /proc/1/stat and /proc/uptime."""
    status, _, uptime = text.strip().rpartition("\n")
    try:
        started_ticks = int(status.rpartition(")")[2].split()[STARTED_AT])
        return float(uptime.split()[0]) - started_ticks / TICKS_A_SECOND
    except (ValueError, IndexError):
        return None


def _inside(run: RunContext, host: str) -> Loss:
    """Look at the container of a host that can still be asked."""
    container = run.settings.config.container
    name = f"container {container.name}" if container is not None else "container"
    why = run.inside.loss(host) or LeaseLost(host, "the node program ended")
    if isinstance(why, StoodStill):
        return _stood_still(why)
    look = run.engine.argv(host, ["cat", "/proc/1/stat", "/proc/uptime"])
    answers = run.fleet.perform({host: Ask("run", {"argv": look, "timeout_s": LOOK_SECONDS}, LOOK_SECONDS + 5)})
    if host in answers and answers[host]["exit_code"] == 0:
        age_s = _age_s(str(answers[host]["stdout"]))
        if age_s is not None and age_s < run.inside_s:
            said = f"{host}: its {name} was restarted {age_s:.0f} s ago, while the workload ran in it"
            return Loss(host, said, "rig", f"who restarted it? Look at the engine on {host} (its events, its log)")
        said = f"{host}: in its {name}, {why.reason}"
        return Loss(host, said, "rig", f"who ended it? Look for the OOM killer on {host}")
    if host in answers:
        found = cause(str(answers[host]["stderr"])) if not answers[host]["timed_out"] else "the engine does not answer"
    else:
        found = answers.failed[host].reason
    found = LONG_ID.sub(r"\1", found)
    what = "ended while the workload ran in it" if ENDED.search(found) else "cannot be entered any more"
    return Loss(
        host,
        f"{host}: its {name} {what} ({found})",
        "rig",
        f"who stopped it? Look at the engine on {host} (its events, its log)",
    )
