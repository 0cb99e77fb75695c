"""Fates: what became of the containers that a run has entered, where something inside does not answer any more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pytest_aorta.containers.causes import NOT_DONE, cause, not_done
from pytest_aorta.containers.engine import Engine
from pytest_aorta.containers.lifetime import Found
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet

LOOK_SECONDS = 15
STARTED_AT = 19  # which field of /proc/PID/stat, counted from the one after the name
TICKS_A_SECOND = 100  # what Linux tells user space on all machines with GPUs
LONG_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


class Fate(NamedTuple):
    """What became of a host's container, in a sentence, and what to do about it.

    `is_still`: it stands still, or its engine does.
    """

    said: str
    next_step: str
    is_still: bool = False


def fates_of(engine: Engine, fleet: Fleet, name: str, hosts: Iterable[str], inside_s: float) -> dict[str, Fate]:
    """Say what became of the containers of that name; nothing of those that run as they did `inside_s` seconds ago."""
    looked = engine.look(hosts)
    found = {host: _shut(host, name, why) for host, why in looked.failed.items()}
    for host, seen in looked.good.items():
        if (fate := _at_rest(engine, host, name, seen)) is not None:
            found[host] = fate
    running = [host for host in looked.good if host not in found]
    return {**found, **dict(_begun_anew(engine, fleet, name, running, inside_s))}


def _at_rest(engine: Engine, host: str, name: str, seen: Found | None) -> Fate | None:
    if seen is None:
        return Fate(f"{_its(host, name)} is gone (no such container)", _who("removed", host))
    if seen.is_paused:
        step = f"let it go on: `{engine.name} unpause {name}` on {host}; who paused it?"
        return Fate(f"{_its(host, name)} is paused", step, is_still=True)
    if seen.is_running:
        return None
    return Fate(f"{_its(host, name)} is not running ({seen.state}, exit code {seen.exit_code})", _who("stopped", host))


def _begun_anew(
    engine: Engine, fleet: Fleet, name: str, hosts: Iterable[str], inside_s: float
) -> Iterator[tuple[str, Fate]]:
    """Tell of those that were begun after we had entered them, or cannot be entered again."""
    argv = ["cat", "/proc/1/stat", "/proc/uptime"]
    asks = {host: {"argv": engine.argv(host, argv), "timeout_s": LOOK_SECONDS} for host in hosts}
    answers = fleet.perform({host: Ask("run", asked, LOOK_SECONDS + 5) for host, asked in asks.items()})
    for host, error in answers.failed.items():
        yield host, _shut(host, name, error.reason)
    for host, answer in answers.items():
        if answer["exit_code"] != 0:
            timed_out = bool(answer["timed_out"])
            why = not_done(f"{engine.name} exec", LOOK_SECONDS) if timed_out else cause(str(answer["stderr"]))
            yield host, _shut(host, name, why)
            continue
        age_s = _age_s(str(answer["stdout"]))
        if age_s is not None and age_s < inside_s:
            said = f"{_its(host, name)} was restarted {age_s:.0f} s ago, while the run lived in it"
            yield host, Fate(said, _who("restarted", host))


def _shut(host: str, name: str, why: str) -> Fate:
    short = LONG_ID.sub(r"\1", why)
    if NOT_DONE.match(why):
        said, _, next_step = short.partition("; ")
        step = next_step.replace("there", f"on {host}", 1)
        return Fate(f"{_its(host, name)} cannot be looked at ({said})", step, is_still=True)
    return Fate(f"{_its(host, name)} cannot be entered any more ({short})", _who("stopped", host))


def _its(host: str, name: str) -> str:
    return f"{host}: its container {name}"


def _who(did: str, host: str) -> str:
    return f"who {did} it? Look at the engine on {host} (its events, its log)"


def _age_s(text: str) -> float | None:
    """Give how long ago the first process of a container was started, from its /proc/1/stat and /proc/uptime."""
    status, _, uptime = text.strip().rpartition("\n")
    try:
        started_ticks = int(status.rpartition(")")[2].split()[STARTED_AT])
        return float(uptime.split()[0]) - started_ticks / TICKS_A_SECOND
    except (ValueError, IndexError):
        return None
