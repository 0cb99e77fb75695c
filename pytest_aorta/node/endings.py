"""Ending: TERM, a grace period, KILL, until nothing of a set of processes is left."""

from __future__ import annotations

import signal
import time
from typing import Callable, List, Tuple

from .processes import Table, send_signal, table

KILL_PATIENCE_S = 5.0
STEP_S = 0.05

Identity = Tuple[int, int]  # pid, start ticks
Find = Callable[[Table], List[Identity]]


class Ending:
    """Ends what `find` finds, step by step, so that the program goes on with its other work meanwhile."""

    def __init__(self, find: Find, grace_s: float) -> None:
        self._find = find
        self._kill_at_s = time.monotonic() + grace_s
        self._give_up_at_s = self._kill_at_s + KILL_PATIENCE_S
        self._asked: set[Identity] = set()
        self._killed: set[Identity] = set()
        self.left: list[int] = []
        self.done = False

    @property
    def outcome(self) -> str:
        """Give `ended` (nothing was running), `terminated` or `killed`."""
        if self._killed:
            return "killed"
        return "terminated" if self._asked else "ended"

    @property
    def ended_pids(self) -> list[int]:
        """Give the pids that were running and had to be ended."""
        return sorted(pid for pid, _ in self._asked | self._killed)

    def step(self, processes: Table) -> bool:
        """Signal what is there; True when nothing is left or what is left will not die."""
        members = [identity for identity in self._find(processes) if processes[identity[0]].alive]
        now_s = time.monotonic()
        self.left = sorted(pid for pid, _ in members)
        if not members or now_s > self._give_up_at_s:
            self.done = True
            return True
        for identity in members:
            if now_s >= self._kill_at_s:
                if send_signal(*identity, signal.SIGKILL):
                    self._killed.add(identity)
            elif identity not in self._asked:
                self._asked.add(identity)
                send_signal(*identity, signal.SIGTERM)
                send_signal(*identity, signal.SIGCONT)  # one that was stopped could not react to TERM
        return False

    def finish(self) -> None:
        """Step until it is done, for callers without a loop."""
        while not self.step(table()):
            time.sleep(STEP_S)


def end_now(find: Find, grace_s: float) -> Ending:
    """End what `find` finds and wait for it, for callers without a loop of their own."""
    ending = Ending(find, grace_s)
    ending.finish()
    return ending


def identities(processes: Table, pids: dict[int, None] | list[int] | set[int]) -> list[Identity]:
    """Give pid and start ticks of those that are in the table."""
    return [(pid, processes[pid].start_ticks) for pid in pids if pid in processes]
