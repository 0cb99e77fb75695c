"""How a rank leaves without an orderly end of the interpreter: at once, with what it has to say already said.

After a failure no barrier and no destructor of a process group may run: each of them can wait for ranks that will never
come. After success gloo's own threads are in the way, see `leave_gloo`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

PARENT_POLL_SECONDS = 1.0


def leave(exit_code: int) -> NoReturn:
    """End this process and the processes that make samples for it."""
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # a pipe that nobody reads, or no stream at all
            stream.flush()
    os._exit(exit_code)


def leave_gloo(exit_code: int) -> NoReturn:
    """End a process whose group was gloo's and is closed.

    Closing the group does not join gloo's threads. One that was not scheduled since the last collective still holds a
    tensor; dropping that while the interpreter ends makes torch abort the process, and a rank that did all its work
    would be the one that failed. NCCL joins its threads when its group is closed, and profilers that write their files
    at the end of a GPU process need the orderly end.
    """
    leave(exit_code)


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
    parent = os.getppid()
    if "TORCHELASTIC_RUN_ID" in os.environ and not _may_be_torchrun(parent):
        _leave_orphaned()  # it went while this interpreter started
    threading.Thread(target=_watch_parent, args=(parent,), name="parent-watch", daemon=True).start()


def _may_be_torchrun(pid: int) -> bool:
    """Tell torchrun, a Python program however it was started, from a process that only adopts orphans."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True
    return b"python" in command or b"torch" in command


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    _leave_orphaned()


def _leave_orphaned() -> NoReturn:
    sys.stderr.write("train.py: the launcher of this rank is gone; leaving\n")
    leave(1)
