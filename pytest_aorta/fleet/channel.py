"""Channel: one running node program, spoken to in lines; each request ends with an answer, an error or its deadline."""

from __future__ import annotations

import itertools
import queue
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from pytest_aorta.errors import CommandFailed, HostError, LeaseLost, StoodStill, TimedOut, Unreachable
from pytest_aorta.fleet.ask import Answer, Ask, Event, EventKind
from pytest_aorta.fleet.standstill import Standstill
from pytest_aorta.fleet.transport import Pipes
from pytest_aorta.node.protocol import VERSION, Assembler, Message, encode, hello

SLACK_S = 1.0  # the node enforces the same deadline, and its answer says more
NOISE_LINES = 5
LEAVE_TIMEOUT_S = 12.0
END_TIMEOUT_S = 3.0
READER_FIRST_S = 1.0
SLICE_S = 0.5
LEAVE_GRACE_S = 5.0
BROKE = "the channel broke: "

_EVENT_KINDS: dict[object, EventKind] = {"exited": "exited", "lines": "lines", "said": "said"}


class Pending:
    """A request on its way."""

    def __init__(self, host: str, ask: Ask) -> None:
        self._host = host
        self._ask = ask
        self._deadline_s = time.monotonic() + ask.timeout_s + SLACK_S
        self._done = threading.Event()
        self._outcome: Answer | HostError | None = None

    def finish(self, outcome: Answer | HostError) -> None:
        """Set the outcome; the first one counts."""
        if self._outcome is None:
            self._outcome = outcome
            self._done.set()

    def wait(self) -> Answer | HostError:
        """Wait for the outcome, no longer than the deadline."""
        while not self._done.is_set():
            left_s = self._deadline_s - time.monotonic()
            if left_s <= 0:
                self.finish(TimedOut(self._host, f"{self._ask.do}: no answer within {self._ask.timeout_s:g} s"))
            else:
                self._done.wait(min(left_s, SLICE_S))
        if self._outcome is None:
            raise RuntimeError("a request was marked as done without an outcome")
        return self._outcome


class Channel:
    """The conversation with one host's node program. A thread reads, another writes, so that nobody is ever blocked."""

    def __init__(
        self, host: str, pipes: Pipes, on_event: Callable[[Event], None], standstill: Standstill | None = None
    ) -> None:
        self.host = host
        self._standstill = standstill
        self.num_reads = 0
        self.token = ""  # what the program marks its processes with
        self._pipes = pipes
        self._on_event = on_event
        self._assembler = Assembler(keep_garbage=NOISE_LINES)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._lost: LeaseLost | None = None
        self._closing = False
        self._greeted = threading.Event()
        self._ended = threading.Event()
        self._refusal = ""
        self._nonce = secrets.token_hex(8)  # what only a program that hears us can say
        self._out: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"aorta-{what}-{host}", daemon=True)
            for what, target in (("read", self._read), ("write", self._write))
        ]
        for thread in self._threads:
            thread.start()
        self._out.put(hello("controller", nonce=self._nonce))

    def greet(self, timeout_s: float) -> None:
        """Wait for the program's hello.

        Raises:
            Unreachable: none came, or one of another version.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self._greeted.wait(min(SLICE_S, max(0.0, deadline_s - time.monotonic()))):
            if time.monotonic() > deadline_s:
                why = self._refusal or f"the node program said no hello within {timeout_s:g} s"
                raise Unreachable(self.host, why + self._heard())
        if self._refusal:
            raise Unreachable(self.host, self._refusal)

    def ask(self, ask: Ask) -> Pending:
        """Send a request."""
        pending = Pending(self.host, ask)
        with self._lock:
            lost = self._lost
            if lost is None:
                number = next(self._numbers)
                self._pending[number] = pending
                self._out.put({"id": number, "do": ask.do, "args": dict(ask.args), "deadline_s": ask.timeout_s})
        if lost is not None:
            pending.finish(lost)
        return pending

    def drop(self, pending: Pending) -> None:
        """Forget a request whose answer nobody waits for any more."""
        with self._lock:
            for number in [number for number, other in self._pending.items() if other is pending]:
                del self._pending[number]

    def ping(self) -> None:
        """Renew the lease; the answer shows that the host is there."""
        self._out.put({"id": 0, "do": "ping"})

    @property
    def loss(self) -> LeaseLost | None:
        """Why nothing can be asked any more, if so."""
        return self._lost

    def lose(self, why: str, *, is_cut: bool = False, is_broken: bool = False) -> None:
        """Give the channel up: fail what is on its way, tell those who wait for events."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = self._loss(why, is_cut=is_cut, is_broken=is_broken)
            waiting = list(self._pending.values())
            self._pending.clear()
        for pending in waiting:
            pending.finish(self._lost)
        if not self._greeted.is_set():
            why = f"the node program could not be started: {why}"
            self._refusal = f"{why}; {self._refusal}" if self._refusal else why
            self._greeted.set()
        elif not self._closing:
            self._on_event(Event(self.host, "lost", {"message": self._lost.reason}))

    def _loss(self, why: str, *, is_cut: bool, is_broken: bool) -> LeaseLost:
        if self._standstill is not None and (seconds := self._standstill.seconds):
            return StoodStill(self.host, seconds, self._standstill.limit_s)
        return LeaseLost(self.host, why, is_cut=is_cut, is_broken=is_broken)

    def close(self) -> None:
        """Have the program end everything and leave; end it by force when it does not.

        Raises:
            OSError: something it left could not be ended.
        """
        self._closing = True
        # One that is just coming up gets the time to say hello, so that it leaves in good order and nothing behind.
        if self._lost is None and self._greeted.wait(END_TIMEOUT_S):
            self.ask(Ask("leave", {"grace_s": LEAVE_GRACE_S, "forget": True}, LEAVE_TIMEOUT_S - SLACK_S)).wait()
        self._out.put(None)
        try:
            is_cut = self._lost is not None and self._lost.is_cut
            if not is_cut and not self._pipes.wait(END_TIMEOUT_S):
                self.lose("the node program did not leave and was ended")
            self._pipes.kill()
        finally:
            for thread in self._threads:
                thread.join(END_TIMEOUT_S)
            if not any(thread.is_alive() for thread in self._threads):
                self._pipes.close()

    def _write(self) -> None:
        for number in itertools.count(1):
            message = self._out.get()
            try:
                if message is None:
                    self._pipes.end_input()
                    return
                self._pipes.write(encode(message, number))
            except OSError as error:
                self._ended.wait(READER_FIRST_S)  # whoever reads knows better why
                self.lose(f"{BROKE}{error.strerror or error}{self._heard()}")
                return
            except (TypeError, ValueError) as error:  # what JSON cannot hold; the channel itself is well
                self._fail(message, f"{message.get('do')} cannot be sent: {error}" if message else str(error))

    def _fail(self, message: Message | None, why: str) -> None:
        pending = self._taken((message or {}).get("id"))
        if pending is not None:
            pending.finish(CommandFailed(self.host, why))

    def _read(self) -> None:
        try:
            while data := self._pipes.read():
                self.num_reads += 1
                for message in self._assembler.feed(data):
                    self._take(message)
        except OSError as error:
            self.lose(f"{BROKE}{error.strerror or error}{self._heard()}", is_cut=True, is_broken=True)
        else:
            self.lose(f"the node program ended{self._heard()}")
        finally:
            self._ended.set()

    def _take(self, message: Message) -> None:
        if "hello" in message:
            self._take_hello(message)
        elif not self._greeted.is_set():
            return
        elif "event" in message:
            kind = _EVENT_KINDS.get(message.pop("event"))
            if kind is not None:
                self._on_event(Event(self.host, kind, message))
        else:
            pending = self._taken(message.get("id"))
            if pending is not None:
                pending.finish(self._outcome(message))

    def _take_hello(self, message: Message) -> None:
        """Take the hello that answers ours; what only looks like one may come from a shell's start-up file."""
        version = message.get("version")
        answers = message.get("nonce") == self._nonce
        if message["hello"] != hello("node")["hello"] or self._greeted.is_set():
            return
        if version != VERSION:
            self._refusal = f"the node program speaks version {version!r} of the protocol, expected {VERSION}"
        if answers:
            self.token = str(message.get("token", ""))
            self._refusal = "" if version == VERSION else self._refusal
            self._greeted.set()

    def _taken(self, number: Any) -> Pending | None:
        with self._lock:
            return self._pending.pop(number, None) if isinstance(number, int) else None

    def _outcome(self, message: Message) -> Answer | HostError:
        answer, error = message.get("ok"), message.get("error")
        if isinstance(answer, dict):
            return answer
        if not isinstance(error, dict):
            return CommandFailed(self.host, "the node program gave neither an answer nor an error")
        kind = TimedOut if error.get("kind") == "timeout" else CommandFailed
        return kind(self.host, str(error.get("message")))

    def _heard(self) -> str:
        """Give what was printed that is no line of the protocol: usually the reason."""
        words = " / ".join([*self._assembler.garbage, *self._pipes.last_words().splitlines()[-NOISE_LINES:]])
        return f"; it said: {words}" if words else ""
