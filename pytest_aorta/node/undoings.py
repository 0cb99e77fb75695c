"""Undoings: commands that take away what was made on this machine, run when nobody else has done it by the end."""

from __future__ import annotations

import os.path
import subprocess
from typing import Any, Mapping, NamedTuple

from .requests import sentence

TIMEOUT_S = 30.0
LAST_WORDS = 300


class Undoing(NamedTuple):
    """One command and how long it may take."""

    argv: list[str]
    timeout_s: float

    @property
    def why_late(self) -> str:
        """Say that it was not done in time, in the words of an engine's client (`docker rm`)."""
        words = self.argv[2:] if self.argv[:2] == ["sudo", "-n"] else self.argv
        told = " ".join([os.path.basename(words[0]), *words[1:2]])
        return f"`{told}` was not done within {self.timeout_s:g} s"


class Undoings:
    """The commands by name, newest last; they are run newest first."""

    def __init__(self) -> None:
        self._by_name: dict[str, Undoing] = {}

    def add(self, name: str, undoing: Undoing) -> None:
        """Take one in, in place of an earlier one of that name."""
        self._by_name.pop(name, None)
        self._by_name[name] = undoing

    def forget(self, name: str) -> bool:
        """Forget one that was done; tell whether it was there."""
        return self._by_name.pop(name, None) is not None

    def newest_first(self) -> list[tuple[str, Undoing]]:
        """Give all of them in the order in which they are to be run."""
        return list(reversed(self._by_name.items()))

    def document(self) -> list[dict[str, Any]]:
        """Write them down for the record, oldest first."""
        return [
            {"name": name, "argv": undoing.argv, "timeout_s": undoing.timeout_s}
            for name, undoing in self._by_name.items()
        ]


def read(entries: list[Mapping[str, Any]]) -> Undoings:
    """Read what `document` wrote; raises TypeError or LookupError for anything else."""
    found = Undoings()
    for entry in entries:
        argv = entry["argv"]
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            raise TypeError(f"argv is {argv!r}, expected a list of strings")
        found.add(str(entry["name"]), Undoing(argv, float(entry["timeout_s"])))
    return found


def why_not_undone(exit_code: int | None, stderr: str) -> str:
    """Say why a command did not do it; nothing when it did."""
    if exit_code == 0:
        return ""
    return stderr.strip()[-LAST_WORDS:] or f"it ended with {exit_code if exit_code is not None else 'a signal'}"


def undo_now(undoings: Undoings) -> tuple[list[str], dict[str, str]]:
    """Run all commands and wait for them, for callers without a loop; gives those done, and why others were not."""
    done: list[str] = []
    problems: dict[str, str] = {}
    for name, undoing in undoings.newest_first():
        try:
            ended = subprocess.run(
                undoing.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=undoing.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            problems[name] = undoing.why_late
            continue
        except OSError as error:
            problems[name] = sentence(error)
            continue
        why = why_not_undone(ended.returncode, ended.stderr.decode("utf-8", "replace"))
        if why:
            problems[name] = why
        else:
            done.append(name)
    return done, problems
