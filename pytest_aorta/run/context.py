"""RunContext: what the stages of one run share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from pytest_aorta.config.cluster import Host
from pytest_aorta.config.settings import Settings
from pytest_aorta.containers.engine import Engine
from pytest_aorta.errors import (
    AortaError,
    ContainerError,
    FleetError,
    HostError,
    LeaseLost,
    StageError,
    StoodStill,
    TimedOut,
    Unreachable,
)
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Answers, Fleet
from pytest_aorta.fleet.parallel import in_parallel
from pytest_aorta.run.cleaning import clean_hosts
from pytest_aorta.run.fates import Fate, fates_of
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.hosts import boot_id_of
from pytest_aorta.run.interruption import Interruption
from pytest_aorta.run.products import Containers, Product
from pytest_aorta.run.record import RecordKeeper
from pytest_aorta.run.state_dirs import another_state_dir, state_dir_of

log = logging.getLogger("pytest_aorta")

ANSWER_SECONDS = 5
LOOK_LIMIT_S = 60

Undo = Callable[[], object]
P = TypeVar("P", bound=Product)


class Progress(Protocol):
    """Says what is going on, to whoever waits."""

    def __call__(self, text: str) -> None:
        """Show `text` as what is going on now."""


class Problem(NamedTuple):
    """Something that could not be undone, in a sentence; the one host that it is about, if so; what the undo was."""

    said: str
    host: str | None = None
    what: str = ""


def silent(text: str) -> None:
    """Show nothing."""


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One validation: its settings, folder, record, hosts, and how to undo what was done."""

    settings: Settings
    folder: RunFolder
    record: RecordKeeper
    fleet: Fleet
    engine: Engine
    interruption: Interruption
    progress: Progress = silent
    products: dict[type[Product], Product] = field(default_factory=dict)
    in_use: set[str] = field(default_factory=set)
    """Hosts on which something of this run may still run that is ended from its work folder, which stays then."""
    _there: dict[str, bool] = field(default_factory=dict)
    _undo: list[tuple[str, Undo, bool]] = field(default_factory=list)
    _connected: bool = False
    _inside: Fleet | None = None
    _entered_at_s: float = 0.0

    @property
    def group(self) -> tuple[Host, ...]:
        """The hosts that train together, in rank order."""
        return self.settings.cluster.hosts

    @property
    def head(self) -> Host:
        """The host of rank 0."""
        return self.group[0]

    def work_dir(self, host: str) -> str:
        """Our folder on a host: one a run and host, so that it can be removed whole where hosts share their homes."""
        given = self.settings.work_dir(self.folder.run_id)
        folder = given.rstrip("/")
        if not folder.endswith(self.folder.run_id):
            folder = f"{folder}/{self.folder.run_id}"
        return f"{folder}-{host}" if len(self.group) > 1 else folder

    def state_dir(self, host: str) -> str:
        """The folder of a host's node program, beside the work folder so that it outlives that."""
        return state_dir_of(self.work_dir(host))

    def look_dir(self, host: str) -> str:
        """The folder of a node program that only looks whether a host is there."""
        return another_state_dir(self.state_dir(host), "look")

    def connect(self) -> Fleet:
        """Start the node programs, once; they leave when the run is closed."""
        if not self._connected:
            self._connected = True
            self.on_teardown("node programs ended", self.fleet.close)
            try:
                self.fleet.open({host.name: self.state_dir(host.name) for host in self.group})
            except FleetError as error:
                left = [host for host, why in error.by_host.items() if isinstance(why, Unreachable) and why.is_left]
                if left:
                    self.record.not_cleaned(left)
                raise
        return self.fleet

    @property
    def inside(self) -> Fleet:
        """Where the workload lives: the node programs in the containers, without containers those of the hosts."""
        return self._inside or self.connect()

    @property
    def inside_s(self) -> float:
        """Seconds since the workload's place in containers was entered."""
        return time.monotonic() - self._entered_at_s

    @property
    def is_inside(self) -> bool:
        """Tell whether the workload lives in containers."""
        return self._inside is not None

    def rouse(self) -> tuple[str, ...]:
        """Have what stands still inside of containers go on where somebody paused them, so that it can be ended.

        Once the run is interrupted, hosts that say nothing at all are given up: their leases end what runs there. So is
        the inside of a container that stays paused.

        Returns:
            The hosts that were asked so.
        """
        if not self._connected:
            return ()
        still = _silent(self._inside or self.fleet, self.fleet.hosts)
        silent = _silent(self.fleet, still)
        if silent and self.interruption.received is not None:
            self.fleet.give_up(silent, f"nothing was heard from it for {2 * ANSWER_SECONDS} s")
        asked = tuple(host for host in still if host not in silent)
        self.engine.rouse(asked)
        if self._inside is not None:
            self._inside.give_up(self._paused(asked), "its container is paused")
        return asked

    def fates(self, hosts: Iterable[str]) -> dict[str, Fate]:
        """Say what became of the containers of hosts whose node program can be asked; nothing of those that run on."""
        container = self.settings.config.container
        if self._inside is None or container is None:
            return {}
        return fates_of(self.engine, self.fleet, str(container.name), hosts, self.inside_s)

    def _paused(self, hosts: Iterable[str]) -> list[str]:
        return [host for host, seen in self.engine.look(hosts).good.items() if seen is not None and seen.is_paused]

    def _unended(self, roused: Iterable[str]) -> dict[str, str]:
        """Say of hosts in which of their containers nothing can be ended, because somebody paused one that stays."""
        container = self.settings.config.container
        if self._inside is None or container is None or container.lifetime == "per_run":
            return {}
        lost = [host for host in self.fleet.hosts if host in roused or self._inside.loss(host) is not None]
        return {
            host: f"{host}: its container {container.name} is paused, so what runs in it could not be ended; let it go "
            f"on ({self.engine.name} unpause), then run `aorta clean`"
            for host in self._paused(lost)
        }

    def _retold(self, errors: Mapping[str, HostError]) -> dict[str, HostError]:
        """Have hosts whose container does not answer any more say what became of it, where they themselves are well."""
        told = dict(errors)
        doubted = [
            host
            for host, error in errors.items()
            if isinstance(error, (LeaseLost, TimedOut)) and not isinstance(error, StoodStill)
        ]
        for host, fate in self.fates([host for host in doubted if self.fleet.loss(host) is None]).items():
            if isinstance(errors[host], LeaseLost) or fate.is_still:
                why = fate.said.removeprefix(f"{host}: ")
                told[host] = LeaseLost(host, f"{why}; {fate.next_step}")
        return told

    def those_there(self, hosts: Iterable[str]) -> set[str]:
        """Give the lost hosts that answer over a new connection, still in the same boot; each is asked once."""
        hosts = list(hosts)
        losses = {host: loss for host in hosts if (loss := self.fleet.loss(host)) is not None and loss.is_cut}
        calls = {host: lambda host=host: self._look_for(host) for host in losses if host not in self._there}
        for host in in_parallel("looking whether lost hosts answer", calls, LOOK_LIMIT_S):
            self._there[host] = False
        return {host for host in hosts if self._there.get(host, False)}

    def _look_for(self, host: str) -> None:
        launched = self.products.get(Containers)
        boot_id = boot_id_of(self.settings.cluster, host, self.look_dir(host))
        same = launched.log_windows[host].boot_id if isinstance(launched, Containers) else boot_id
        self._there[host] = boot_id is not None and boot_id == same

    def enter(self, inside: Fleet) -> None:
        """Have the workload live in containers from now on, whose node programs are these."""
        self._inside = inside
        self._entered_at_s = time.monotonic()

    def ask(self, plan: Ask | Mapping[str, Ask]) -> Answers:
        """Ask hosts and require an answer of each.

        Raises:
            FleetError: one or more hosts did not answer well; every cause is in it.
        """
        return self.connect().perform(plan).or_raise()

    def ask_inside(self, plan: Ask | Mapping[str, Ask]) -> Answers:
        """Ask where the workload lives and require an answer of each host; raises as `ask` does."""
        answers = self.inside.perform(plan)
        return Answers(answers, self._retold(answers.failed)).or_raise() if answers.failed else answers

    def ask_head(self, ask: Ask) -> Answer:
        """Ask where the workload of the head node lives."""
        return self.ask_inside({self.head.name: ask})[self.head.name]

    def give(self, product: Product) -> None:
        """Hand a product on as soon as it exists, also from a stage that then fails."""
        self.products[type(product)] = product
        self.record.product(product)

    def taken(self, kind: type[P]) -> P:
        """Give the product of that type.

        Raises:
            StageError: no stage gave it.
        """
        product = self.products.get(kind)
        if not isinstance(product, kind):
            raise StageError(f"no {kind.__name__} in this session")
        return product

    def on_teardown(self, what: str, undo: Undo, *, is_inside: bool = False) -> None:
        """Register how to undo something; teardown does it newest first. `what` names it when undone.

        `is_inside`: it needs the workload's place in containers, and is not done where that stands still.
        """
        self._undo.append((what, undo, is_inside))

    def close(self) -> tuple[list[str], list[Problem]]:
        """Undo everything that is still registered; harmless when called again.

        Returns:
            What was undone, and what could not be. Every registered undo is tried.
        """
        done: list[str] = []
        problems: list[Problem] = []
        lost: dict[str, LeaseLost] = {}
        silent: set[str] = set()
        there: set[str] = set()
        with self.interruption.held():
            paused = self._unended(self.rouse()) if self._undo else {}
            self.in_use |= paused.keys()
            while self._undo:
                what, undo, is_inside = self._undo.pop()
                lost |= self._lost()  # a fleet that is closed knows of none any more
                try:
                    undo()
                    done.append(f"{what} (not on {', '.join(paused)})" if is_inside and paused else what)
                except (AortaError, OSError) as error:
                    log.warning("teardown: %s: %s", what, error)
                    lost |= self._lost()
                    hosts = _hosts_of(error)
                    self.record.not_cleaned(tuple(hosts))
                    silent |= hosts.keys() & lost.keys()
                    there |= self.those_there(host for host in hosts if host in silent)
                    problems += _told(what, error, {host: why for host, why in hosts.items() if host not in lost})
            if paused:
                self.record.not_cleaned(tuple(paused))
            problems += [Problem(why, host) for host, why in paused.items()]
            there |= {host for host in silent if isinstance(lost[host], StoodStill)}
            if there:
                again = clean_hosts(self.record.document, self.settings)
                done += again.done
                problems += map(Problem, again.problems)
                silent = set()
        lease = f"{self.settings.config.lease_seconds:g}"
        return done, [
            *(
                Problem(
                    f"{host} could not be asked to clean up ({lost[host].reason}); what still runs there ends when the "
                    f"lease of {lease} s is over, a container and folders of this run may stay",
                    host,
                )
                for host in self.fleet.hosts
                if host in silent
            ),
            *problems,
        ]

    def _lost(self) -> dict[str, LeaseLost]:
        return {host: loss for host in self.fleet.hosts if (loss := self.fleet.loss(host)) is not None}


def _silent(fleet: Fleet, hosts: Iterable[str]) -> list[str]:
    """Give the hosts whose node program is not known to be gone and says nothing."""
    failed = fleet.perform({host: Ask("ping", timeout_s=ANSWER_SECONDS) for host in hosts}).failed
    return [host for host, why in failed.items() if isinstance(why, TimedOut)]


def _hosts_of(error: Exception) -> dict[str, str]:
    """Give the hosts that an error is about, each with its cause; none where it is about something else."""
    if isinstance(error, FleetError):
        return {host: str(each) for host, each in error.by_host.items()}
    if isinstance(error, ContainerError):
        return {host: f"{host}: {why}" for host, why in error.by_host.items()}
    return {error.host: str(error)} if isinstance(error, HostError) else {}


def _told(what: str, error: Exception, left: Mapping[str, str]) -> list[Problem]:
    """Say what could not be undone, host by host; only of those hosts of several that are left to be told of."""
    hosts = _hosts_of(error)
    if len(hosts) == len(left) <= 1:
        return [Problem(f"{what}: {error}", next(iter(left), None), what)]
    return [Problem(why if number else f"{what}: {why}", host, what) for number, (host, why) in enumerate(left.items())]
