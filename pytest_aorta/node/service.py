"""Service: the loop of the node program, which waits for lines, children, logs, deadlines and the end of its lease."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from .captures import OUTPUT_LIMIT_BYTES, Capture
from .children import Children
from .endings import STEP_S, Ending
from .groups import Groups
from .holds import Holds
from .ports import Offers
from .processes import signal_name, table
from .protocol import VERSION, Message, hello
from .relays import Relays
from .requests import FAULTS, Answer, CommandError, Request, sentence
from .state import StateFolder, forget
from .undoings import Undoings, undo_now, why_not_undone
from .wire import Wire

TAIL_STEP_S = 0.1
IDLE_STEP_S = 1.0
LEASE_GRACE_S = 2.0
WORKER_LIMIT = 16
RUN_LIMIT = 64
GOODBYE_S = 2.0

Commands = Mapping[str, Callable[["Service", Request], Optional[Answer]]]
Work = Callable[[], Any]
Done = Callable[[Any], None]
Undone = Callable[[List[str], Dict[str, str]], None]


class Service:
    """One node program: the wire, the groups it started, the requests it has not answered yet."""

    def __init__(self, commands: Commands, in_fd: int, out_fd: int, lease_s: float, folder: StateFolder) -> None:
        self.folder = folder
        self.selector = selectors.PollSelector()
        self.wire = Wire(self.selector, in_fd, out_fd)
        self.children = Children(folder.token)
        self.groups = Groups(self.children, folder, self._event)
        self.relays = Relays(self.groups, self.selector, self._event)
        self.holds = Holds()
        self.offers = Offers()
        self._commands = commands
        self._lease_s = lease_s
        self._heard_at_s = time.monotonic()
        self._heard = 0
        self._greeted: object = None
        self._requests: list[Request] = []
        self._captures: list[tuple[Capture, Done]] = []
        self._endings: list[tuple[Ending, Callable[[], None]]] = []
        self._results: queue.SimpleQueue[tuple[Request, Done, Any, CommandError | None]] = queue.SimpleQueue()
        self._num_workers = 0
        self._why = ""
        self._finished = False
        self.forget = False  # whether the state folder goes too when the program leaves and nothing is left over
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        self.selector.register(self._wake_out, selectors.EVENT_READ, self._wake_up)

    def serve(self) -> None:
        """Serve until the controller leaves or is gone; everything that was started is ended before this returns.

        So it is before an error of this program itself is raised.
        """
        try:
            self._serve()
        finally:
            if not self._finished:
                self._break_off()

    def _serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)  # its arrival is seen through the wake-up pipe
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._wake_in, warn_on_full_buffer=False)
        self.groups.record()
        self.wire.send(self._hello())
        while not self._finished:
            self._turn()
        until_s = time.monotonic() + GOODBYE_S
        while not self.wire.drained and time.monotonic() < until_s:
            self._wait(STEP_S)

    def _break_off(self) -> None:
        """End and undo everything without the loop, which cannot be trusted any more."""
        ending = self.groups.ending_of_all(LEASE_GRACE_S)
        ending.finish()
        undone, not_undone = undo_now(self.groups.undoings)
        for name in undone:
            self.groups.undoings.forget(name)
        self.groups.record()
        self.folder.write_end({"why": "the node program failed", "left": ending.left, "not_undone": not_undone})

    def work(self, request: Request, work: Work, done: Done | None = None) -> None:
        """Do blocking work in a thread of its own; what it gives is the answer, or what `done` goes on with."""
        if self._num_workers >= WORKER_LIMIT:
            raise CommandError("failed", f"{WORKER_LIMIT} long commands are at work already; ask again later")
        self._num_workers += 1

        def run() -> None:
            result: Any = None
            failure: CommandError | None = None
            try:
                result = work()
            except CommandError as error:
                failure = error
            except FAULTS as error:
                failure = CommandError("failed", f"{request.do}: {sentence(error)}")
            self._results.put((request, done or request.answer, result, failure))
            with contextlib.suppress(OSError):  # full means awake already
                os.write(self._wake_in, b"\0")

        threading.Thread(target=run, daemon=True).start()

    def capture(
        self,
        argv: list[str],
        done: Done,
        *,
        timeout_s: float,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        given: str = "",
        limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> None:
        """Run a command to its end, then call `done` with what it gave."""
        if len(self._captures) >= RUN_LIMIT:
            raise CommandError("failed", f"{RUN_LIMIT} commands run already; ask again later")
        capture = Capture(self.groups, self.selector, timeout_s, limit_bytes)
        capture.start(argv, cwd=cwd, env=env or {}, given=given)
        self._captures.append((capture, done))

    def end(self, names: list[str] | None, grace_s: float, done: Callable[[dict[str, Ending]], None]) -> None:
        """End groups, then call `done` with how each of them ended."""
        endings = {
            name: self.groups.ending(name, grace_s) for name in (self.groups.names() if names is None else names)
        }

        def one_done() -> None:
            if all(ending.done for ending in endings.values()):
                done(endings)

        self._endings += [(ending, one_done) for ending in endings.values()]
        if not endings:
            done({})

    def undo(self, undoings: Undoings, done: Undone) -> None:
        """Run undoings one after the other, newest first; then call `done` with those done, and why others were not.

        They are children of the loop as all others are: a thread that waited for its own would lose the status to it.
        """
        waiting = undoings.newest_first()
        undone: list[str] = []
        problems: dict[str, str] = {}

        def next_one() -> None:
            if not waiting:
                done(undone, problems)
                return
            name, undoing = waiting.pop(0)

            def ended(answer: Answer) -> None:
                why = undoing.why_late if answer["timed_out"] else ""
                why = why or why_not_undone(answer["exit_code"], answer["stderr"])
                if why:
                    problems[name] = why
                else:
                    undone.append(name)
                next_one()

            try:
                self.capture(undoing.argv, ended, timeout_s=undoing.timeout_s)
            except CommandError as error:
                problems[name] = error.message
                next_one()

        next_one()

    def leave(self, why: str, grace_s: float) -> None:
        """End everything, then the program itself."""
        if self._why:
            return
        self._why = why
        ending = self.groups.ending_of_all(grace_s)
        self._endings.append((ending, lambda: self._undo(ending)))

    def _undo(self, ending: Ending) -> None:
        """Run the undoings, then end."""
        self.children.reap()  # so that the last `exited` events stand before the answer to `leave`

        def done(undone: list[str], not_undone: dict[str, str]) -> None:
            for name in undone:
                self.groups.undoings.forget(name)
            self._end(ending, not_undone)

        self.undo(self.groups.undoings, done)

    def _end(self, ending: Ending, not_undone: dict[str, str]) -> None:
        self.groups.record()
        summary = {"why": self._why, "groups": self.groups.summary(), "left": ending.left, "not_undone": not_undone}
        self.folder.write_end(summary)
        if self.forget and not ending.left and not not_undone:
            forget(self.folder.path)
        for request in self._requests:
            if request.do == "leave":
                request.answer({"left": ending.left, "not_undone": not_undone})
            else:
                request.refuse(CommandError("failed", f"the node program ended first: {self._why}"))
        self._finished = True

    def _turn(self) -> None:
        self._wait(self._patience_s())
        self.children.reap()
        for message in self.wire.received():
            self._take(message)
        self._take_results()
        self.relays.pause(self.wire.busy)
        if not self.wire.busy:
            self.groups.follow()
        self.groups.bound_logs()
        self._step_captures()
        self._step_endings()
        self._step_deadlines()
        self._step_lease()
        self.wire.pace()

    def _wait(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            key.data()

    def _patience_s(self) -> float:
        if self._endings or self._captures:
            return STEP_S
        return TAIL_STEP_S if self.groups.following or self._requests else IDLE_STEP_S

    def _wake_up(self) -> None:
        os.read(self._wake_out, 4096)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.leave(f"SIG{signal_name(number)} came", LEASE_GRACE_S)

    def _hello(self, **more: object) -> Message:
        return hello("node", pid=os.getpid(), token=self.folder.token, **more)

    def _event(self, kind: str, data: Answer) -> None:
        self.wire.send({"event": kind, **data})

    def _take(self, message: Message) -> None:
        if "hello" in message:
            self._greeted = message.get("version")
            if "nonce" in message:
                self.wire.send(self._hello(nonce=message["nonce"]))
            return
        number, do, args = message.get("id"), message.get("do"), message.get("args", {})
        seconds = message.get("deadline_s", 60.0)
        known = isinstance(number, int) and isinstance(do, str) and isinstance(args, dict)
        if not known or not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
            self.wire.assembler.counts.garbage += 1
            return
        request = Request(number, str(do), args, float(seconds), self.wire.send)
        try:
            self._perform(request)
        except CommandError as error:
            request.refuse(error)
        except FAULTS as error:
            request.refuse(CommandError("failed", f"{request.do}: {sentence(error)}"))

    def _perform(self, request: Request) -> None:
        if self._greeted != VERSION:
            seen = "said no hello" if self._greeted is None else f"speaks version {self._greeted!r}"
            raise CommandError("bad_request", f"the controller {seen}, this program speaks version {VERSION}")
        command = self._commands.get(request.do)
        if command is None:
            raise CommandError("unknown", f"there is no command {request.do!r}; known: {', '.join(self._commands)}")
        if self._why and request.do != "ping":
            raise CommandError("failed", f"the node program is ending: {self._why}")
        answer = command(self, request)
        if answer is not None:
            request.answer(answer)
        elif not request.answered:
            self._requests.append(request)

    def _take_results(self) -> None:
        while True:
            try:
                request, done, result, failure = self._results.get_nowait()
            except queue.Empty:
                return
            self._num_workers -= 1
            if failure is not None:
                request.refuse(failure)
            else:
                done(result)

    def _step_captures(self) -> None:
        for entry in list(self._captures):
            capture, done = entry
            ending_before = capture.ending
            answer = capture.step()
            if capture.ending is not ending_before and capture.ending is not None:
                self._endings.append((capture.ending, lambda: None))
            if answer is not None:
                self._captures.remove(entry)
                done(answer)

    def _step_endings(self) -> None:
        if not self._endings:
            return
        processes = table()
        ready = [entry for entry in self._endings if entry[0].step(processes)]
        self._endings = [entry for entry in self._endings if entry not in ready]
        for _, done in ready:
            done()

    def _step_deadlines(self) -> None:
        now_s = time.monotonic()
        for request in self._requests:
            if not request.answered and now_s > request.deadline.at_s:
                request.refuse(
                    CommandError("timeout", f"{request.do}: no answer within {request.deadline.seconds:g} s")
                )
        self._requests = [request for request in self._requests if not request.answered]

    def _step_lease(self) -> None:
        now_s = time.monotonic()
        if self.wire.heard != self._heard:
            self._heard, self._heard_at_s = self.wire.heard, now_s
        if self.wire.closed:
            self.leave("the controller closed the channel", LEASE_GRACE_S)
        elif now_s > self._heard_at_s + self._lease_s:
            self.leave(f"the controller was silent for {self._lease_s:g} s", LEASE_GRACE_S)
