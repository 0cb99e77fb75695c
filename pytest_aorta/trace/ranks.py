"""Ranks: the traces of a run, read side by side, one summary a rank and device in their order."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.discovery import absolute, find_traces, rank_in, tree_of
from pytest_aorta.trace.lateness import Lateness, analyze
from pytest_aorta.trace.processes import pool
from pytest_aorta.trace.reading import read
from pytest_aorta.trace.sources.choice import Parser, summarizer
from pytest_aorta.trace.summary import RankSummary, summaries_of
from pytest_aorta.trace.windows import RankSummaries, merged, why_no_windows

_PROCESSES_PAY_BYTES = 256 << 20  # decoded; below it starting processes takes longer than reading
_GZIP_FACTOR = 12

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileError:
    """A trace file that gave no summary, and why: one sentence that begins with its name."""

    file: str
    error: str


_Summarize = Callable[[Path, str], RankSummaries | FileError]
_Reading = Generator[tuple[int, RankSummaries | FileError], None, None]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that was found and not read, and why."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class Summaries:
    """What the traces of a run gave: summaries by rank and device, errors by file; lateness when it was asked for."""

    ranks: tuple[RankSummary, ...]
    errors: tuple[FileError, ...]
    lateness: Lateness | None = None
    left_out: tuple[LeftOut, ...] = ()


def summarize(
    root: Path,
    files: Sequence[Path] | None = None,
    names: Sequence[str] | None = None,
    *,
    jobs: int | None = None,
    on_progress: Progress | None = None,
    parser: Parser = "timeline",
    with_lateness: bool = False,
    with_kernels: bool = False,
) -> Summaries:
    """Read the traces below `root`, or the given `files`; one bad file stops no other.

    With `jobs` above 1 that many processes read side by side; without it, one a core when the files are large enough
    to pay for starting them. The rank is what the file says of itself, else what its path below `root` says. `names`
    is what the files are called, else their paths below `root`.
    `on_progress` is called with the number of files done and of all. `parser` is the source of the times.
    `with_lateness` also judges the ranks' collectives together, which takes more to read. `with_kernels` keeps all
    names of kernels, which the timeline alone gives.
    """
    paths = find_traces(root) if files is None else list(files)
    below = [_name_below(root, path) for path in paths]
    names = below if names is None else names
    if jobs is None:
        jobs = len(os.sched_getaffinity(0)) if _processes_pay(paths) else 1
    num_jobs = min(jobs, len(paths))
    one = partial(_summarize_file, parser=parser, with_columns=with_lateness, with_kernels=with_kernels)
    reading = _in_processes(paths, names, num_jobs, one) if num_jobs > 1 else _here(paths, names, one)
    found: list[RankSummaries | FileError] = [FileError(name, "") for name in names]
    with closing(reading):
        for num_done, (position, result) in enumerate(reading, start=1):
            found[position] = result
            if on_progress is not None:
                on_progress(num_done, len(paths))
    ranked = _ranked(found, below, [str(tree_of(Path(os.path.realpath(path.parent), path.name))) for path in paths])
    return _judged(ranked) if with_lateness else ranked


def _judged(found: Summaries) -> Summaries:
    """Put lateness beside the summaries, which lose their columns."""
    columns = [
        replace(rank.columns, rank=rank.rank, device=rank.device) for rank in found.ranks if rank.columns is not None
    ]
    lateness = Lateness(why=why) if (why := _why_not_judged(found.ranks)) else analyze(columns)
    return replace(found, ranks=tuple(replace(rank, columns=None) for rank in found.ranks), lateness=lateness)


def _why_not_judged(ranks: Sequence[RankSummary]) -> str:
    sources = {rank.source: rank.label for rank in ranks}
    others = [label for source, label in sorted(sources.items()) if source not in ("timeline", "cpu-steps")]
    if others:
        return f"lateness is measured on the timeline of raw traces only, not by: {', '.join(others)}"
    return "the traces hold no GPU events" if sources and "timeline" not in sources else ""


def _ranked(found: Sequence[RankSummaries | FileError], below: Sequence[str], trees: Sequence[str]) -> Summaries:
    ranks: list[RankSummary] = []
    errors = [result for result in found if isinstance(result, FileError)]
    by_rank: dict[int | None, list[tuple[RankSummaries, str]]] = defaultdict(list)
    for result, path, tree in zip(found, below, trees, strict=True):
        if not isinstance(result, FileError):
            rank = result[0].rank if result[0].rank is not None else rank_in(PurePosixPath(path))
            by_rank[rank].append((tuple(replace(summary, rank=rank) for summary in result), tree))
    if len(found) > 1:
        errors += [FileError(result[0].file, _unknown_rank(result[0].file)) for result, _ in by_rank.pop(None, [])]
    for of_rank in by_rank.values():
        windows = [window for window, _ in of_rank]
        why = why_no_windows(windows, [tree for _, tree in of_rank])
        if why:
            errors += [FileError(window[0].file, f"{window[0].file}: {why}") for window in windows]
        else:
            ranks += merged(windows)
    return Summaries(
        ranks=tuple(sorted(ranks, key=lambda summary: (_or_first(summary.rank), _or_first(summary.device)))),
        errors=tuple(sorted(errors, key=lambda error: error.file)),
    )


def _unknown_rank(file: str) -> str:
    return (
        f"{file}: its rank is unknown, neither in the file (distributedInfo) nor in its path, and there are "
        "several files; name the file or its folder like rank0"
    )


def _or_first(number: int | None) -> int:
    return -1 if number is None else number


def _name_below(root: Path, path: Path) -> str:
    """Give the path relative to `root`, or the bare name when it lies elsewhere or is `root` itself."""
    root, path = absolute(root), absolute(path)
    if path != root and path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return path.name


def _processes_pay(paths: Sequence[Path]) -> bool:
    decoded_bytes = sum(_size(path) * (_GZIP_FACTOR if path.suffix == ".gz" else 1) for path in paths)
    return decoded_bytes >= _PROCESSES_PAY_BYTES


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _here(paths: Sequence[Path], names: Sequence[str], one: _Summarize) -> _Reading:
    for position, (path, name) in enumerate(zip(paths, names, strict=True)):
        yield position, one(path, name)


def _in_processes(paths: Sequence[Path], names: Sequence[str], num_jobs: int, one: _Summarize) -> _Reading:
    """Read files side by side, the largest first; a file that was being read when a process died is tried alone."""
    left = set(range(len(paths)))
    order = sorted(left, key=lambda position: -_size(paths[position]))
    with pool(num_jobs) as executor:
        futures = {executor.submit(one, paths[position], names[position]): position for position in order}
        for future in as_completed(futures):
            try:
                result = future.result()
            except BrokenProcessPool:
                continue
            left.remove(futures[future])
            yield futures[future], result
    for position in sorted(left):
        yield position, _alone(paths[position], names[position], one)


def _alone(path: Path, name: str, one: _Summarize) -> RankSummaries | FileError:
    with pool(1) as executor:
        try:
            return executor.submit(one, path, name).result()
        except BrokenProcessPool:
            return FileError(name, f"{name}: the process that read it was ended, maybe for lack of memory")


def _summarize_file(
    path: Path, name: str, *, parser: Parser, with_columns: bool, with_kernels: bool
) -> RankSummaries | FileError:
    try:
        if parser != "timeline":
            return summarizer(parser)(path, name)
        trace = read(path, with_links=with_columns)
        return summaries_of(trace, file=name, rank=trace.metadata.rank, with_kernels=with_kernels)
    except TraceError as error:
        return FileError(name, _by_whole_name(name, str(error)))
    except MemoryError:
        return FileError(name, f"{name}: there is not enough memory to read it")


def _by_whole_name(name: str, sentence: str) -> str:
    """Begin a sentence that begins with the bare name of a file with the name it is known by."""
    bare = PurePosixPath(name).name
    return name + sentence.removeprefix(bare) if sentence.startswith(f"{bare}:") else sentence
