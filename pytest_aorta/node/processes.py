"""Process table: what procfs says about the processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Dict, Iterable, NamedTuple

TAG = "AORTA_NODE"
GROUP_TAG = "AORTA_GROUP"
MONITOR = b"conmon"  # holds a container of Podman, which has no daemon: whoever started it, it is the engine's


class Process(NamedTuple):
    """One process; `start_ticks` with `pid` names it for good, also after the pid is used again."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    cpu_s: float
    alive: bool
    name: bytes


Table = Dict[int, Process]


def process(pid: int) -> Process | None:
    """Read one process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    name_end = text.rfind(b")")  # the name in parentheses may hold anything
    fields = text[name_end + 2 :].split()
    if len(fields) < 20:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    alive = fields[0] not in (b"Z", b"X")
    name = text[text.find(b"(") + 1 : name_end]
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), cpu_s, alive, name)


def table() -> Table:
    """Read all processes."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {entry.pid: entry for entry in found if entry is not None}


def descendants(processes: Table, roots: Iterable[int]) -> list[int]:
    """Give the pids below the roots (not the roots themselves), parents first, without containers."""
    children: dict[int, list[int]] = {}
    for entry in processes.values():
        if entry.name == MONITOR:
            continue
        children.setdefault(entry.ppid, []).append(entry.pid)
    found: list[int] = []
    waiting = list(roots)
    seen: set[int] = set(waiting)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in seen:
                seen.add(child)
                found.append(child)
                waiting.append(child)
    return found


def ancestors(processes: Table, pid: int) -> set[int]:
    """Give the pid and the pids above it."""
    found: set[int] = set()
    while pid in processes and pid not in found:
        found.add(pid)
        pid = processes[pid].ppid
    return found


def environment(pid: int) -> dict[str, str]:
    """Give the environment that a process was started with; empty when it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in text.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def marked(token: str) -> list[int]:
    """Give the threads of what a node program with this token started, also one in a container: ids as seen here.

    The id of a process's first thread is its pid. The kernel logs the id of the thread that crashed.
    """
    return [thread for pid in table() if environment(pid).get(TAG) == token for thread in _threads(pid)]


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def argv0(pid: int) -> str:
    """Give the program's name as it was called; empty when it is gone."""
    return os.fsdecode(words(pid).split(b"\0")[0])


def words(pid: int) -> bytes:
    """Give the first 4096 bytes of the words that it was called by, each ended by a zero; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def catches(pid: int, signal_number: int) -> bool:
    """Tell whether the process has a handler of its own for the signal."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal_number - 1) & 1)
    return False


def is_alive(pid: int, start_ticks: int) -> bool:
    """Tell whether exactly this process still runs (a zombie does not)."""
    entry = process(pid)
    return entry is not None and entry.alive and entry.start_ticks == start_ticks


def send_signal(pid: int, start_ticks: int, signal_number: int) -> bool:
    """Signal exactly this process; False when it is gone or belongs to somebody else."""
    if not is_alive(pid, start_ticks):
        return False
    try:
        os.kill(pid, signal_number)
    except OSError:
        return False
    return True


def signal_name(signal_number: int) -> str:
    """Give `KILL` for 9; the number itself for one without a name."""
    try:
        return signal.Signals(signal_number).name[3:]
    except ValueError:
        return str(signal_number)


def wake_shell(pid: int, start_ticks: int) -> None:
    """Have a shell go on that somebody stopped, if it is one that waits for a program of ours: it ends with that."""
    if words(pid).startswith(b"sh\0-c\0"):
        send_signal(pid, start_ticks, signal.SIGCONT)
