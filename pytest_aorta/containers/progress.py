"""Progress: sentences on pulls, which can take minutes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_aorta.containers.outcome import Outcome

EVERY_S = 10.0
PRESENT = frozenset({"Pull complete", "Already exists"})

Progress = Callable[[str], None]


def untold(sentence: str) -> None:
    """Tell nobody."""


def told_meanwhile(
    pull: Callable[[], Outcome[str]], hosts: Sequence[str], progress: Progress, every_s: float = EVERY_S
) -> Outcome[str]:
    """Call `pull`, saying now and then that it goes on: what a client program prints is seen only at its end."""
    results: list[Outcome[str]] = []
    thread = threading.Thread(target=lambda: results.append(pull()), name="aorta-pull", daemon=True)
    began_s = time.monotonic()
    thread.start()
    thread.join(every_s)
    while thread.is_alive():
        progress(f"{', '.join(hosts)}: still pulling after {time.monotonic() - began_s:.0f} s")
        thread.join(every_s)
    return results[0] if results else Outcome({}, dict.fromkeys(hosts, "the pull ended without a result"))


class Layers:
    """The layers of one pull, as the daemon's events tell of them."""

    def __init__(self, what: str, progress: Progress, every_s: float = EVERY_S) -> None:
        self._what = what
        self._progress = progress
        self._every_s = every_s
        self._told_s = time.monotonic()
        self._present: dict[str, bool] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event in, and tell how far the pull is when it is time to."""
        status = str(event.get("status", ""))
        if event.get("id") and not status.startswith("Pulling from"):
            self._present[event["id"]] = status in PRESENT
        if time.monotonic() - self._told_s >= self._every_s:
            self._told_s = time.monotonic()
            self._progress(f"{self._what}: {sum(self._present.values())} of {len(self._present)} layers are there")
