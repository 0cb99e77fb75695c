"""Relays: programs spoken to through the channel, such as a node program in a container."""

from __future__ import annotations

import os
import selectors
import subprocess
from typing import Any, Callable, Mapping

from .groups import Group, Groups
from .processes import GROUP_TAG
from .requests import Answer, CommandError

READ_BYTES = 32768
WRITE_BYTES = 4096  # as much as a ready pipe takes without blocking (PIPE_BUF)
BACKLOG_BYTES = 16 * 1024 * 1024
LAST_WORDS_BYTES = 2000

OnEvent = Callable[[str, Answer], None]


class Relay:
    """One such program. What it prints to standard error is kept for its end."""

    def __init__(self, name: str, group: Group, selector: selectors.BaseSelector, on_event: OnEvent) -> None:
        self.name = name
        self.running = True
        self._group = group
        self._selector = selector
        self._on_event = on_event
        self._input = b""
        self._ends_input = False
        self._words = b""
        self._watched: set[int] = set()
        popen = group.child.popen
        if popen.stdin is None or popen.stdout is None or popen.stderr is None:
            raise CommandError("failed", f"{name} was started without its pipes")
        self._in, self._out, self._err = popen.stdin, popen.stdout, popen.stderr
        os.set_blocking(self._in.fileno(), False)
        self._watch(self._err.fileno(), selectors.EVENT_READ, self._read_words)
        self.pause(False)

    @property
    def group_name(self) -> str:
        """The name of the group that the program leads."""
        return self._group.name

    def tell(self, text: str) -> None:
        """Have text written to the program's input, in order, as soon as it reads."""
        if not self.running or self._in.closed:
            raise CommandError("failed", f"{self.name} reads no more")
        data = text.encode("utf-8", "surrogateescape")
        if len(self._input) + len(data) > BACKLOG_BYTES:
            raise CommandError("failed", f"{self.name} has not read the last {len(self._input)} bytes yet")
        self._input += data
        self._watch(self._in.fileno(), selectors.EVENT_WRITE, self._write)

    def end_input(self) -> None:
        """Close the program's input once all of it is written."""
        self._ends_input = True
        if not self._input:
            self._close_input()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading what it says, so that it cannot flood a slow channel."""
        if self._out.closed:
            return
        if paused:
            self._unwatch(self._out.fileno())
        else:
            self._watch(self._out.fileno(), selectors.EVENT_READ, self._read)

    def ended(self) -> None:
        """Say what is left to say, and that it has ended."""
        self.running = False
        for pipe, keep in ((self._out, self._said), (self._err, self._remember)):
            if not pipe.closed:
                self._unwatch(pipe.fileno())
                os.set_blocking(pipe.fileno(), False)
                while data := _read_ready(pipe.fileno()):
                    keep(data)
                pipe.close()
        self._close_input()
        child = self._group.child
        words = self._words.decode("utf-8", "replace").strip()
        ending = {"exit_code": child.exit_code, "signal": child.signal, "seconds": round(child.seconds, 3)}
        self._on_event("exited", {"name": self.name, **ending, "last_words": words})

    def _watch(self, descriptor: int, mask: int, ready: Callable[[], None]) -> None:
        if descriptor not in self._watched:
            self._watched.add(descriptor)
            self._selector.register(descriptor, mask, ready)

    def _unwatch(self, descriptor: int) -> None:
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._selector.unregister(descriptor)

    def _read(self) -> None:
        self._take(self._out, self._said)

    def _read_words(self) -> None:
        self._take(self._err, self._remember)

    def _take(self, pipe: Any, keep: Callable[[bytes], None]) -> None:
        data = os.read(pipe.fileno(), READ_BYTES)
        if data:
            keep(data)
        else:
            self._unwatch(pipe.fileno())

    def _said(self, data: bytes) -> None:
        self._on_event("said", {"name": self.name, "data": data.decode("utf-8", "replace")})

    def _remember(self, data: bytes) -> None:
        self._words = (self._words + data)[-LAST_WORDS_BYTES:]

    def _write(self) -> None:
        try:
            self._input = self._input[os.write(self._in.fileno(), self._input[:WRITE_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = b""
            self._ends_input = True
        if not self._input:
            self._unwatch(self._in.fileno())
            if self._ends_input:
                self._close_input()

    def _close_input(self) -> None:
        if not self._in.closed:
            self._unwatch(self._in.fileno())
            self._in.close()


class Relays:
    """All relays by name."""

    def __init__(self, groups: Groups, selector: selectors.BaseSelector, on_event: OnEvent) -> None:
        self._groups = groups
        self._selector = selector
        self._on_event = on_event
        self._by_name: dict[str, Relay] = {}

    def open(self, name: str, argv: list[str], *, cwd: str | None, env: Mapping[str, str | None]) -> Answer:
        """Start a program whose output is told in `said` events.

        Raises:
            CommandError: it cannot be started, or one of that name runs already.
        """
        old = self._by_name.get(name)
        if old is not None and old.running:
            raise CommandError("failed", f"{name!r} is open already")
        group = self._groups.adopt(
            lambda group_name, on_end: self._groups.children.spawn(
                argv,
                cwd=cwd,
                env={**env, GROUP_TAG: group_name},
                on_end=on_end,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ),
            lambda: self._ended(name),
        )
        self._by_name[name] = Relay(name, group, self._selector, self._on_event)
        return {"pid": group.child.pid}

    def known(self, name: str) -> Relay:
        """Give a relay.

        Raises:
            CommandError: there is none of that name.
        """
        if name not in self._by_name:
            raise CommandError("failed", f"nothing was opened as {name!r}")
        return self._by_name[name]

    def pause(self, paused: bool) -> None:
        """Stop or go on reading what they say."""
        for relay in self._by_name.values():
            if relay.running:
                relay.pause(paused)

    def _ended(self, name: str) -> None:
        self._by_name[name].ended()


def _read_ready(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except BlockingIOError:
        return b""
