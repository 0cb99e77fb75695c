"""State folder: what must be known of the processes of a node program after it has gone, even by SIGKILL."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from .endings import Identity, end_now, identities
from .facts import boot_id
from .processes import TAG, Table, ancestors, descendants, environment, is_alive, process
from .requests import Answer, CommandError, sentence

GROUPS_FILE = "groups.json"
STATE_FILE = "node-state.json"


class StateFolder:
    """Writes the two files of the state folder, each atomically; a folder that is gone does not stop the program."""

    def __init__(self, path: str, token: str) -> None:
        self.path = path
        self.token = token
        me = process(os.getpid())
        self._node = {"pid": os.getpid(), "start_ticks": me.start_ticks if me else 0}

    def write_groups(self, groups: list[dict[str, Any]]) -> None:
        """Record which processes lead a group now."""
        self._write(GROUPS_FILE, {"token": self.token, "boot_id": boot_id(), "node": self._node, "groups": groups})

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
            print(f"cannot write {path}: {sentence(error)}", file=sys.stderr)


def reap(state_dir: str, grace_s: float = 2.0) -> Answer:
    """End what a node program recorded in `state_dir` and what carries its token, the program itself included.

    The answer has `ended` (pids that were running), `left` (pids that would not die) and `recorded` (whether there
    was a record). A process is ended only if its pid and its start time are the recorded ones, or it has the token.

    Raises:
        CommandError: the record is not one of ours.
    """
    path = os.path.join(os.path.expanduser(state_dir), GROUPS_FILE)
    record = _record(path)
    if record is None or record["boot_id"] != boot_id():
        return {"recorded": record is not None, "ended": [], "left": []}
    roots = [(int(entry["pid"]), int(entry["start_ticks"])) for entry in [record["node"], *record["groups"]]]
    token = str(record["token"])

    def find(processes: Table) -> list[Identity]:
        spared = ancestors(processes, os.getpid())
        tagged = [pid for pid in processes if environment(pid).get(TAG) == token]
        alive = [pid for pid, ticks in roots if is_alive(pid, ticks)]
        found = dict.fromkeys([*alive, *tagged, *descendants(processes, [*alive, *tagged])])
        return identities(processes, [pid for pid in found if pid not in spared])

    ending = end_now(find, grace_s)
    return {"recorded": True, "ended": ending.ended_pids, "left": ending.left}


def _record(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            owner = os.fstat(file.fileno()).st_uid
            if owner != os.geteuid():  # somebody else could have named any pid in it
                raise CommandError("failed", f"{path} belongs to user {owner}, expected {os.geteuid()}")
            record = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CommandError("failed", f"cannot read {path}: {sentence(error)}") from error
    known = isinstance(record, dict) and {"token", "boot_id", "node", "groups"} <= set(record) and record["token"]
    if not known:
        raise CommandError("failed", f"{path} is no record of a node program, expected token, boot_id, node and groups")
    return record
