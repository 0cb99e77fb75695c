"""How a rank leaves after a failure: at once, with what it has to say already said.

No barrier, no destructor of a process group: each of them can wait for ranks that will never come.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
import time
from types import TracebackType
from typing import NoReturn

PARENT_POLL_SECONDS = 1.0


def leave(exit_code: int) -> NoReturn:
    """End this process and the processes that make samples for it."""
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def leave_on_error() -> None:
    """From now on an error that nobody catches prints its traceback and ends the process with exit code 1.

    To be called once the process group is open: opening it installs a hook that holds stderr back until the hook before
    it returns, which `leave` never does.
    """
    say = sys.excepthook

    def say_and_leave(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        say(kind, error, trace)
        leave(1)

    sys.excepthook = say_and_leave


def leave_with_parent() -> None:
    """From now on this process ends when the launcher that started it is gone, however it went.

    torchrun starts each rank in a session of its own, so killing torchrun's process group would leave the ranks behind.
    """
    threading.Thread(target=_watch_parent, args=(os.getppid(),), name="parent-watch", daemon=True).start()


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    print("the launcher of this rank is gone; leaving", file=sys.stderr, flush=True)
    leave(1)
