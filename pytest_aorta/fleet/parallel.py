"""Parallel: the same thing done for several hosts at once, with one deadline and every cause kept."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping

from pytest_aorta.errors import AortaError, CommandFailed, Defect, HostError, TimedOut
from pytest_aorta.node.requests import sentence

log = logging.getLogger("pytest_aorta")

SLICE_S = 0.5
NUM_AT_ONCE = 32  # connections begun at the same time: more of them keep a small machine, or a jump host, from any


def in_parallel(
    what: str, calls: Mapping[str, Callable[[], None]], timeout_s: float, num_at_once: int = NUM_AT_ONCE
) -> dict[str, HostError]:
    """Make the calls, some at once, in their order; give the errors of those that failed or were not done in time.

    A thread that hangs (a dead file server) is left behind; it does not keep the interpreter from ending. What has not
    begun by the deadline does not begin any more.
    """
    results: queue.SimpleQueue[tuple[str, HostError | None]] = queue.SimpleQueue()
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for host in calls:
        waiting.put(host)
    begun: set[str] = set()
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            try:
                host = waiting.get_nowait()
            except queue.Empty:
                return
            begun.add(host)
            outcome: HostError | None = CommandFailed(host, f"{what} ended without a result")
            try:
                outcome = _outcome(what, host, calls[host])
            finally:
                results.put((host, outcome))

    for number in range(min(num_at_once, len(calls))):
        threading.Thread(target=work, name=f"aorta-{what}-{number}", daemon=True).start()
    errors: dict[str, HostError | None] = {}
    deadline_s = time.monotonic() + timeout_s
    try:
        while len(errors) < len(calls) and time.monotonic() < deadline_s:
            try:
                host, outcome = results.get(timeout=SLICE_S)
            except queue.Empty:
                continue
            errors[host] = outcome
    finally:
        is_over.set()  # also when a signal's handler raises
    for host in calls.keys() - errors.keys():
        late = "done" if host in begun else f"begun, {num_at_once} hosts at a time,"
        errors[host] = TimedOut(host, f"{what}: not {late} within {timeout_s:g} s")
    return {host: error for host in calls if (error := errors[host]) is not None}


def _outcome(what: str, host: str, call: Callable[[], None]) -> HostError | None:
    """Make a call; give its error."""
    try:
        call()
    except HostError as error:
        return error
    except (AortaError, OSError) as error:
        failed = CommandFailed(host, f"{what}: {sentence(error) if isinstance(error, OSError) else error}")
        failed.__cause__ = error
        return failed
    except Exception as error:  # the edge of a thread: what leaves it reaches nobody
        log.exception("%s: %s: unexpected", host, what)
        defect = Defect(host, what, error)
        defect.__cause__ = error
        return defect
    return None
