"""Which labs there are on this machine: one locked file each, and what is left of a lab whose lock nobody holds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from .plan import MAX_NUM_LABS, ROOT, Plan
from .processes import LabError, Process, wait_until

CGROUPS = Path("/sys/fs/cgroup")


def claim() -> tuple[int, int]:
    """Sweep what killed labs left; return a free number, and the descriptor whose lock keeps others from it.

    Raises:
        LabError: All numbers are taken.
    """
    if ROOT.exists():
        for path in ROOT.glob("*.lock"):
            sweep(int(path.stem))
    for number in range(MAX_NUM_LABS):
        lock = _lock(number)
        if lock is None:
            continue
        if not _is_network_known(number):
            return number, lock
        release(number, lock)
    raise LabError(f"all {MAX_NUM_LABS} labs are taken, see {ROOT}")


def sweep(number: int) -> None:
    """Clear a lab, unless somebody holds it."""
    lock = _lock(number)
    if lock is not None:
        release(number, lock)


def release(number: int, lock: int) -> None:
    """Clear a lab that is held by `lock`, and let it go."""
    _clear(Plan(number, 1))
    lock_path(number).unlink(missing_ok=True)
    os.close(lock)
    with contextlib.suppress(OSError):  # other labs are in it
        ROOT.rmdir()


def record(plan: Plan, process: Process) -> None:
    """Note a process that has to be gone when the lab is."""
    with _records(plan).open("a", encoding="utf-8") as file:
        file.write(f"{process.pid} {process.start}\n")


def lock_path(number: int) -> Path:
    return ROOT / f"{number}.lock"


def cgroups_of(plan: Plan) -> list[Path]:
    """Where its containers' cgroups are: in the only hierarchy, or in one for each controller."""
    return [CGROUPS / plan.cgroup, *CGROUPS.glob(f"*/{plan.cgroup}")]


def thaw(folder: Path) -> None:
    """Let paused containers go on: under the first version of cgroups a frozen process does not die of SIGKILL."""
    for name, running in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        for state in folder.rglob(name):
            with contextlib.suppress(OSError):  # it ended, or is the topmost one, which cannot be frozen
                state.write_text(running, "ascii")


def _lock(number: int) -> int | None:
    path = lock_path(number)
    while True:
        ROOT.mkdir(exist_ok=True)
        try:
            lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:  # the last lab removed the folder in between
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except FileNotFoundError:
            pass
        os.close(lock)  # its owner removed the file between our open and our lock


def _is_network_known(number: int) -> bool:
    """Whether this machine has an address or a route of its own there."""
    found = subprocess.run(
        ["ip", "-o", "route", "show", "table", "all", "root", f"{Plan(number, 1).network}.0/24"],
        capture_output=True,
        text=True,
        check=False,
    )
    return bool(found.stdout.strip())


def _clear(plan: Plan) -> None:
    if _records(plan).exists():
        left = [
            Process(int(pid), start) for pid, start in map(str.split, _records(plan).read_text("utf-8").splitlines())
        ]
        left = [process for process in left if process.pid != os.getpid()]  # the keeper clears its own lab
        for process in left:
            process.kill()
        for top in cgroups_of(plan):
            thaw(top)
        for process in left:
            process.wait_gone()
    for top in cgroups_of(plan):
        # A cgroup is busy for a moment after its last process has ended.
        wait_until(lambda top=top: _remove_cgroup(top), f"the cgroup {top} to be empty", 5)  # type: ignore[misc]
    if plan.folder.exists():
        shutil.rmtree(plan.folder)


def _remove_cgroup(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not top.exists()


def _records(plan: Plan) -> Path:
    return plan.folder / "processes"
