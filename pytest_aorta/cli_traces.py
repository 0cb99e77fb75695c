"""`aorta traces`: what profiler traces say, as a table for people or as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from pytest_aorta.cli_traces_text import report
from pytest_aorta.errors import ConfigError
from pytest_aorta.suite.opening import DEFAULT_OUTPUT, find_run
from pytest_aorta.trace.discovery import find_traces
from pytest_aorta.trace.lateness import Candidate, Lateness
from pytest_aorta.trace.lateness_metrics import lateness_quantities
from pytest_aorta.trace.metrics import aggregate, quantities
from pytest_aorta.trace.ranks import FileError, Summaries, summarize
from pytest_aorta.trace.summary import RankSummary

_RANK_FIELDS = (
    *("rank", "device", "file", "files", "source", "label", "world_size"),
    *("total_time_us", "computation_time_us", "total_comm_time_us", "exposed_comm_time_us", "exposed_memcpy_time_us"),
    *("total_memcpy_time_us", "memset_time_us", "busy_time_us", "idle_time_us", "overlap_time_us"),
    *("true_overlap_ratio", "gpu_idle_ratio", "host_wait_ratio", "num_comm_kernels", "num_gpu_events"),
    *("num_profiled_steps", "step_times_ms", "peak_memory_bytes", "events_lost", "warnings"),
)
_SINGLE = Lateness(why="lateness needs the traces of two ranks or more")
_REPORTS = "aorta_reports"
_EPILOG = "Example: aorta traces last --json"


class _TracesCommand(click.Command):
    """Puts a JSON document on stdout also when the command line itself is wrong."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        wants_json = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            if wants_json:
                _print_json(Summaries((), (FileError("", error.format_message()),)))
            raise


@click.command("traces", cls=_TracesCommand, epilog=_EPILOG)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, also when something is wrong.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to read with; default: one a core, when it pays.")
@click.pass_context
def traces(context: click.Context, paths: Sequence[Path], *, as_json: bool, jobs: int | None) -> None:
    """Say where the GPU time of profiler traces went: files, or folders that are searched for them.

    PATH may also be a run: `last`, or an id or its beginning, as `aorta runs` shows it.

    Exit code 1 when a file could not be read (the others are shown), 2 when a path does not exist.
    """
    paths = [path if path.exists() else _of_run(path) for path in paths]
    absent = [path for path in paths if not path.exists()]
    if absent:
        errors = tuple(
            FileError(str(path), f"{path}: no such file or folder, nor a run; expected traces or folders with some")
            for path in absent
        )
        _show(Summaries((), errors), as_json=as_json)
        context.exit(2)
    found = _read([Path(os.path.normpath(Path.cwd() / path)) for path in paths], jobs)
    _show(found, as_json=as_json)
    context.exit(1 if found.errors else 0)


def document(found: Summaries) -> dict[str, Any]:
    """Give what `--json` prints; metric names and units are those of metrics.json."""
    whole = aggregate(found.ranks)
    lateness = found.lateness or _SINGLE
    return {
        "ranks": [_rank_row(rank) for rank in found.ranks],
        "aggregate": {
            **{name: quantity.value for name, quantity in quantities(found.ranks).items()},
            **{name: quantity.value for name, quantity in lateness_quantities(lateness).items()},
            "num_ranks": whole.num_ranks,
            "source": whole.source,
            "label": whole.label,
            "why": whole.why,
        },
        "matched_ratio": lateness.matched_ratio,
        "straggler": _candidate_row(lateness.straggler),
        "largest_candidate": _candidate_row(lateness.largest_candidate),
        "lateness": {
            "why": lateness.why,
            "num_steps": lateness.num_steps,
            "num_matched": lateness.num_matched,
            "num_matchable": lateness.num_matchable,
            "num_unnamed": lateness.num_unnamed,
            "ranks": [asdict(rank) for rank in lateness.ranks],
            "bus_bandwidth": [asdict(row) for row in lateness.bandwidths],
        },
        "errors": [asdict(error) for error in found.errors],
    }


def _of_run(name: Path) -> Path:
    """Give the folder of the run of this name in the usual places, or the name itself when there is none."""
    try:
        return find_run(str(name), Path(_REPORTS), Path(DEFAULT_OUTPUT)).path
    except ConfigError:
        return name


def _read(paths: Sequence[Path], jobs: int | None) -> Summaries:
    files: dict[Path, None] = {}
    empty = []
    for path in paths:
        below = find_traces(path)
        files.update(dict.fromkeys(below))
        if not below:
            empty.append(FileError(_shown(path), f"{_shown(path)}: holds no trace; expected *.json or *.json.gz files"))
    root = Path(os.path.commonpath([path.parent.parent if path.is_file() else path for path in paths]))
    found = summarize(root, list(files), jobs=jobs, with_lateness=len(files) > 1)
    ranks = tuple(_with_shown_files(rank, root) for rank in found.ranks)
    errors = (FileError(_shown(root / error.file), error.error) for error in found.errors)
    return Summaries(ranks, (*empty, *errors), found.lateness)


def _shown(path: Path) -> str:
    """Give a path as a person would type it from here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _with_shown_files(rank: RankSummary, root: Path) -> RankSummary:
    return replace(rank, files=tuple(_shown(root / file) for file in rank.files))


def _rank_row(rank: RankSummary) -> dict[str, Any]:
    row = {name: getattr(rank, name) for name in _RANK_FIELDS}
    row["top_kernels"] = [asdict(kernel) for kernel in rank.top_kernels]
    row["copies"] = [asdict(copies) for copies in rank.copies]
    return row


def _candidate_row(candidate: Candidate | None) -> dict[str, Any] | None:
    return None if candidate is None else asdict(candidate)


def _show(found: Summaries, *, as_json: bool) -> None:
    if as_json:
        _print_json(found)
    else:
        for line in report(found):
            click.echo(_printable(line))
    for error in found.errors:
        click.echo(_printable(error.error), err=True)


def _print_json(found: Summaries) -> None:
    click.echo(json.dumps(document(found), indent=2, allow_nan=False))


def _printable(text: str) -> str:
    """Put escapes for control characters and undecodable bytes of file and kernel names."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
