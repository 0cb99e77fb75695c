"""Searching the workload's outputs on the hosts: trace files and step logs."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
from collections.abc import Mapping
from typing import Any

from pytest_aorta.config.settings import Settings
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Answers
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.stages.outside import ask_about_files

TRACE_FOLDER = "torch_profiler"
ABSENT = "No such file or directory"
_ANY_FOLDERS = "(?:[^/]+/)*"
STEP_LOGS = "rank_*_metrics.jsonl"
EXCLUDED = ("combined_traces", ".cvs-aorta", ".git", "__pycache__")
# A file server's clock may lag behind the node's; on this machine itself only the clock's coarse ticks count.
TOLERANCE_NS = {"local": 2 * 10**9, "ssh": 60 * 10**9, "slurm": 60 * 10**9}


def floor_ns(settings: Settings, wall_ns: int) -> int:
    """Give the oldest time of change (ns since the epoch) that still counts as made by this run."""
    return wall_ns - TOLERANCE_NS[settings.cluster.transport]


def search(
    run: RunContext,
    roots: Mapping[str, str],
    *,
    since_ns: Mapping[str, int],
    known: Mapping[str, Mapping[str, int]] | None = None,
) -> Answers:
    """Look for the workload's outputs below a folder on each host: files with paths relative to that folder.

    `since_ns` is a floor for the time of change by host; files of `known` with an unchanged time are left out.
    """
    below, folders, names = _where(run.settings)
    answers = ask_about_files(
        run,
        {
            host: Ask(
                "find",
                {
                    "root": f"{root}/{below}" if below else root,
                    "folders": folders,
                    "names": names,
                    "since_ns": since_ns[host],
                    "exclude_dirs": list(EXCLUDED),
                    "known": _relative_to(below, known[host]) if known else None,
                    "print": True,
                },
                timeout_s=300,
            )
            for host, root in roots.items()
        },
    )
    for host, answer in answers.items():
        if too_deep := answer.get("too_deep"):
            log.warning(
                "%s: %d paths below %s are too long to be read; they were left out", host, too_deep, roots[host]
            )
        for entry in answer["files"]:
            entry["path"] = f"{below}/{entry['path']}" if below else entry["path"]
        answer["files"] = [entry for entry in answer["files"] if is_output(run.settings, entry["path"])]
    return answers


def is_output(settings: Settings, path: str) -> bool:
    """Tell whether a found file (path relative to the root) is a trace or a step log of this workload."""
    return is_trace(settings, path) or fnmatch.fnmatchcase(path.rpartition("/")[2], STEP_LOGS)


def names_its_traces(settings: Settings) -> bool:
    """Tell whether the configuration says by a glob which files are traces; then all of them are."""
    workload = settings.config.workload
    return workload is not None and bool(workload.traces)


def is_trace(settings: Settings, path: str) -> bool:
    """Tell whether a found file (path relative to the root) is a trace of this workload."""
    workload = settings.config.workload
    if workload is not None and workload.traces:
        return _pattern(workload.traces).fullmatch(path) is not None
    return f"/{TRACE_FOLDER}/" in f"/{path}"


@functools.cache
def _pattern(glob: str) -> re.Pattern[str]:
    """Give a glob as a pattern: `**` stands for any folders or none, everything else stays within one name."""
    *folders, name = (_ANY_FOLDERS if part == "**" else _within(part) for part in glob.split("/"))
    if name == _ANY_FOLDERS:
        name = ".*"
    return re.compile("".join(part if part == _ANY_FOLDERS else f"{part}/" for part in folders) + name, re.DOTALL)


def _within(part: str) -> str:
    """Give the pattern of one name; wildcards do not reach over a slash."""
    return "".join(
        "[^/]*" if piece.startswith("*") else "[^/]" if piece == "?" else fnmatch.translate(piece)[4:-3]
        for piece in re.split(r"(\*+|\?)", part)
    )


def tree_of(path: str) -> str:
    """Give the tree a trace file belongs to: its path up to and including torch_profiler, else its folder."""
    parts = path.split("/")
    if TRACE_FOLDER in parts[:-1]:
        return "/".join(parts[: parts.index(TRACE_FOLDER) + 1])
    return "/".join(parts[:-1]) or "."


def newest_tree(files: list[dict[str, Any]]) -> str:
    """Give the tree whose newest file is newest."""
    return tree_of(max(files, key=lambda entry: int(entry["mtime_ns"]))["path"])


def _where(settings: Settings) -> tuple[str, list[str], list[str]]:
    """Give where to look: the folder below the root, folder names that count, and base name patterns that count.

    For a glob of a foreign workload the folders that it names outright are entered at once, so that the rest of the
    root, which may be anybody's home, is left alone.
    """
    workload = settings.config.workload
    if workload is None or not workload.traces:
        return "", [TRACE_FOLDER], [STEP_LOGS]
    *folders, name = workload.traces.split("/")
    outright = list(itertools.takewhile(lambda part: part != TRACE_FOLDER and not set(part) & set("*?["), folders))
    return "/".join(outright), [], [STEP_LOGS, name]


def _relative_to(below: str, known: Mapping[str, int]) -> dict[str, int]:
    prefix = f"{below}/" if below else ""
    return {path.removeprefix(prefix): changed for path, changed in known.items() if path.startswith(prefix)}
