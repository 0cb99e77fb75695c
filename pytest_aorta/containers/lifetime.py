"""Lifetime: what is done about a container of the wanted name, by whose it is and whether its run still lives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_aorta.containers.outcome import by_host
from pytest_aorta.containers.spec import KEPT_LABEL, RUN_LABEL, STATE_LABEL, Lifetime
from pytest_aorta.errors import ContainerError

AT_REST = frozenset({"created", "exited", "configured", "initialized", "stopped"})
NO_STATE = f"it has no label {STATE_LABEL} with an absolute path"
BY_HAND = "remove it by hand or choose another container.name"


@dataclass(frozen=True, slots=True)
class Found:
    """One container on a host, as its engine describes it; `image` is what was asked for, `image_id` what runs."""

    container_id: str
    name: str
    state: str
    image: str
    image_id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    exit_code: int = 0

    @property
    def is_running(self) -> bool:
        """Tell whether something can be run inside."""
        return self.state == "running"

    @property
    def is_paused(self) -> bool:
        """Tell whether somebody has it stand still."""
        return self.state == "paused"

    def is_of(self, image: str) -> bool:
        """Tell whether it was made of an image of that name, the names that a client fills in left aside."""
        return _plain(self.image) == _plain(image)

    @property
    def run(self) -> str:
        """The id of the run that started it; empty: it is not ours."""
        return self.labels.get(RUN_LABEL, "")

    @property
    def state_dir(self) -> str:
        """The state folder of the node program that registered it; empty where `~` leaves open in whose home."""
        folder = self.labels.get(STATE_LABEL, "")
        return folder if folder.startswith("/") else ""

    @property
    def is_kept(self) -> bool:
        """Tell whether it was started to outlive its run."""
        return KEPT_LABEL in self.labels


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done on a host; `found` is what is attached to, started again, or removed before `create`."""

    do: Literal["attach", "restart", "create"]
    found: Found | None = None


def in_doubt(lifetime: Lifetime, runs: Mapping[str, str], found: Mapping[str, Found | None]) -> dict[str, str]:
    """Give the state folders, by host, of runs whose container is in the way: do they still live?"""
    if lifetime != "per_run":
        return {}
    return {
        host: each.state_dir
        for host, each in found.items()
        if each is not None and each.run not in {"", runs[host]} and each.state_dir and not each.is_kept
    }


def decide(
    lifetime: Lifetime, runs: Mapping[str, str], found: Mapping[str, Found | None], alive: Mapping[str, bool | str]
) -> dict[str, Step]:
    """Decide for every host of `found`; `runs` has the id of the run that wants a container there.

    `alive` has the answers for those `in_doubt`, or in a sentence why there is none.

    Raises:
        ContainerError: what is there may be neither used nor removed.
    """
    if lifetime == "no_launch":
        return _all_running(found, "lifetime no_launch never starts one; start it, or set another container.lifetime")
    if lifetime == "persistent":
        return _attached_or_started(found)
    refused: dict[str, str] = {}
    steps: dict[str, Step] = {}
    for host, each in found.items():
        why = "" if each is None else _why_not_removed(each, runs[host], alive.get(host, NO_STATE))
        if why:
            refused[host] = why
        steps[host] = Step("create", each)
    if refused:
        raise ContainerError(f"could not start the container: {by_host(refused)}", refused)
    return steps


def _all_running(found: Mapping[str, Found | None], next_step: str) -> dict[str, Step]:
    absent = {host: _said(each) for host, each in found.items() if each is None or not each.is_running}
    if absent:
        what = f"the container has to run everywhere and does not: {by_host(absent)}"
        raise ContainerError(f"{what}; {next_step}", absent)
    return {host: Step("attach", each) for host, each in found.items()}


def _attached_or_started(found: Mapping[str, Found | None]) -> dict[str, Step]:
    if any(each is not None and each.is_running for each in found.values()):
        return _all_running(
            found, "starting the others would mix old state with new; start or remove it on all of them by hand"
        )
    refused = {
        host: f"{_said(each)} and {why}"
        for host, each in found.items()
        if each is not None and (why := _why_not_restarted(each))
    }
    if refused:
        raise ContainerError(f"could not start the container: {by_host(refused)}", refused)
    return {host: Step("create") if each is None else Step("restart", each) for host, each in found.items()}


def _why_not_restarted(found: Found) -> str:
    if not found.run:
        return f"was not started by us; start it, {BY_HAND}"
    if not found.is_kept:
        return f"belongs to run {found.run}, which is not persistent; {BY_HAND}"
    return "" if found.state in AT_REST else f"cannot be started from that state; {BY_HAND}"


def _why_not_removed(found: Found, run: str, alive: bool | str) -> str:
    there = f"a container named {found.name} ({found.container_id[:12]}, {found.state}) is there"
    if not found.run:
        return f"{there} and was not started by us; {BY_HAND}"
    if found.is_kept:
        return f"{there}, kept by lifetime persistent since run {found.run}; set that lifetime, {BY_HAND}"
    if found.run == run:
        return ""
    if isinstance(alive, str):
        return f"{there}, and whether its run {found.run} still lives cannot be told ({alive}); {BY_HAND}"
    if alive:
        return f"{there} and belongs to run {found.run}, which still runs; wait for it, end it, or choose another name"
    return ""


def _plain(image: str) -> str:
    name = re.sub(r"^(?:(?:docker\.io|localhost)/)?(?:library/)?", "", image)
    return name if re.search(r"[:@][^/]*$", name) else f"{name}:latest"


def _said(found: Found | None) -> str:
    return "there is none" if found is None else f"{found.name} is there in state {found.state}"
