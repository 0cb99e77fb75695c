"""Processes: fresh ones that read traces side by side, and that never outlive the one that they work for."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection


@contextmanager
def pool(num_jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Make a pool of fresh processes (this one may have threads).

    They end with this block: when it is left by an exception, in the middle of what they do. They also end when this
    process does, however that comes about.
    """
    context = multiprocessing.get_context("spawn")
    lifeline, end = context.Pipe(duplex=False)
    with lifeline, end:
        executor = ProcessPoolExecutor(num_jobs, mp_context=context, initializer=_live_by, initargs=(lifeline,))
        is_done = False
        try:
            yield executor
            is_done = True
        finally:
            if not is_done:
                end.close()
            executor.shutdown(cancel_futures=True)


def _live_by(lifeline: Connection) -> None:
    """Lead a process group of one's own, and end it, with all that was started in it, when the lifeline ends."""
    os.setpgrp()
    threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()


def _wait_for_end(lifeline: Connection) -> None:
    lifeline.poll(None)  # nothing is ever sent: there is something to read when the last other end is closed
    os.killpg(0, signal.SIGKILL)
