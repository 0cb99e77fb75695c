"""Groups: the process groups this program started, with all that they started in turn."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, Callable, Mapping

from .bounds import Bound
from .children import Child, Children
from .endings import Ending, Find, Identity, identities
from .logs import Tail
from .processes import (
    GROUP_TAG,
    TAG,
    Table,
    argv0,
    catches,
    descendants,
    environment,
    send_signal,
    table,
    words,
)
from .requests import Answer, CommandError, sentence
from .state import StateFolder, reap
from .undoings import Undoings

__all__ = ["Group", "Groups", "reap"]

RANK_DIGITS = 9

OnEvent = Callable[[str, Answer], None]


class Group:
    """One group: its leader, and its log when it has one."""

    def __init__(self, name: str, child: Child, tail: Tail | None = None, bound: Bound | None = None) -> None:
        self.name = name
        self.child = child
        self.tail = tail
        self.bound = bound


class Groups:
    """All groups by name. Names with a slash are ours: the processes of `run` commands."""

    def __init__(self, children: Children, folder: StateFolder, on_event: OnEvent) -> None:
        self.children = children
        self._folder = folder
        self._on_event = on_event
        self._groups: dict[str, Group] = {}
        self._tags: dict[Identity, tuple[str, str]] = {}
        self._num_runs = 0
        self.undoings = Undoings()

    def start(
        self, name: str, argv: list[str], *, cwd: str, env: Mapping[str, str | None], log: str, follow: bool
    ) -> Answer:
        """Start a group whose output goes to a log."""
        if "/" in name or not name:
            raise CommandError("bad_request", f"start: the name is {name!r}, expected one without a slash")
        old = self._groups.get(name)
        if old is not None and old.child.running:
            raise CommandError("failed", f"the group {name!r} runs already as pid {old.child.pid}; stop it first")
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise CommandError("failed", f"cannot write the log {log}: {sentence(error)}") from error
        try:
            child = self.children.spawn(
                argv,
                cwd=cwd,
                env={**env, GROUP_TAG: name},
                on_end=lambda: self._ended(name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        finally:
            os.close(output)
        tail = Tail(log) if follow else None
        self._groups[name] = Group(name, child, tail, Bound(log, tail))
        self.record()
        return {"pid": child.pid, "start_ticks": child.start_ticks, "log": log}

    def adopt(self, spawn: Callable[[str, Callable[[], None]], Child], on_end: Callable[[], None]) -> Group:
        """Start the process of a `run` command under a name of ours; it is forgotten when it has ended."""
        self._num_runs += 1
        name = f"run/{self._num_runs}"

        def ended() -> None:
            self._groups.pop(name, None)
            self.record()
            on_end()

        group = self._groups[name] = Group(name, spawn(name, ended))
        self.record()
        return group

    def bound_logs(self) -> None:
        """Keep all logs from growing for ever."""
        for group in self._groups.values():
            if group.bound is not None and group.child.running:
                group.bound.hold()

    def follow(self) -> None:
        """Send the new lines of all logs."""
        for group in list(self._groups.values()):
            if group.tail is not None and group.child.running:
                self._send_lines(group.name, group.tail.paced(time.monotonic()))

    @property
    def following(self) -> bool:
        """Tell whether a log may grow."""
        return any(group.tail is not None and group.child.running for group in self._groups.values())

    def ending(self, name: str, grace_s: float) -> Ending:
        """End one group with everything it started, sessions of their own included."""
        self._known(name)
        return Ending(self._finder({name}), grace_s)

    def ending_of_all(self, grace_s: float) -> Ending:
        """End everything below this program, and everything with its token elsewhere."""
        me = os.getpid()

        def find(processes: Table) -> list[Identity]:
            tagged = [pid for pid in processes if self._tag(processes, pid)[0] == self.children.token]
            found = dict.fromkeys([*descendants(processes, [me]), *tagged])
            found.pop(me, None)
            return identities(processes, list(found))

        return Ending(find, grace_s)

    def names(self) -> list[str]:
        """Give the names of the groups that were started, ended ones included."""
        return [name for name in self._groups if "/" not in name]

    def processes(self) -> Answer:
        """Describe each group with its descendants."""
        found = table()
        return {"groups": {name: self._describe(self._groups[name], found) for name in self.names()}}

    def signal(self, name: str, signal_number: int, catching_only: bool) -> Answer:
        """Signal the processes of a group; with `catching_only` those that have a handler for it.

        Then also none that a rank, or another process with a handler, has forked: it has inherited that (data loader
        workers), and its stacks would be mixed into those of its parent, or stand for them.
        """
        self._known(name)
        found = table()
        signalled = []
        for pid, ticks in self._finder({name})(found):
            wanted = not catching_only or (catches(pid, signal_number) and not _is_forked(pid, signal_number, found))
            if wanted and send_signal(pid, ticks, signal_number):
                signalled.append({"pid": pid, "rank": _rank(environment(pid), "RANK")})
        return {"signalled": signalled}

    def summary(self) -> dict[str, Any]:
        """Say of each group how it is or how it ended, for the record."""
        return {
            name: {
                "pid": group.child.pid,
                "running": group.child.running,
                "exit_code": group.child.exit_code,
                "signal": group.child.signal,
                "seconds": round(group.child.seconds, 3),
            }
            for name, group in self._groups.items()
        }

    def _known(self, name: str) -> None:
        if name not in self._groups:
            known = ", ".join(self.names()) or "none"
            raise CommandError("failed", f"there is no group {name!r}; groups started here: {known}")

    def _finder(self, names: set[str]) -> Find:
        def find(processes: Table) -> list[Identity]:
            owners = self._owners(processes)
            return identities(processes, [pid for pid, owner in owners.items() if owner in names])

        return find

    def _owners(self, processes: Table) -> dict[int, str]:
        """Give the group of every process that is ours: by its living leader, else by tag, else by session."""
        owners: dict[int, str] = {}
        for name, group in self._groups.items():
            pid, ticks = group.child.pid, group.child.start_ticks
            if pid in processes and processes[pid].start_ticks == ticks:
                owners.update(dict.fromkeys([pid, *descendants(processes, [pid])], name))
        sessions = {group.child.pid: name for name, group in self._groups.items()}
        ours = set(descendants(processes, [os.getpid()]))
        for pid, entry in processes.items():
            if pid in owners or pid == os.getpid():
                continue
            token, name = self._tag(processes, pid)
            if token == self.children.token and name:
                owners[pid] = name
            elif pid in ours and (entry.sid in sessions or entry.pgid in sessions):
                owners[pid] = sessions.get(entry.sid) or sessions[entry.pgid]
        return owners

    def _tag(self, processes: Table, pid: int) -> tuple[str, str]:
        identity = (pid, processes[pid].start_ticks)
        if identity not in self._tags:
            if len(self._tags) > 4 * len(processes) + 1024:
                self._tags.clear()
            environ = environment(pid)
            if not environ:  # between fork and exec, or not ours to read: look again next time
                return "", ""
            self._tags[identity] = (environ.get(TAG, ""), environ.get(GROUP_TAG, ""))
        return self._tags[identity]

    def _describe(self, group: Group, found: Table) -> Answer:
        rows = []
        for pid, _ in self._finder({group.name})(found):
            environ = environment(pid)
            if found[pid].alive:
                rows.append(
                    {
                        "pid": pid,
                        "ppid": found[pid].ppid,
                        "rank": _rank(environ, "RANK"),
                        "local_rank": _rank(environ, "LOCAL_RANK"),
                        "argv0": argv0(pid),
                        "cpu_s": round(found[pid].cpu_s, 2),
                    }
                )
        return {
            "pid": group.child.pid,
            "running": group.child.running,
            "descendants": [row for row in rows if row["pid"] != group.child.pid],
        }

    def _ended(self, name: str) -> None:
        group = self._groups[name]
        if group.bound is not None:
            group.bound.hold()
        if group.tail is not None:
            self._send_lines(name, group.tail.rest())
        child = group.child
        self.record()
        self._on_event(
            "exited",
            {"name": name, "exit_code": child.exit_code, "signal": child.signal, "seconds": round(child.seconds, 3)},
        )

    def _send_lines(self, name: str, lines: list[str]) -> None:
        if lines:
            self._on_event("lines", {"name": name, "lines": lines})

    def record(self) -> None:
        """Write down which processes lead a group now, and what else is to be undone."""
        self._folder.write_groups(
            [
                {"name": name, "pid": group.child.pid, "start_ticks": group.child.start_ticks}
                for name, group in self._groups.items()
                if group.child.running
            ],
            self.undoings.document(),
        )


def _is_forked(pid: int, signal_number: int, processes: Table) -> bool:
    """Tell whether it is of its parent's rank, or called by the same words as a parent that has a handler, too."""
    if pid not in processes:
        return False
    parent = processes[pid].ppid
    rank = _rank(environment(pid), "RANK")
    if rank is not None and _rank(environment(parent), "RANK") == rank:
        return True
    return catches(parent, signal_number) and words(parent) == words(pid)


def _rank(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= RANK_DIGITS else None
