"""`aorta traces`: what profiler traces say, as a table for people or as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from pytest_aorta.trace.discovery import find_traces
from pytest_aorta.trace.kernels import longest
from pytest_aorta.trace.lateness import Candidate, Lateness, RankLateness
from pytest_aorta.trace.lateness_metrics import lateness_quantities
from pytest_aorta.trace.metrics import aggregate, quantities, shares
from pytest_aorta.trace.ranks import FileError, Summaries, summarize
from pytest_aorta.trace.summary import RankSummary

_RANK_FIELDS = (
    *("rank", "device", "file", "files", "source", "label", "world_size"),
    *("total_time_us", "computation_time_us", "total_comm_time_us", "exposed_comm_time_us", "exposed_memcpy_time_us"),
    *("total_memcpy_time_us", "memset_time_us", "busy_time_us", "idle_time_us", "overlap_time_us"),
    *("true_overlap_ratio", "gpu_idle_ratio", "host_wait_ratio", "num_comm_kernels", "num_gpu_events"),
    *("num_profiled_steps", "step_times_ms", "peak_memory_bytes", "events_lost", "warnings"),
)
_HEADINGS = (
    *("rank", "device", "total ms", "compute %", "comm %", "exposed %", "overlap %", "idle %", "host wait %"),
    *("steps", "step ms", "lost", "file"),
)
_LATENESS_HEADINGS = (
    *("rank", "device", "waits ms", "caused ms", "last %", "exposed transfer ms", "hidden %", "imbalance %"),
    "kernels",
)
_SINGLE = Lateness(why="lateness needs the traces of two ranks or more")
_MAX_BANDWIDTHS = 12
_NO_VALUE = "—"
_EPILOG = "Example: aorta traces aorta_results/RUN_ID --json"


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

    Exit code 1 when a file could not be read (the others are shown), 2 when a path does not exist.
    """
    absent = [path for path in paths if not path.exists()]
    if absent:
        errors = tuple(
            FileError(str(path), f"{path}: no such file or folder; expected trace files or folders with some")
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
        for line in _report(found):
            click.echo(_printable(line))
    for error in found.errors:
        click.echo(_printable(error.error), err=True)


def _print_json(found: Summaries) -> None:
    click.echo(json.dumps(document(found), indent=2, allow_nan=False))


def _report(found: Summaries) -> Iterator[str]:
    if not found.ranks:
        return
    yield from _table((_HEADINGS, *(_cells(rank) for rank in found.ranks)))
    yield "Shares are of the whole trace; overlap is of communication and includes waiting for other ranks."
    yield from _metrics(found.ranks)
    yield from _lateness(found.lateness)
    yield from _top_kernels(found.ranks)
    for warning in dict.fromkeys(warning for rank in found.ranks for warning in rank.warnings):
        yield f"warning: {warning}"


def _metrics(ranks: Sequence[RankSummary]) -> Iterator[str]:
    whole = aggregate(ranks)
    yield ""
    yield f"Means over {whole.num_ranks} rank(s), source: {whole.label}"
    missing: dict[str, list[str]] = {}
    for name, quantity in quantities(ranks).items():
        if quantity.value is None:
            missing.setdefault(quantity.why, []).append(name)
        else:
            yield f"  {name:<30} {quantity.value:>16.4f} {quantity.unit}".rstrip()
    for why, names in missing.items():
        yield f"Not measured, because {why}: {', '.join(names)}"


def _lateness(found: Lateness | None) -> Iterator[str]:
    if found is None:
        return
    yield ""
    yield (
        f"Across ranks: {found.num_matched} of {found.num_matchable} collectives matched, {found.num_unnamed} without "
        "metadata; times per step"
    )
    if any(rank.caused_delay_ms_per_step is not None for rank in found.ranks):
        yield from _table((_LATENESS_HEADINGS, *(_lateness_cells(rank) for rank in found.ranks)))
    if found.straggler is not None:
        yield f"Straggler: {_spoken(found.straggler)}"
    elif found.largest_candidate is not None:
        yield f"No straggler: {found.why}. Largest candidate: {_spoken(found.largest_candidate)}"
    else:
        yield f"No statement about a straggler: {found.why}" if found.why else "No straggler: no rank was waited for"
    for row in sorted(found.bandwidths, key=lambda row: not row.is_slow)[:_MAX_BANDWIDTHS]:
        slow = ", far below like groups" if row.is_slow else ""
        yield (
            f"  bus bandwidth {row.gbps:8.2f} GB/s  {row.operation} from {row.size_bytes:,} bytes, "
            f"{row.num_collectives} in group {row.group}{slow}"
        )


def _spoken(candidate: Candidate) -> str:
    return (
        f"rank {candidate.rank}, kind {candidate.kind}: the others wait {candidate.caused_delay_ms_per_step:.2f} ms a "
        f"step for it, and it is the last in {candidate.share_last:.0%} of its collectives"
    )


def _lateness_cells(rank: RankLateness) -> tuple[str, ...]:
    def times(*values: float | None) -> Iterator[str]:
        return (_NO_VALUE if value is None else f"{value:.2f}" for value in values)

    def ratios(*values: float | None) -> Iterator[str]:
        return (_NO_VALUE if value is None else f"{value:.1%}" for value in values)

    return (
        _NO_VALUE if rank.rank is None else str(rank.rank),
        _NO_VALUE if rank.device is None else str(rank.device),
        *times(rank.exposed_wait_ms, rank.caused_delay_ms_per_step),
        *ratios(rank.share_last),
        *times(rank.exposed_transfer_ms),
        *ratios(rank.hidden_transfer_ratio, rank.imbalance_ratio),
        _NO_VALUE if rank.kernel_slowdown_ratio is None else f"{rank.kernel_slowdown_ratio:.3f}x",
    )


def _top_kernels(ranks: Sequence[RankSummary]) -> Iterator[str]:
    kernels = longest(kernel for rank in ranks for kernel in rank.top_kernels)
    if kernels:
        yield ""
        yield "Kernels with the most time, all ranks together (ms, launches, name)"
        for kernel in kernels:
            yield f"  {kernel.total_us / 1000:>12.3f} {kernel.num_events:>8}  {kernel.name[:80]}"


def _cells(rank: RankSummary) -> tuple[str, ...]:
    share = shares(rank)
    exposed = rank.exposed_comm_time_us
    exposed_ratio = exposed / rank.total_time_us if exposed is not None and rank.total_time_us else None
    ratios = (share.compute_ratio, share.comm_ratio, exposed_ratio, rank.true_overlap_ratio, rank.gpu_idle_ratio)
    return (
        _NO_VALUE if rank.rank is None else str(rank.rank),
        _NO_VALUE if rank.device is None else str(rank.device),
        _NO_VALUE if rank.total_time_us is None else f"{rank.total_time_us / 1000:.3f}",
        *(_NO_VALUE if ratio is None else f"{ratio:.1%}" for ratio in (*ratios, rank.host_wait_ratio)),
        str(rank.num_profiled_steps),
        f"{median(rank.step_times_ms):.3f}" if rank.step_times_ms else _NO_VALUE,
        str(rank.events_lost),
        rank.file if len(rank.files) == 1 else f"{rank.file} and {len(rank.files) - 1} more",
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lay cells out in columns: numbers to the right, the last column as it is."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join((*cells, row[-1]))


def _printable(text: str) -> str:
    """Put escapes for control characters and undecodable bytes of file and kernel names."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
