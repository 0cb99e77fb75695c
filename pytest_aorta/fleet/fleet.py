"""Fleet: all hosts of a run, asked at once, every cause kept."""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pytest_aorta.errors import FleetError, HostError, LeaseLost, TimedOut, Unreachable
from pytest_aorta.fleet.ask import Answer, Ask, Event
from pytest_aorta.fleet.backlog import Backlog
from pytest_aorta.fleet.channel import Channel
from pytest_aorta.fleet.parallel import SLICE_S, in_parallel
from pytest_aorta.fleet.standstill import Standstill
from pytest_aorta.fleet.transport import LeftBehind, Transport
from pytest_aorta.node.files import unwritable
from pytest_aorta.node.requests import sentence

OPEN_TIMEOUT_S = 60.0
OPEN_SLACK_S = 5.0  # a host that says why it was given up says more than this side can
COPY_TIMEOUT_S = 3600.0
CLOSE_TIMEOUT_S = 30.0
OPENING_GRACE_S = 5.0
PINGS_A_LEASE = 6
PING_LIMIT_S = 15.0
SILENT_PINGS = 5


class Answers(Mapping[str, Answer]):
    """The good answers by host, in host order; `failed` has the other hosts that were asked."""

    def __init__(self, answers: Mapping[str, Answer], failed: Mapping[str, HostError]) -> None:
        self._answers = dict(answers)
        self.failed = dict(failed)

    def __getitem__(self, host: str) -> Answer:
        """Give the answer of a host."""
        return self._answers[host]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the hosts that answered well."""
        return iter(self._answers)

    def __len__(self) -> int:
        """Count the hosts that answered well."""
        return len(self._answers)

    def or_raise(self) -> Answers:
        """Give the answers if all are good.

        Raises:
            FleetError: at least one is not.
        """
        if self.failed:
            raise FleetError(self.failed)
        return self


class Fleet:
    """The node programs of all hosts; `transports` are in rank order."""

    def __init__(self, transports: Mapping[str, Transport], *, lease_seconds: float = 120) -> None:
        self.hosts = tuple(transports)
        self._transports = dict(transports)
        self._lease_s = lease_seconds
        self._standstill = Standstill(lease_seconds)
        self._channels: dict[str, Channel] = {}
        self._events = Backlog()
        self._subscribers: dict[tuple[str, str], Callable[[Event], None]] = {}
        self._lock = threading.Lock()
        self._is_open = False
        self._num_opening = 0
        self._opened = threading.Condition(self._lock)
        self._silent_s: dict[str, float] = {}
        self._stop_pings = threading.Event()
        self._pinger: threading.Thread | None = None

    def open(self, state_dirs: Mapping[str, str], timeout_s: float = OPEN_TIMEOUT_S) -> None:
        """Start the node program of every host; `state_dirs` says where each keeps its record.

        Raises:
            FleetError: one or more could not be started; those that could have left again.
        """
        errors: dict[str, HostError] = {}
        complete = False
        try:
            errors = self._open_all(state_dirs, timeout_s)
            complete = not errors
        finally:
            if not complete:
                try:
                    self.close()
                except FleetError as error:  # why a host could not be opened counts
                    errors = error.by_host | errors
        if errors:
            raise FleetError({host: errors[host] for host in self.hosts if host in errors})
        self._keep()

    def open_reachable(self, state_dirs: Mapping[str, str], timeout_s: float = OPEN_TIMEOUT_S) -> dict[str, HostError]:
        """Start the node programs of those hosts that can be reached, and give why the others cannot.

        What was started on these nevertheless, and says hello too late, leaves again.
        """
        errors = self._open_all(state_dirs, timeout_s)
        late = {host: channel.close for host in errors if (channel := self._channels.get(host)) is not None}
        in_parallel("leaving", late, CLOSE_TIMEOUT_S, len(late))  # why a host could not be opened counts
        for host in late:
            self._channels.pop(host, None)
        self._keep()
        return errors

    def perform(self, plan: Ask | Mapping[str, Ask]) -> Answers:
        """Ask hosts (one Ask: all of them) and wait until each has answered or its deadline is over."""
        asks = dict.fromkeys(self.hosts, plan) if isinstance(plan, Ask) else plan
        pending = {}
        for host in sorted(asks, key=self._position):
            channel = self._channels.get(host)
            pending[host] = (channel, channel.ask(asks[host]) if channel is not None else None)
        answers: dict[str, Answer] = {}
        failed: dict[str, HostError] = {}
        for host, (channel, request) in pending.items():
            if channel is None or request is None:
                failed[host] = self._unreachable(host)
                continue
            outcome = request.wait()
            if isinstance(outcome, TimedOut) and self._stood_still():
                outcome = channel.loss or outcome
            if isinstance(outcome, HostError):
                channel.drop(request)
                failed[host] = outcome
            else:
                answers[host] = outcome
        return Answers(answers, failed)

    def loss(self, host: str) -> LeaseLost | None:
        """Give why a host that answered once cannot be asked any more; None while it can, or never could."""
        channel = self._channels.get(host)
        return channel.loss if channel is not None else None

    def silent(self) -> dict[str, float]:
        """Give the hosts that left a ping unanswered until the next one was due, with the seconds of their silence."""
        return dict(self._silent_s)

    def give_up(self, hosts: Iterable[str], why: str) -> None:
        """Ask nothing of hosts any more that are down or cut off, without waiting for that to be certain."""
        for host in hosts:
            if (channel := self._channels.get(host)) is not None:
                channel.lose(why, is_cut=True)

    def send(self, local: Path, remote: Mapping[str, str] | str, timeout_s: float = COPY_TIMEOUT_S) -> None:
        """Copy a file to hosts: to all of them when `remote` is one path.

        Raises:
            FleetError: one or more did not get it.
        """
        paths = dict.fromkeys(self.hosts, remote) if isinstance(remote, str) else remote
        calls = {
            host: lambda host=host, path=path: self._transport(host).put(local, path) for host, path in paths.items()
        }
        errors = in_parallel(f"sending {local.name}", calls, timeout_s)
        if errors:
            raise FleetError(errors)

    def fetch(self, host: str, remote: str, local: Path, timeout_s: float = COPY_TIMEOUT_S) -> None:
        """Copy a file from a host; `local` appears whole or not at all.

        Raises:
            HostError: it was not brought here.
        """
        errors = in_parallel(f"fetching {remote}", {host: lambda: self._transport(host).get(remote, local)}, timeout_s)
        if errors:
            raise errors[host]

    def token(self, host: str) -> str:
        """Give what the node program of a host marks the processes that it starts with; empty when none runs."""
        channel = self._channels.get(host)
        return channel.token if channel is not None else ""

    def subscribe(self, host: str, name: str, take: Callable[[Event], None]) -> None:
        """Have what a host says of one name, and its loss, given to `take` by the reading thread at once."""
        self._subscribers[host, name] = take

    def events(self, timeout_s: float) -> list[Event]:
        """Give what the hosts said since the last call; wait up to `timeout_s` for something.

        A signal handler that raises ends the wait.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            found = self._events.take(min(max(left_s, 0.0), SLICE_S))
            if found or (left_s <= 0 and not self._stood_still()):
                return found

    def close(self) -> None:
        """Have all node programs end what they started and leave; harmless when called again.

        Raises:
            FleetError: on one or more hosts something could not be ended.
        """
        self._stop_pings.set()
        self._standstill.expect_no_more()
        with self._lock:
            self._is_open = False
            # Programs that are being started find that they are too late, and have to be sent away again.
            self._opened.wait_for(lambda: not self._num_opening, OPENING_GRACE_S)
            channels = dict(self._channels)
        closings = {host: channel.close for host, channel in channels.items()}
        errors = in_parallel("leaving", closings, CLOSE_TIMEOUT_S, len(closings))  # they mostly wait
        for host in channels:
            self._channels.pop(host, None)
        if self._pinger is not None:
            self._pinger.join()
            self._pinger = None
        if errors:
            raise FleetError(errors)

    def _open_all(self, state_dirs: Mapping[str, str], timeout_s: float) -> dict[str, HostError]:
        self._is_open = True
        calls = {host: lambda host=host: self._open(host, state_dirs[host], timeout_s) for host in self.hosts}
        return in_parallel("start of the node program", calls, timeout_s + OPEN_SLACK_S)

    def _keep(self) -> None:
        """Begin to renew the leases."""
        self._standstill.seen()
        self._stop_pings = threading.Event()
        self._pinger = threading.Thread(target=self._ping, args=(self._stop_pings,), name="aorta-ping", daemon=True)
        self._pinger.start()

    def _open(self, host: str, state_dir: str, timeout_s: float) -> None:
        with self._lock:
            self._num_opening += 1
        try:
            channel = self._start(host, state_dir)
        finally:
            with self._lock:
                self._num_opening -= 1
                self._opened.notify_all()
        channel.greet(timeout_s)

    def _start(self, host: str, state_dir: str) -> Channel:
        try:
            pipes = self._transports[host].start(self._lease_s, state_dir)
        except LeftBehind as error:
            raise Unreachable(host, str(error), is_left=True) from error
        except OSError as error:
            ours = posixpath.basename(state_dir) in str(error.filename)
            raise Unreachable(host, unwritable(str(error.filename), error) if ours else sentence(error)) from error
        channel = Channel(host, pipes, self._on_event, self._standstill)
        with self._lock:
            too_late = not self._is_open  # the opening was interrupted and closed meanwhile
            if not too_late:
                self._channels[host] = channel
        if too_late:
            channel.close()
            raise LeaseLost(host, "its node program came up after the fleet was closed")
        return channel

    def _on_event(self, event: Event) -> None:
        subscribers = list(self._subscribers.items())
        if event.kind == "lost":
            for (host, _), take in subscribers:
                if host == event.host:
                    take(event)
        elif (subscriber := self._subscribers.get((event.host, str(event.data.get("name"))))) is not None:
            subscriber(event)
            return
        self._events.put(event)

    def _ping(self, stop: threading.Event) -> None:
        """Renew every lease; give up a host that has not said a word to several pings."""
        interval_s = min(self._lease_s / PINGS_A_LEASE, PING_LIMIT_S)
        silent = dict.fromkeys(self._channels, 0)
        seen = {host: channel.num_reads for host, channel in self._channels.items()}
        channels = dict(self._channels)
        while not stop.wait(interval_s):
            self._standstill.seen()
            self._stood_still()
            for host, channel in channels.items():
                silent[host] = 0 if channel.num_reads != seen[host] else silent[host] + 1
                seen[host] = channel.num_reads
                self._silent_s.pop(host, None)
                if silent[host] > 1:
                    self._silent_s[host] = silent[host] * interval_s
                if silent[host] > SILENT_PINGS:
                    channel.lose(f"nothing was heard from it for {silent[host] * interval_s:.0f} s", is_cut=True)
                else:
                    channel.ping()

    def _stood_still(self) -> bool:
        """Tell whether hosts are lost only now because this process did not run; they have ended by themselves."""
        channels = [channel for channel in list(self._channels.values()) if channel.loss is None]
        is_still = bool(channels) and self._standstill.seconds > 0
        if is_still:
            for channel in channels:
                channel.lose("")
        return is_still

    def _transport(self, host: str) -> Transport:
        if host not in self._transports:
            raise self._unreachable(host)
        return self._transports[host]

    def _unreachable(self, host: str) -> HostError:
        if host in self._transports:
            return LeaseLost(host, "its node program does not run; open the fleet first")
        return Unreachable(host, f"there is no such host in this fleet, which has {', '.join(self.hosts)}")

    def _position(self, host: str) -> int:
        return self.hosts.index(host) if host in self.hosts else len(self.hosts)
