"""Containers: the life of a run's containers on all hosts, the same whatever drives them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_aorta.containers.causes import cause
from pytest_aorta.containers.driver import REMOVE_TIMEOUT_S, SILENT_TIMEOUT_S, Driver
from pytest_aorta.containers.lifetime import Found, Step, decide, in_doubt
from pytest_aorta.containers.outcome import Outcome, by_host
from pytest_aorta.containers.soundness import faults
from pytest_aorta.containers.spec import KEPT_LABEL, RUN_LABEL, Lifetime, Spec
from pytest_aorta.errors import ContainerError
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet

TAKEN_BACK = "what was started for this launch could not be taken back"


class Containers:
    """An engine, made of a driver and a lifetime. It holds the ids of what it made until that is removed."""

    def __init__(self, name: str, driver: Driver, lifetime: Lifetime) -> None:
        self.name = name
        self._driver = driver
        self._lifetime = lifetime
        self._fleet: Fleet | None = None
        self._ids: dict[str, str] = {}
        self._made: dict[str, str] = {}
        self._asked: dict[str, Spec] = {}  # to make one, and did not say its id: it may be there all the same
        self._restarted: dict[str, str] = {}
        self._otherwise: dict[str, str] = {}

    def launch(self, fleet: Fleet, specs: Mapping[str, Spec]) -> Mapping[str, str]:
        """Bring up the container on every host, or find it running, by the lifetime."""
        wanted = self._sound(fleet, specs)
        self._fleet = fleet
        self._driver.reach(fleet).of(wanted, f"use {self.name}")
        names = {host: spec.name for host, spec in wanted.items()}
        runs = {host: spec.labels[RUN_LABEL] for host, spec in wanted.items()}
        found = self._driver.find(names).of(wanted, "look for the container")
        steps = decide(self._lifetime, runs, found, self._alive(fleet, in_doubt(self._lifetime, runs, found)))
        with contextlib.ExitStack() as unless_up:
            unless_up.callback(self._take_back)  # harmless when it is done already
            try:
                seen = self._bring_up(fleet, wanted, steps)
            except ContainerError as error:
                if left := self._take_back():
                    raise ContainerError(f"{error}; {TAKEN_BACK}: {by_host(left)}") from error
                raise
            unless_up.pop_all()
        self._ids = {host: each.container_id for host, each in seen.items()}
        if self._lifetime != "per_run":
            self._tell_undone(fleet, self._made)
            self._made = {}
        self._asked = {}
        self._restarted = {}
        self._otherwise = {
            host: f"its container, found there, is of image {each.image} ({_short(each.image_id)}), not of "
            f"{wanted[host].image} as container.image says"
            for host, each in seen.items()
            if steps[host].do != "create" and not each.is_of(wanted[host].image)
        }
        return {host: _described(steps[host], seen[host], runs[host]) for host in wanted}

    def otherwise(self) -> Mapping[str, str]:
        """Give the hosts whose container was found there and is of another image than wanted, in words."""
        return dict(self._otherwise)

    def argv(self, host: str, argv: Sequence[str]) -> list[str]:
        """Give the argument list that, started on the host, runs `argv` inside, its input and output connected."""
        if host not in self._ids:
            raise ContainerError(f"{host}: there is no container yet to run {argv[0] if argv else 'anything'} in")
        return self._driver.inside(host, self._ids[host], argv)

    def look(self, hosts: Iterable[str]) -> Outcome[Found | None]:
        """Look at the containers of hosts that `launch` has brought up."""
        ids = {host: self._ids[host] for host in hosts if host in self._ids}
        return self._driver.inspect(ids) if ids else Outcome({}, {})  # before a launch the driver knows no hosts

    def rouse(self, hosts: Iterable[str]) -> None:
        """Have the containers of hosts go on should somebody have paused them."""
        ids = {host: self._ids[host] for host in hosts if host in self._ids}
        if ids and self._lifetime != "no_launch":
            self._driver.go_on(ids)

    def revive(self, hosts: Iterable[str]) -> Mapping[str, str]:
        """Start what was made once more on hosts where it was ended."""
        wanted = list(hosts)
        foreign = {host: "this run did not start its container" for host in wanted if host not in self._made}
        made = {host: self._made[host] for host in wanted if host in self._made}
        return {**foreign, **self._driver.start(made).failed} if made else foreign

    def remove(self) -> None:
        """Remove what `launch` started, unless the lifetime keeps it; harmless when called again."""
        left = self._take_back()
        if left:
            raise ContainerError(
                f"could not remove the container: {by_host(left)}; `aorta clean` removes it later", by_host=left
            )

    def _sound(self, fleet: Fleet, specs: Mapping[str, Spec]) -> dict[str, Spec]:
        causes = {host: "nothing is said about a container there" for host in fleet.hosts if host not in specs}
        for host, spec in specs.items():
            found = [f"{host} is no host of this fleet"] if host not in fleet.hosts else faults(spec)
            if found:
                causes[host] = " and ".join(found)
        if causes:
            raise ContainerError(f"could not start the container: {by_host(causes)}")
        kept = {KEPT_LABEL: "yes"} if self._lifetime == "persistent" else {}
        return {host: replace(specs[host], labels={**specs[host].labels, **kept}) for host in fleet.hosts}

    def _alive(self, fleet: Fleet, state_dirs: Mapping[str, str]) -> dict[str, bool | str]:
        told = _asked(fleet, {host: Ask("alive", {"path": path}) for host, path in state_dirs.items()})
        return {host: bool(answer["alive"]) for host, answer in told.good.items()} | dict(told.failed)

    def _bring_up(self, fleet: Fleet, specs: Mapping[str, Spec], steps: Mapping[str, Step]) -> dict[str, Found]:
        new = {host: specs[host] for host, step in steps.items() if step.do == "create"}
        ids = {host: step.found.container_id for host, step in steps.items() if step.found is not None}
        stale = {host: ids[host] for host in new if host in ids}
        self._get_images(new)
        self._driver.remove(stale).of(stale, "remove the container of a run that has ended")
        self._tell_undone(fleet, stale)
        self._asked = dict(new)
        created = self._driver.create(new)
        self._made |= created.good
        self._asked = {host: spec for host, spec in new.items() if host not in created.good}
        ids |= created.of(new, "make the container")
        asks = {host: self._undo(host, ids[host]) for host in new}
        _asked(fleet, asks).of(asks, "have the container removed should this run die")
        self._restarted = {host: ids[host] for host, step in steps.items() if step.do == "restart"}
        to_start = {host: ids[host] for host in (*new, *self._restarted)}
        self._driver.start(to_start).of(to_start, "start the container")
        return self._running(ids)

    def _running(self, ids: Mapping[str, str]) -> dict[str, Found]:
        seen = self._driver.inspect(ids).of(ids, "look at the container")
        running = {host: each for host, each in seen.items() if each is not None and each.is_running}
        ended = {host: each for host, each in seen.items() if host not in running}
        if ended:
            words = self._driver.last_words({host: ids[host] for host, each in ended.items() if each is not None}).good
            causes = {host: _said_ended(each, words.get(host, "")) for host, each in ended.items()}
            raise ContainerError(f"could not start the container: {by_host(causes)}", causes)
        return running

    def _get_images(self, specs: Mapping[str, Spec]) -> None:
        images = {host: spec.image for host, spec in specs.items()}
        there = self._driver.has_image(images).of(images, "look for the image")
        missing = {host: specs[host] for host, is_there in there.items() if not is_there}
        names = ", ".join(dict.fromkeys(spec.image for spec in missing.values()))
        self._driver.pull(missing).of(missing, f"get the image {names}")

    def _undo(self, host: str, container_id: str, timeout_s: float = REMOVE_TIMEOUT_S) -> Ask:
        argv = self._driver.removal(host, container_id)
        return Ask("undo", {"name": container_id, "argv": argv, "timeout_s": timeout_s})

    def _tell_undone(self, fleet: Fleet, ids: Mapping[str, str]) -> None:
        """Tell the node programs; one that is gone has removed it already, or will find nothing to remove."""
        _asked(fleet, {host: Ask("undone", {"name": container_id}) for host, container_id in ids.items()})

    def _take_back(self) -> dict[str, str]:
        """Remove what was made and stop what was started again; gives the causes of the hosts where it is left."""
        if self._fleet is None:
            return {}
        left: dict[str, str] = {}
        if self._asked:
            found = self._driver.find({host: spec.name for host, spec in self._asked.items()})
            left |= found.failed
            for host, each in found.good.items():
                if each is not None and each.run == self._asked[host].labels[RUN_LABEL]:
                    self._made[host] = each.container_id
            self._asked = {host: spec for host, spec in self._asked.items() if host in left}
        if self._made:
            removed = self._driver.remove(self._made)
            left |= {host: f"container {self._made[host][:12]}: {why}" for host, why in removed.failed.items()}
            self._tell_undone(self._fleet, {host: self._made[host] for host in removed.good})
            again = {host: self._undo(host, self._made[host], SILENT_TIMEOUT_S) for host in removed.failed}
            _asked(self._fleet, again)  # the node programs try it when they leave; nobody waits for that as long again
            self._made = {host: each for host, each in self._made.items() if host not in removed.good}
            self._ids = {host: each for host, each in self._ids.items() if host not in removed.good}
        if self._restarted:
            stopped = self._driver.stop(self._restarted)
            left |= stopped.failed
            self._restarted = {host: each for host, each in self._restarted.items() if host not in stopped.good}
        return left


def _asked(fleet: Fleet, asks: Mapping[str, Ask]) -> Outcome[Answer]:
    answers = fleet.perform(asks)
    return Outcome(answers, {host: error.reason for host, error in answers.failed.items()})


def _said_ended(found: Found | None, last_words: str) -> str:
    how = "is gone" if found is None else f"state {found.state}, exit code {found.exit_code}"
    said = f", its last words: {cause(last_words)}" if last_words.strip() else ", it said nothing"
    return f"it has ended at once ({how}{said if found is not None else ''}), expected it running"


def _described(step: Step, seen: Found, run: str) -> str:
    did = {"attach": "found running", "restart": "started again", "create": "started"}[step.do]
    text = f"container {seen.name} ({seen.container_id[:12]}) {did}, image {seen.image} ({_short(seen.image_id)})"
    if step.do == "create" and step.found is not None:
        whose = "an earlier launch of this run" if step.found.run == run else f"run {step.found.run}, which has ended,"
        text += f"; one that {whose} had left ({step.found.container_id[:12]}) was removed"
    return text


def _short(image_id: str) -> str:
    return f"sha256:{image_id.removeprefix('sha256:')[:12]}"
