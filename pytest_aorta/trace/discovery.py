"""Discovery: which files below a folder are traces, and which rank a path names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

_SKIPPED = frozenset({".git", ".cvs-aorta", "tracelens_analysis"})
_COLLECTED = "combined_traces"
_PROFILER_FOLDER = "torch_profiler"

_JSON = re.compile(r".+\.json(\.gz)?", re.IGNORECASE)
_EXPORTED = re.compile(r".+\.pt\.trace\.json(\.gz)?", re.IGNORECASE)
_NAMED = re.compile(r"trace.*\.json(\.gz)?", re.IGNORECASE)
_RANKS = (re.compile(r"(?<![a-zA-Z])rank[_-]?(\d{1,9})(?!\d)"), re.compile(r"(?<![a-zA-Z])worker[_-]?(\d{1,9})(?!\d)"))


def find_traces(root: Path) -> list[Path]:
    """Give the trace files below a folder in the order of their paths; a file is its own answer. No link is followed.

    JSON files below a folder `torch_profiler` are taken; when there is none, files named like traces
    (`*.pt.trace.json`, `trace*.json`, each also with `.gz`); else all JSON files. Collected copies (`combined_traces`)
    are taken only when nothing else is found. A profile that was exported under two names is taken once.
    """
    if root.is_file():
        return [root]
    files = [path for path in _walk(root) if _JSON.fullmatch(path.name)]
    files = [path for path in files if _COLLECTED not in path.relative_to(root).parts] or files
    profiled = [path for path in files if _PROFILER_FOLDER in (root.name, *path.relative_to(root).parts[:-1])]
    named = [path for path in files if _EXPORTED.fullmatch(path.name) or _NAMED.fullmatch(path.name)]
    return sorted(_without_second_names(profiled) or named or files)


def rank_in(path: PurePath) -> int | None:
    """Give the rank that a relative path names (`rank0`, `rank_0`, `worker0`, `x_rank0.json`), nearest the leaf."""
    for part in reversed(path.parts):
        for pattern in _RANKS:
            found = pattern.findall(part)
            if found:
                return int(found[-1])
    return None


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _without_second_names(files: Sequence[Path]) -> list[Path]:
    """Leave out what lies beside exported traces of one folder: the same profiles, copied under names of their own."""
    exported = {path for path in files if _EXPORTED.fullmatch(path.name)}
    folders = {path.parent for path in exported}
    return [path for path in files if path in exported or path.parent not in folders]
