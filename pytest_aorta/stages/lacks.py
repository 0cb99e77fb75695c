"""Lacks: why a host gave not all of its traces, on whose account that goes, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_aorta.checks import Account
from pytest_aorta.config.redact import scrub_value
from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import Defect, HostError
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.stages.benchmark import PHASE
from pytest_aorta.stages.losses import loss_of
from pytest_aorta.stages.search import ABSENT, TRACE_FOLDER, names_its_traces

RULES_OUT_STALE = "written by this run (newer than launch, or changed since)"
ENDED_BEFORE = "the workload did not come to its end"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # no SFTP server says one of these: they are of this machine


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a host gave not all of its traces; `host` is whom the verdict names, `wrote_none` the workload's own doing.

    Without a next step the sentence says it.
    """

    said: str
    host: str | None
    next_step: str = ""
    fault: Account = "rig"
    wrote_none: bool = False


class NotKept(HostError):
    """What a host sent could not be kept on this machine, which is no fault of the host."""

    def __init__(self, host: str, folder: Path, error: OSError) -> None:
        said = error.strerror or str(error)
        words = said.removesuffix(" on this machine")
        super().__init__(host, f"traces cannot be kept in {folder} on this machine: {words}; {_room(error)}")

    def __str__(self) -> str:
        """Give the sentence without the host, which has nothing to do with it."""
        return self.reason


def _room(error: OSError) -> str:
    first = "free space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
    return f"{first} there, or name another folder with --aorta-output"


def not_kept(host: str, folder: Path, error: OSError | HostError) -> NotKept | None:
    """Give what kept files of a host from being written here, if that is the error of copying or unpacking them."""
    if isinstance(error, OSError):
        return NotKept(host, folder, error)
    cause: BaseException | None = error
    while cause is not None:
        is_ours = isinstance(cause, OSError) and str(cause.filename or "").startswith(f"{folder}/")
        if isinstance(cause, OSError) and (is_ours or cause.errno in FULL):
            return NotKept(host, folder, cause)
        cause = cause.__cause__
    return None


def not_found(run: RunContext, host: str, error: HostError) -> Lack:
    """Say why nothing could be looked for."""
    if ABSENT not in error.reason or not names_its_traces(run.settings):
        return Lack(str(error), host)
    where = error.reason.partition(": ")[2]
    said = f"{host}: the workload wrote nothing where workload.traces says ({where})"
    return Lack(said, host, _look_at_the_workload(run, host), wrote_none=True)


def without_inventory(folder: RunFolder, host: str, why: str) -> Lack:
    """Say that nobody knows which files are new; `why` the older ones could not be listed, where they never were."""
    if why:
        said = f"{host}: what was there before the launch could not be listed ({why}); which files are new is unknown"
        return Lack(said, host, "see that the folder of the traces can be searched on that host, then run it again")
    said = f"{host}: the list of files from before the launch is gone; which are new is unknown"
    return Lack(said, host, f"keep clean-up jobs and other people out of {folder.path}, then run it again")


def too_much(host: str, said: str) -> Lack:
    """Say that a file is too large to be brought."""
    step = "narrow workload.traces to the traces, or have the profiler record fewer steps"
    return Lack(f"{host}: {said}", host, step)


def withheld(host: str, paths: list[str], secrets: Iterable[str]) -> Lack:
    """Say that traces stayed where they are, because their names would tell a secret here."""
    whose = (
        "1 trace has a secret in its name" if len(paths) == 1 else f"{len(paths)} traces have secrets in their names"
    )
    said = f"{host}: {whose} and stayed there ({scrub_value(paths[0], secrets)})"
    step = "have the workload name its traces without the value of a secret (a token, a password)"
    return Lack(said, host, step, "config")


def wrote_none(run: RunContext, host: str, root: str, num_stale: int, num_same: int, *, completed: bool) -> Lack:
    """Say that no trace is of this run; `num_same` of the stale ones are newer, with the bytes of an earlier run's.

    A workload that was not `completed` is what there is to look at, and its stage has said so.
    """
    older = f"; {num_stale} older ones were left alone" if num_stale else ""
    told = f", {num_same} of them with a later time but with the very bytes of one that was there before"
    same = told if num_same else ""
    said = f"{host} has no {_wanted(run.settings)} {RULES_OUT_STALE} in {root}{older}{same}"
    if num_same:
        step = "were they touched or copied? If the workload wrote them anew, empty the folder before each run"
        return Lack(said, host, step, wrote_none=True)
    if not completed:
        step = "see what test_run_benchmark says of the workload's end; without it there would be traces"
        return Lack(f"{said}; {ENDED_BEFORE}", host, step, wrote_none=True)
    return Lack(said, host, _look_at_the_workload(run, host), wrote_none=True)


def not_brought(error: HostError) -> Lack:
    """Say why what was found did not come."""
    return Lack(str(error), None if isinstance(error, (NotKept, Defect)) else error.host)


def of_the_lost(run: RunContext, lacks: dict[str, Lack]) -> Iterator[tuple[str, Lack]]:
    """Give the lacks, of hosts that cannot be asked any more what became of them."""
    for host, lack in lacks.items():
        lost = loss_of(run, host)
        yield host, lack if lost is None else Lack(lost.said, lost.host, lost.next_step, lost.fault)


def _look_at_the_workload(run: RunContext, host: str) -> str:
    rank = next(each.rank for each in run.group if each.name == host)
    look = f"look at {run.folder.log_of(PHASE, rank, host)}: did it get as far as its profiled steps?"
    if run.settings.config.workload is None:
        return look
    where = "does workload.traces say where its traces lie? Each rank must write one, a step log is not enough"
    return f"{where}; if it does, {look}"


def _wanted(settings: Settings) -> str:
    workload = settings.config.workload
    if workload is None or not workload.traces:
        return f"trace file below a folder {TRACE_FOLDER}"
    return f"trace file that matches {workload.traces} and was"
