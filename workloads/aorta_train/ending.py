"""How a rank leaves without an orderly end of the interpreter: at once, with what it has to say already said.

After a failure no barrier and no destructor of a process group may run: each of them can wait for ranks that will never
come. After success gloo's own threads are in the way, see `leave_gloo`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import util
from pathlib import Path
from types import TracebackType
from typing import NoReturn

LAUNCHER_POLL_SECONDS = 1.0
SHELLS = frozenset((b"sh", b"bash", b"dash", b"ash", b"zsh", b"ksh", b"busybox", b"fish", b"csh", b"tcsh"))


def leave(exit_code: int) -> NoReturn:
    """End this process and the processes that make samples for it."""
    for child in multiprocessing.active_children():
        child.kill()
    with suppress(OSError):
        shutil.rmtree(util.get_temp_dir(), ignore_errors=True)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a pipe that nobody reads
            stream.flush()
    os._exit(exit_code)


def share_temporary_folder() -> None:
    """Make the folder that multiprocessing keeps, so that the processes that make samples take it and not one each.

    To be called before they start: `leave` kills them before they could remove theirs, and removes this one.
    """
    with suppress(OSError):  # where there is no place for it nothing stays there either
        util.get_temp_dir()


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


def leave_with_launcher() -> None:
    """From now on this process ends when the launcher that started it is gone, however it went.

    torchrun starts each rank in a session of its own, so killing torchrun's process group would leave the ranks behind.
    A script that binds the rank to its cores may stand between the two.
    """
    commands = {pid: _command(pid) for pid in _ancestors()}
    if "TORCHELASTIC_RUN_ID" in os.environ and not any(map(_may_be_torchrun, commands.values())):
        _leave_orphaned()  # it went while this interpreter started
    launcher = next((pid for pid, command in commands.items() if not _is_shell(command)), os.getppid())
    threading.Thread(target=_watch, args=(launcher,), name="launcher-watch", daemon=True).start()


def _ancestors() -> Iterator[int]:
    """Give the parent, its parent and so on, as far as they can be seen."""
    pid = os.getppid()
    while pid > 0:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            return


def _command(pid: int) -> list[bytes] | None:
    """Give the command line of a process, None where it may not be seen."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None


def _may_be_torchrun(command: list[bytes] | None) -> bool:
    """Tell torchrun, a Python program however it was started, from what only adopts orphans."""
    return command is None or any(b"python" in word or b"torch" in word for word in command)


def _is_shell(command: list[bytes] | None) -> bool:
    """Tell a shell, which runs a script for a launcher, from a launcher."""
    return command is not None and command[0].rpartition(b"/")[2].lstrip(b"-") in SHELLS


def _watch(launcher: int) -> None:
    while launcher in _ancestors():
        time.sleep(LAUNCHER_POLL_SECONDS)
    _leave_orphaned()


def _leave_orphaned() -> NoReturn:
    sys.stderr.write("train.py: the launcher of this rank is gone; leaving\n")
    leave(1)
