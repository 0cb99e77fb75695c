"""A host that answers from a list: for tests of everything above the fleet, shipped for tests of users too."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.transport import Pipes
from pytest_aorta.node.protocol import Assembler, Message, encode, hello


@dataclass(slots=True)
class Reply:
    """What to do when asked `do`: answer, or refuse with `error` (kind, message), or say nothing; then send events.

    `times` is how often the reply serves, 0 for always. `dies` has the node program end afterwards.
    """

    do: str
    answer: Answer | Callable[[Mapping[str, Any]], Answer] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    silent: bool = False
    events: tuple[tuple[str, Answer], ...] = ()
    dies: bool = False
    times: int = 1


class ScriptedTransport:
    """Answers each request with the first reply for its command that is left; keeps what it was asked.

    `ping` and `leave` are answered without a script. `files` holds the files of the host by path; what is sent lands
    there.
    """

    def __init__(self, replies: Iterable[Reply] = (), *, files: Mapping[str, bytes] | None = None) -> None:
        self.replies = list(replies)
        self.files = dict(files or {})
        self.asked: list[Ask] = []
        self.num_pings = 0
        self.num_starts = 0

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        """Start a program that follows the script."""
        self.num_starts += 1
        return ScriptedPipes(self)

    def put(self, local: Path, remote: str) -> None:
        """Keep the file's bytes."""
        self.files[remote] = local.read_bytes()

    def get(self, remote: str, local: Path) -> None:
        """Write the bytes of a file."""
        if remote not in self.files:
            raise FileNotFoundError(2, "No such file or directory", remote)
        local.write_bytes(self.files[remote])

    def reply_to(self, ask: Ask) -> Reply:
        """Take the next reply for a request from the script."""
        if ask.do == "ping":
            self.num_pings += 1
        else:
            self.asked.append(ask)
        for reply in self.replies:
            if reply.do == ask.do:
                if reply.times == 1:
                    self.replies.remove(reply)
                elif reply.times > 1:
                    reply.times -= 1
                return reply
        if ask.do in {"ping", "leave"}:
            return Reply(ask.do, dies=ask.do == "leave")
        return Reply(ask.do, error=("failed", f"the script has no reply to {ask.do!r} left"))


class ScriptedPipes:
    """The program's end of the channel, without a process and without a thread."""

    def __init__(self, transport: ScriptedTransport) -> None:
        self._transport = transport
        self._assembler = Assembler()
        self._numbers = itertools.count(1)
        self._out: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def write(self, data: bytes) -> None:
        """Take requests in and queue the replies."""
        for message in self._assembler.feed(data):
            if "hello" in message:
                self._say(hello("node", pid=0, nonce=message.get("nonce")))
            if "do" in message:
                self._perform(message)

    def read(self) -> bytes:
        """Wait for a line."""
        return self._out.get()

    def end_input(self) -> None:
        """End the program."""
        self._out.put(b"")

    def wait(self, timeout_s: float) -> bool:
        """Say that it has ended."""
        return True

    def kill(self) -> None:
        """End the program."""
        self._out.put(b"")

    def close(self) -> None:
        """Let go of nothing."""

    def last_words(self) -> str:
        """Give nothing: there is no standard error."""
        return ""

    def _perform(self, message: Message) -> None:
        ask = Ask(message["do"], message.get("args", {}), message.get("deadline_s", 60.0))
        reply = self._transport.reply_to(ask)
        if reply.error is not None:
            kind, text = reply.error
            self._say({"id": message["id"], "error": {"kind": kind, "message": text}})
        elif not reply.silent:
            answer = reply.answer(ask.args) if callable(reply.answer) else reply.answer
            self._say({"id": message["id"], "ok": answer})
        for kind, data in reply.events:
            self._say({"event": kind, **data})
        if reply.dies:
            self._out.put(b"")

    def _say(self, message: Message) -> None:
        self._out.put(encode(message, next(self._numbers)))
