"""`aorta traces`: what profiler traces say, as a table for people or as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from pytest_aorta.cli_traces_text import left_out, report
from pytest_aorta.errors import ConfigError
from pytest_aorta.suite.opening import DEFAULT_OUTPUT, find_run
from pytest_aorta.trace.discovery import absolute, discover
from pytest_aorta.trace.lateness import Candidate, Lateness
from pytest_aorta.trace.lateness_metrics import lateness_quantities
from pytest_aorta.trace.metrics import aggregate, quantities
from pytest_aorta.trace.ranks import FileError, LeftOut, Summaries, summarize
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
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(readable=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, also when something is wrong.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to read with; default: one a core, when it pays.")
@click.pass_context
def traces(context: click.Context, paths: Sequence[str], *, as_json: bool, jobs: int | None) -> None:
    """Say where the GPU time of profiler traces went: files, or folders that are searched for them.

    PATH may also be a run: `last`, or an id or its beginning, as `aorta runs` shows it.

    Exit code 1 when a file could not be read (the others are shown), 2 when a path does not exist.
    """
    if "" in paths:
        raise click.BadParameter("a path is empty; name a file, a folder or a run", param_hint="PATH")
    named = [path if _exists(path) else _of_run(path) for path in map(Path, paths)]
    absent = [path for path in named if not _exists(path)]
    if absent:
        errors = tuple(
            FileError(
                str(path),
                f"{path}: no such file or folder, nor a run of `aorta runs`; expected traces or folders with some",
            )
            for path in absent
        )
        _show(Summaries((), errors), as_json=as_json)
        context.exit(2)
    found = _read(named, jobs)
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
            "by_name_only": lateness.by_name_only,
            "ranks": [asdict(rank) for rank in lateness.ranks],
            "bus_bandwidth": [asdict(row) for row in lateness.bandwidths],
        },
        "errors": [asdict(error) for error in found.errors],
        "left_out": [asdict(left_out) for left_out in found.left_out],
    }


def _exists(path: Path) -> bool:
    """Tell whether there is something, or may be; why it cannot be looked at is said where it is read."""
    try:
        return path.exists()
    except OSError:
        return True


def _of_run(name: Path) -> Path:
    """Give the folder of the run of this name in the usual places, or the name itself when there is none."""
    try:
        folder = find_run(str(name), Path(_REPORTS), Path(DEFAULT_OUTPUT), asked=str(name)).path
    except ConfigError as error:
        if "runs begin with it" in str(error):
            raise click.BadParameter(str(error), param_hint="PATH") from error
        return name
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _read(paths: Sequence[Path], jobs: int | None) -> Summaries:
    """Read what was found at paths; each file is called as it was typed, or by the folder that was typed."""
    files: dict[Path, Path] = {}
    notes: dict[Path, LeftOut] = {}
    errors = []
    for path in paths:
        search = discover(path)
        for file in search.traces:
            files.setdefault(absolute(file), file)
        notes |= {absolute(found.path): LeftOut(str(found.path), found.why) for found in search.left_out}
        errors += [FileError(str(found.path), f"{found.path}: {found.why}") for found in search.unreadable]
        if not search.traces and not search.unreadable:
            errors.append(FileError(str(path), f"{path}: holds no trace; expected *.json or *.json.gz files"))
    tops = [absolute(path) if _is_folder(path) else absolute(path).parent.parent for path in paths]
    names = [str(file) for file in files.values()]
    found = summarize(
        Path(os.path.commonpath(tops)), list(files.values()), names, jobs=jobs, with_lateness=len(files) > 1
    )
    return replace(
        found,
        errors=(*errors, *found.errors),
        left_out=tuple(note for path, note in notes.items() if path not in files),
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


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
        for line in (*report(found), *left_out(found.left_out)):
            click.echo(_printable(line))
    for error in found.errors:
        click.echo(_printable(error.error), err=True)


def _print_json(found: Summaries) -> None:
    click.echo(json.dumps(document(found), indent=2, allow_nan=False))


def _printable(text: str) -> str:
    """Put escapes for control characters and undecodable bytes of file and kernel names."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
