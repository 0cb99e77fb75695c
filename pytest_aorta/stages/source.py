"""The source of a run's times: analysis.parser, and for `auto` what the run has collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_aorta.config.document import PathFault
from pytest_aorta.config.model import RunConfig
from pytest_aorta.errors import StageError
from pytest_aorta.run.context import RunContext
from pytest_aorta.stages.analyze import OUTPUT
from pytest_aorta.trace.discovery import Discovery, discover
from pytest_aorta.trace.ranks import Progress, Summaries, summarize
from pytest_aorta.trace.sources import tracelens
from pytest_aorta.trace.sources.choice import Parser, why_unusable
from pytest_aorta.trace.sources.workbooks import find_workbooks

REPORTS = "individual_reports"
MAX_NAMED = 3


def unusable_parser(config: RunConfig) -> Iterator[PathFault]:
    """Give why the parser that a configuration names could not be used here."""
    parser, where = config.analysis.parser, ("analysis", "parser")
    if parser == "excel" and not _writes_reports(config):
        yield PathFault(
            where,
            "excel reads what the analysis script of a checkout writes; set aorta_path and analysis.enable_tracelens",
        )
    match parser:
        case "tracelens" | "excel" | "basic":
            if why := why_unusable(parser):
                yield PathFault(where, why)
        case "auto" | "timeline":
            return


def read_ranks(
    run: RunContext, root: Path, files: Sequence[Path] | None, on_progress: Progress
) -> tuple[Summaries, tuple[str, ...]]:
    """Summarize the ranks of a run from the source that is chosen, and say what was notable about the choice.

    `files` are the traces below `root`; None lets the trace engine look for them.

    Raises:
        StageError: the Excel reports were asked for, and there is none of this run.
    """
    parser = run.settings.config.analysis.parser
    found_here = discover(root) if files is None else Discovery(tuple(files))
    traces = list(found_here.traces)
    notes = _left_out(root, found_here)
    if parser == "excel" or (
        parser == "auto" and len(run.settings.hosts) == 1 and _writes_reports(run.settings.config)
    ):
        folder = run.folder.analysis / OUTPUT / REPORTS
        reports, why = _of_this_run(find_workbooks(folder), traces)
        if parser == "auto" and reports and not why:
            why = why_unusable("excel")
        if reports and not why:
            summaries = summarize(folder, reports, parser="excel", on_progress=on_progress)
            if summaries.ranks or parser == "excel":
                return summaries, notes
            why = "; ".join(error.error for error in summaries.errors)
        if parser == "excel":
            raise StageError(f"no Excel report of this run: {why or f'none in {folder}'}; look at test_analyze")
        instead = _instead_of_reports(why)
        return summarize(root, traces, on_progress=on_progress, with_lateness=True), (*notes, *instead)
    if parser == "tracelens":
        jobs = tracelens.num_jobs(traces)
        found = summarize(root, traces, parser=parser, jobs=jobs, on_progress=on_progress)
        return found, (*notes, f"TraceLens is that of {tracelens.find()}")
    timeline: Parser = "timeline" if parser == "auto" else parser
    return summarize(root, traces, parser=timeline, on_progress=on_progress, with_lateness=True), notes


def _left_out(root: Path, found: Discovery) -> tuple[str, ...]:
    """Say which collected files were not read, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for one in (*found.left_out, *found.unreadable):
        by_reason.setdefault(one.why, []).append(one.path.relative_to(root).as_posix())
    return tuple(f"not read: {_some(names)}: {why}" for why, names in by_reason.items())


def _some(names: Sequence[str]) -> str:
    left = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


def _writes_reports(config: RunConfig) -> bool:
    analysis = config.analysis
    return config.aorta_path is not None and (analysis.enable_tracelens or analysis.enable_gemm_analysis)


def _of_this_run(reports: Sequence[Path], traces: Sequence[Path]) -> tuple[list[Path], str]:
    """Leave out reports that are older than the traces, by the clock of their common host in whole seconds."""
    newest_s = max((int(path.stat().st_mtime) for path in traces), default=0)
    current = [path for path in reports if int(path.stat().st_mtime) >= newest_s]
    old = len(reports) - len(current)
    return current, f"{old} of {len(reports)} reports are older than the traces" if old else ""


def _instead_of_reports(why: str) -> tuple[str, ...]:
    return (f"the timeline of the raw traces was used, because the Excel reports could not be: {why}",) if why else ()
