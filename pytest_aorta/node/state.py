"""State folder: what must be known of the processes of a node program after it has gone, even by SIGKILL.

Hosts may share the file system that it lies on, and containers a kernel. A record whose pids are not counted as ours
are, before a boot or in another container, is one of processes that have ended only if this machine wrote it; on
another one they may live.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from typing import Any, Mapping, NamedTuple

from .endings import Identity, end_now, identities
from .facts import boot_id, identity, pid_namespace
from .files import remove
from .processes import TAG, Table, ancestors, descendants, environment, is_alive, process, wake_shell
from .requests import Answer, CommandError, sentence
from .undoings import Undoings, read, undo_now

GROUPS_FILE = "groups.json"
STATE_FILE = "node-state.json"
GRACE_S = 2.0


class StateFolder:
    """Writes the two files of the state folder, each atomically; a folder that is gone does not stop the program."""

    def __init__(self, path: str, token: str) -> None:
        self.path = path
        self.token = token
        self._machine = _machine()
        self._node = _identity(os.getpid())
        self._above = _identity(os.getppid())

    def write_groups(self, groups: list[dict[str, Any]], undoings: list[dict[str, Any]]) -> None:
        """Record which processes lead a group now, and what else is to be undone."""
        document = {"token": self.token, **_counting(), "machine": self._machine}
        its_own = {"node": self._node, "above": self._above}
        self._write(GROUPS_FILE, {**document, **its_own, "groups": groups, "undo": undoings})

    def write_end(self, document: dict[str, Any]) -> None:
        """Record how the program ended."""
        self._write(STATE_FILE, {"token": self.token, "boot_id": boot_id(), **document})

    def _write(self, name: str, document: dict[str, Any]) -> None:
        path = os.path.join(self.path, name)
        try:
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
            os.replace(path + ".new", path)
        except OSError as error:
            with contextlib.suppress(OSError, ValueError):  # whoever reads that may be gone, too, or the disk full
                print(f"cannot write {path}: {sentence(error)}", file=sys.stderr)


def forget(state_dir: str) -> None:
    """Remove a state folder of which nothing is left to know; one that we did not make stays."""
    with contextlib.suppress(CommandError):
        remove(state_dir)


class Reaping:
    """Ending and undoing what a node program recorded in `state_dir` and what carries its token, itself included.

    A process is ended only if its pid and its start time are the recorded ones, or it has the token.

    Raises:
        CommandError: the record is not one of ours, or that of a program on another machine.
    """

    def __init__(self, state_dir: str) -> None:
        self._folder = os.path.expanduser(state_dir)
        self._record = _read(os.path.join(self._folder, GROUPS_FILE))
        self._ended: list[int] = []
        self._left: list[int] = []

    @property
    def undoings(self) -> Undoings:
        """What is to be undone once the processes have ended."""
        return self._record.undoings if self._record is not None else Undoings()

    def end(self, grace_s: float = GRACE_S) -> None:
        """End the processes, and wait for that; a shell that started the program and was stopped ends by itself."""
        record = self._record
        if record is None:  # it never came up, so nothing is known of it but its folder
            return
        counts_alike = record.counting == _counting()  # else what counted the pids has ended them all
        roots = record.roots if counts_alike else []

        def find(processes: Table) -> list[Identity]:
            spared = ancestors(processes, os.getpid())
            tagged = [pid for pid in processes if environment(pid).get(TAG) == record.token]
            alive = [pid for pid, ticks in roots if is_alive(pid, ticks)]
            found = dict.fromkeys([*alive, *tagged, *descendants(processes, [*alive, *tagged])])
            return identities(processes, [pid for pid in found if pid not in spared])

        ending = end_now(find, grace_s)
        self._ended, self._left = ending.ended_pids, ending.left
        if record.above is not None and counts_alike:
            wake_shell(*record.above)

    def conclude(self, undone: list[str], not_undone: dict[str, str]) -> Answer:
        """Remove the folder when nothing of what it records is left; give what `reap` answers."""
        if not self._left and not not_undone:
            forget(self._folder)
        return {
            "recorded": self._record is not None,
            "ended": self._ended,
            "left": self._left,
            "undone": undone,
            "not_undone": not_undone,
        }


def reap(state_dir: str, grace_s: float = GRACE_S) -> Answer:
    """End and undo what is recorded in `state_dir`, for callers without a loop, as `Reaping` does.

    The answer has `ended` (pids that were running), `left` (pids that would not die), `undone` and `not_undone` (names
    of undoings, the latter with why) and `recorded` (whether there was a record).
    """
    reaping = Reaping(state_dir)
    reaping.end(grace_s)
    return reaping.conclude(*undo_now(reaping.undoings))


def alive(state_dir: str) -> Answer:
    """Tell whether the node program of a state folder still runs: `recorded`, `alive`.

    Raises:
        CommandError: the record is not one of ours, or that of a program on another machine, which alone can tell.
    """
    record = _read(os.path.join(os.path.expanduser(state_dir), GROUPS_FILE))
    if record is None:
        return {"recorded": False, "alive": False}
    return {"recorded": True, "alive": record.counting == _counting() and is_alive(*record.roots[0])}


class _Record(NamedTuple):
    token: str
    counting: Mapping[str, str]
    machine: Mapping[str, Any]
    roots: list[Identity]  # the node program itself first
    above: Identity | None  # what started it
    undoings: Undoings


def _read(path: str) -> _Record | None:
    try:
        with open(path, encoding="utf-8") as file:
            owner = os.fstat(file.fileno()).st_uid
            document = json.load(file)
        roots = [_recorded(entry) for entry in [document["node"], *document["groups"]]]
        above = _recorded(document["above"]) if "above" in document else None
        undoings = read(document.get("undo", []))
        machine = dict(document.get("machine", {}))
        counting = {name: str(document[name]) for name in _counting()}
        record = _Record(str(document["token"]), counting, machine, roots, above, undoings)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError("failed", f"cannot read {path}: {sentence(error)}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise CommandError("failed", f"{path} is no record of a node program: {sentence(error)}") from error
    if owner != os.geteuid():  # somebody else could have named any pid in it
        raise CommandError("failed", f"{path} belongs to user {owner}, expected {os.geteuid()}")
    if record.counting != _counting() and record.machine != _machine():
        where = record.machine.get("hostname") or "a machine that it does not name"
        next_step = "clean it from there, or remove the folder by hand when nothing of it can run any more"
        raise CommandError("failed", f"{path} is of a program on {where}, expected {socket.gethostname()}; {next_step}")
    return record


def _identity(pid: int) -> dict[str, int]:
    entry = process(pid)
    return {"pid": pid, "start_ticks": entry.start_ticks if entry else 0}


def _recorded(entry: Mapping[str, Any]) -> Identity:
    return int(entry["pid"]), int(entry["start_ticks"])


def _counting() -> dict[str, str]:
    """Tell by what a pid is one of which process."""
    return {"boot_id": boot_id(), "pid_namespace": pid_namespace()}


def _machine() -> dict[str, str]:
    return {"identity": identity(), "hostname": socket.gethostname()}
