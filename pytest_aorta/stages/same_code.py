"""Same code: the commit, and the files that a run starts, are equal on all hosts, or they train something else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from pytest_aorta.errors import StageError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.hostlist import host_list
from pytest_aorta.run.context import RunContext

# The commit, and a hash of what was changed since; of a folder without git nothing.
GIT_STATE = (
    'cd "$1" && git rev-parse HEAD 2>/dev/null'
    ' && git -c core.fileMode=false diff HEAD 2>/dev/null | sha256sum | cut -d " " -f 1'
)
NO_CHANGES = hashlib.sha256().hexdigest()


def same_commit(run: RunContext, folder: str) -> str:
    """Require the same commit on all hosts, with the same changes to it; gives it, "" without git.

    Raises:
        StageError: they differ. Which of them is right nobody knows, so no host is named as the wrong one.
    """
    answers = run.ask_inside(Ask("run", {"argv": ["sh", "-c", GIT_STATE, "sh", folder], "timeout_s": 30}, timeout_s=40))
    # A git that does not end in time on a slow file system says nothing about its host.
    told = {host: answer for host, answer in answers.items() if not answer["timed_out"]}
    states = {host: (str(answer["stdout"]).split() or [""]) for host, answer in told.items()}
    _require_same(
        f"the hosts have different checkouts in {folder}",
        {host: " ".join(state) for host, state in states.items()},
        {host: _git_text(*state) for host, state in states.items()},
        "make them equal: `git status` there shows what was changed",
    )
    return states.get(run.head.name, [""])[0]


def _git_text(commit: str, changes: str = "") -> str:
    if not commit:
        return "no git checkout"
    return commit[:12] + (f" with changes {changes[:8]}" if changes and changes != NO_CHANGES else "")


def require_same_files(run: RunContext, folder: str, names: Sequence[str]) -> None:
    """Require that the files which the run starts are the same on all hosts.

    Raises:
        StageError: one differs.
    """
    paths = [str(PurePosixPath(folder) / name) for name in names]
    if not paths or len(run.group) == 1:
        return
    answers = run.ask_inside(Ask("stat", {"paths": paths, "hash": True}, timeout_s=60))
    for path in paths:
        hashes = {host: str(answer["files"][path].get("sha256", "")) for host, answer in answers.items()}
        short = {host: each[:12] for host, each in hashes.items()}
        _require_same(f"{path} differs between the hosts", hashes, short, "make them equal")


def _require_same(what: str, found: Mapping[str, str], shown: Mapping[str, str], next_step: str) -> None:
    if len(set(found.values())) > 1:
        groups: dict[str, list[str]] = {}
        for host, value in found.items():
            groups.setdefault(value, []).append(host)
        seen = ", ".join(f"{host_list(hosts)} {shown[hosts[0]]}" for hosts in groups.values())
        raise StageError(f"{what}: {seen}; {next_step}")
