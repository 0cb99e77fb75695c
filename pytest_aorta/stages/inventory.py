"""Inventory: the trace files that a host had before the launch, and which of those seen later are no others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_aorta.run.context import RunContext

Entry = Mapping[str, Any]  # of a file, as `find` gives it
Print = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Times of change (ns) by path and by themselves, and what was held: sizes and prints."""

    times: Mapping[str, int]
    moments: frozenset[int]
    prints: frozenset[Print]

    def is_fresh(self, entry: Entry, *, is_trace: bool) -> bool:
        """Tell whether a file was written since.

        One that was there before keeps its time of change, to the nanosecond, when it is only renamed. Another time
        makes no new trace of it: two runs never write the same one, for the times of its events. Step logs of two runs
        may well be alike.
        """
        if entry["mtime_ns"] in self.moments or entry["mtime_ns"] < self.times.get(entry["path"], 0):
            return False
        return not (is_trace and _print(entry) in self.prints)

    def is_redated(self, entry: Entry) -> bool:
        """Tell whether a trace has another time than all before the launch, and yet the size and print of one."""
        return entry["mtime_ns"] not in self.moments and _print(entry) in self.prints


def write_inventory(run: RunContext, host: str, entries: Iterable[Entry]) -> None:
    """Keep what a host has now."""
    document = {entry["path"]: [entry["mtime_ns"], *_print(entry)] for entry in entries}
    run.folder.write_document(run.folder.inventory(host), document)


def read_inventory(run: RunContext, host: str) -> Inventory | None:
    """Give what a host had before the launch; None if that is not known."""
    try:
        document = json.loads(run.folder.inventory(host).read_text("utf-8"))
        times = {path: int(time_ns) for path, (time_ns, _, _) in document.items()}
        return Inventory(
            times,
            frozenset(times.values()),
            frozenset((int(size), str(seen)) for _, size, seen in document.values() if seen),
        )
    except (OSError, ValueError, TypeError):  # absent, damaged, or of a version that kept times only
        return None


def _print(entry: Entry) -> Print:
    return int(entry["size"]), str(entry.get("print", ""))
