"""Parallel: the same thing done for several hosts at once, with one deadline and every cause kept."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

from pytest_aorta.errors import CommandFailed, HostError, TimedOut
from pytest_aorta.node.requests import sentence

SLICE_S = 0.5


def in_parallel(what: str, calls: Mapping[str, Callable[[], None]], timeout_s: float) -> dict[str, HostError]:
    """Call each in a thread of its own; give the errors of those that failed or were not done in time.

    A thread that hangs (a dead file server) is left behind; it does not keep the interpreter from ending.
    """
    results: queue.SimpleQueue[tuple[str, HostError | None]] = queue.SimpleQueue()

    def run(host: str, call: Callable[[], None]) -> None:
        outcome: HostError | None = CommandFailed(host, f"{what} ended without a result")
        try:
            call()
            outcome = None
        except HostError as error:
            outcome = error
        except OSError as error:
            outcome = CommandFailed(host, f"{what}: {sentence(error)}")
        finally:
            results.put((host, outcome))

    for host, call in calls.items():
        threading.Thread(target=run, args=(host, call), name=f"aorta-{what}-{host}", daemon=True).start()
    waiting = dict.fromkeys(calls)
    errors: dict[str, HostError] = {}
    deadline_s = time.monotonic() + timeout_s
    while waiting and time.monotonic() < deadline_s:
        try:
            host, outcome = results.get(timeout=SLICE_S)
        except queue.Empty:
            continue
        del waiting[host]
        if outcome is not None:
            errors[host] = outcome
    errors |= {host: TimedOut(host, f"{what}: not done within {timeout_s:g} s") for host in waiting}
    return {host: errors[host] for host in calls if host in errors}
