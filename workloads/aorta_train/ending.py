"""How a rank leaves without an orderly end of the interpreter: at once, with what it has to say already said.

After a failure no barrier and no destructor of a process group may run: each of them can wait for ranks that will never
come. After success gloo's own threads are in the way, see `leave_gloo`.
"""

from __future__ import annotations

import itertools
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
_shared_folders: list[str] = []


def leave(exit_code: int) -> NoReturn:
    """End this process and the processes that make samples for it."""
    for child in multiprocessing.active_children():
        child.kill()
    remove_temporary_folder()
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
        _shared_folders.append(util.get_temp_dir())


def remove_temporary_folder() -> None:
    """Remove the folder that `share_temporary_folder` made, if it did."""
    for folder in _shared_folders:
        shutil.rmtree(folder, ignore_errors=True)


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
    What binds the rank to its cores may stand between the two: everything up to the first process outside of this
    session is watched, and up to torchrun where it is seen. A rank that cannot see its parent, in a container without
    its launcher, has nothing to watch.
    """
    ancestors = list(_ancestors())
    if not ancestors:
        return
    num_inside = sum(1 for _ in itertools.takewhile(_is_in_this_session, ancestors))
    num_watched = num_inside + 1
    if "TORCHELASTIC_RUN_ID" in os.environ:
        commands = [_command(pid) for pid in ancestors]
        if not num_inside and not any(map(_may_be_torchrun, commands)):
            _leave_orphaned()  # it went while this interpreter started
        num_watched = max(num_watched, next((place for place, one in enumerate(commands, 1) if _is_torchrun(one)), 0))
    watched = frozenset(ancestors[:num_watched])
    threading.Thread(target=_watch, args=(watched,), name="launcher-watch", daemon=True).start()


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


def _is_torchrun(command: list[bytes] | None) -> bool:
    """Recognise torchrun by the names under which torch offers it."""
    names = (b"torchrun", b"torch.distributed.run", b"torch.distributed.launch", b"torch/distributed/run.py")
    return command is not None and any(word.endswith(names) for word in command[:8])


def _is_in_this_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except OSError:
        return False


def _watch(launchers: frozenset[int]) -> None:
    while launchers <= set(_ancestors()):
        time.sleep(LAUNCHER_POLL_SECONDS)
    _leave_orphaned()


def _leave_orphaned() -> NoReturn:
    sys.stderr.write("train.py: the launcher of this rank is gone; leaving\n")
    leave(1)
