"""Discovery: which files below a folder are traces, and which rank and which run's tree a path names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

_SKIPPED = frozenset({".git", ".cvs-aorta", "tracelens_analysis"})
_RUN_RECORD = "run.json"
_RUN_DOCUMENTS = frozenset({_RUN_RECORD, "metrics.json", "verdict.json", "aorta_benchmark_report.json"})
_RUN_FOLDERS = frozenset({"facts", "judgements", "analysis", "evidence"})
_COLLECTED = "combined_traces"
_PROFILER_FOLDER = "torch_profiler"

_JSON = re.compile(r".+\.json(\.gz)?", re.IGNORECASE)
_EXPORTED = re.compile(r".+\.pt\.trace\.json(\.gz)?", re.IGNORECASE)
_NAMED = re.compile(r"trace.*\.json(\.gz)?", re.IGNORECASE)
_RANKS = (re.compile(r"(?<![a-zA-Z])rank[_-]?(\d{1,9})(?!\d)"), re.compile(r"(?<![a-zA-Z])worker[_-]?(\d{1,9})(?!\d)"))
_WINDOW = re.compile(r"(?:iteration|iter|step|window|cycle)[_-]?\d+", re.IGNORECASE)

_NOT_FOLLOWED = "a link, which is not followed; name it to read it"
_NO_FILE = "no regular file"
_OUTSIDE = f"outside of {_PROFILER_FOLDER}, where there are traces; name the file to read it"
_COPIED = f"a copy in {_COLLECTED}, beside which there are traces; name that folder to read it"
_OTHER_NAME = "not named like a trace (*.pt.trace.json, trace*.json), as others are; name the file to read it"
_SECOND_NAME = "beside an exported profile (*.pt.trace.json), of which it seems a copy; name the file to read it"


@dataclass(frozen=True, slots=True)
class PathReason:
    """A path below the searched folder, and why it is not among the traces."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a search gave, each in the order of paths.

    `left_out`: JSON files that were not taken for traces, and links. `unreadable`: what could not be looked into.
    """

    traces: tuple[Path, ...] = ()
    left_out: tuple[PathReason, ...] = ()
    unreadable: tuple[PathReason, ...] = ()


def discover(root: Path) -> Discovery:
    """Look for the trace files below a folder; a file is its own answer. No link below it is followed.

    JSON files below a folder `torch_profiler` are taken; when there is none, files named like traces
    (`*.pt.trace.json`, `trace*.json`, each also with `.gz`); else all JSON files. Collected copies (`combined_traces`)
    are taken only when nothing else of this sort is found. A profile that was exported under two names is taken once.
    What a run writes of itself beside its record (`run.json`) is passed over.
    """
    try:
        if not root.is_dir():
            return Discovery((root,))
    except OSError as error:
        return Discovery(unreadable=(PathReason(root, _why_unreadable(error)),))
    search = _Search(root)
    files = sorted(search.files())
    profiled = {path for path in files if _PROFILER_FOLDER in (absolute(root).name, *path.relative_to(root).parts[:-1])}
    if profiled:
        files = search.narrowed(files, profiled.__contains__, _OUTSIDE)
        files = search.narrowed(files, _has_no_other_name(files), _SECOND_NAME)
    else:
        files = search.narrowed(files, _is_named_like_a_trace, _OTHER_NAME)
    files = search.narrowed(files, lambda path: _COLLECTED not in path.relative_to(root).parts, _COPIED)
    return Discovery(tuple(files), _by_path(search.left_out), _by_path(search.unreadable))


def find_traces(root: Path) -> list[Path]:
    """Give the trace files below a folder in the order of their paths, see `discover`."""
    return list(discover(root).traces)


def absolute(path: Path) -> Path:
    """Give a path from the root on, without following links, so that the names that somebody typed stay."""
    return Path(os.path.normpath(path.absolute()))


def rank_in(path: PurePath) -> int | None:
    """Give the rank that a relative path names (`rank0`, `rank_0`, `worker0`, `x_rank0.json`), nearest the leaf."""
    for part in reversed(path.parts):
        for pattern in _RANKS:
            found = pattern.findall(part)
            if found:
                return int(found[-1])
    return None


def tree_of(path: PurePath) -> PurePath:
    """Give the folder of all ranks that a trace file belongs to: of one rank, only files of one tree are one profile.

    It ends with `torch_profiler`; where there is none, it is the file's folder without the folders of its rank and of
    its window (`iteration_100`) at the end.
    """
    folder = path.parent
    if _PROFILER_FOLDER in folder.parts:
        while folder.name != _PROFILER_FOLDER:
            folder = folder.parent
        return folder
    while rank_in(PurePath(folder.name)) is not None or _WINDOW.fullmatch(folder.name):
        folder = folder.parent
    return folder


class _Search:
    """One walk below a folder, and what it passes over."""

    def __init__(self, root: Path) -> None:
        self.left_out: list[PathReason] = []
        self.unreadable: list[PathReason] = []
        self._root = root

    def files(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self._root, onerror=self._cannot_read):
            is_run = _RUN_RECORD in names
            folders[:] = sorted(set(folders) - (_SKIPPED | _RUN_FOLDERS if is_run else _SKIPPED))
            links = (path for name in folders if os.path.islink(path := Path(folder, name)))  # noqa: PTH114 - never raises
            self.left_out += [PathReason(path, _NOT_FOLLOWED) for path in links]
            for name in set(names) - _RUN_DOCUMENTS if is_run else names:
                if _JSON.fullmatch(name) and self._is_file(Path(folder, name)):
                    yield Path(folder, name)

    def narrowed(self, files: list[Path], is_wanted: Callable[[Path], bool], why: str) -> list[Path]:
        """Keep the files that are wanted, if there is one; the others are left out."""
        wanted = [path for path in files if is_wanted(path)]
        if not wanted:
            return files
        self.left_out += [PathReason(path, why) for path in files if not is_wanted(path)]
        return wanted

    def _is_file(self, path: Path) -> bool:
        try:
            if path.is_symlink():
                self.left_out.append(PathReason(path, _NOT_FOLLOWED))
                return False
            if not path.is_file():
                self.left_out.append(PathReason(path, _NO_FILE))
                return False
        except OSError as error:
            self._cannot_read(error)
            return False
        return True

    def _cannot_read(self, error: OSError) -> None:
        self.unreadable.append(PathReason(Path(error.filename or self._root), _why_unreadable(error)))


def _why_unreadable(error: OSError) -> str:
    return f"cannot be looked into ({error.strerror or error})"


def _is_named_like_a_trace(path: Path) -> bool:
    return bool(_EXPORTED.fullmatch(path.name) or _NAMED.fullmatch(path.name))


def _has_no_other_name(files: Sequence[Path]) -> Callable[[Path], bool]:
    """Tell the exported profiles, and what lies beside none of them: they may be copied under names of their own."""
    exported = {path for path in files if _EXPORTED.fullmatch(path.name)}
    folders = {path.parent for path in exported}
    return lambda path: path in exported or path.parent not in folders


def _by_path(reasons: Iterable[PathReason]) -> tuple[PathReason, ...]:
    return tuple(sorted(reasons, key=lambda reason: reason.path))
