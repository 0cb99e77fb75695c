"""Searching the workload's outputs on the hosts: trace files and step logs."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from pytest_aorta.config.settings import Settings
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Answers
from pytest_aorta.run.context import RunContext

TRACE_FOLDER = "torch_profiler"
STEP_LOGS = "rank_*_metrics.jsonl"
EXCLUDED = ("combined_traces", ".cvs-aorta", ".git", "__pycache__")
# The file server's clock may lag behind the node's.
TOLERANCE_NS = 60 * 10**9


def floor_ns(wall_ns: int) -> int:
    """Give the oldest time of change (ns since the epoch) that still counts as made by this run."""
    return wall_ns - TOLERANCE_NS


def search(
    run: RunContext,
    roots: Mapping[str, str],
    *,
    since_ns: Mapping[str, int],
    known: Mapping[str, Mapping[str, int]] | None = None,
) -> Answers:
    """Look for the workload's outputs below a folder on each host.

    `since_ns` is a floor for the time of change by host; files of `known` with an unchanged time are left out.
    """
    names = [STEP_LOGS, *_basenames(run.settings)]
    return run.connect().perform(
        {
            host: Ask(
                "find",
                {
                    "root": root,
                    "folders": [TRACE_FOLDER],
                    "names": names,
                    "since_ns": since_ns[host],
                    "exclude_dirs": list(EXCLUDED),
                    "known": dict(known[host]) if known else None,
                },
                timeout_s=300,
            )
            for host, root in roots.items()
        }
    )


def is_trace(settings: Settings, path: str) -> bool:
    """Tell whether a found file (path relative to the root) is a trace of this workload."""
    workload = settings.config.workload
    if workload is not None and workload.traces:
        return fnmatch.fnmatchcase(path, workload.traces.replace("**/", "*"))
    return f"/{TRACE_FOLDER}/" in f"/{path}"


def tree_of(path: str) -> str:
    """Give the tree a trace file belongs to: its path up to and including torch_profiler, else its folder."""
    parts = path.split("/")
    if TRACE_FOLDER in parts[:-1]:
        return "/".join(parts[: parts.index(TRACE_FOLDER) + 1])
    return "/".join(parts[:-1]) or "."


def newest_tree(files: list[dict[str, Any]]) -> str:
    """Give the tree whose newest file is newest."""
    return tree_of(max(files, key=lambda entry: int(entry["mtime_ns"]))["path"])


def _basenames(settings: Settings) -> list[str]:
    workload = settings.config.workload
    return [workload.traces.rpartition("/")[2]] if workload is not None and workload.traces else []
