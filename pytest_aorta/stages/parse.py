"""test_parse_results: turn traces and step logs into metrics, and say what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import StageError
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Artifacts, RankRow, Result, Straggler
from pytest_aorta.stages.collect import collected_traces
from pytest_aorta.stages.cross_checks import cross_checks, missing_ranks
from pytest_aorta.stages.measures import collect_metrics
from pytest_aorta.stages.source import read_ranks
from pytest_aorta.trace.causes import WHAT_TO_DO
from pytest_aorta.trace.lateness import Lateness
from pytest_aorta.trace.metrics import shares
from pytest_aorta.trace.ranks import FileError
from pytest_aorta.trace.step_log import read_step_logs
from pytest_aorta.trace.summary import RankSummary

QUIET_SECONDS = 2.0
MAX_TOLD_FILES = 5
MAX_TOLD_RANKS = 1024


def parse_results(run: RunContext, artifacts: Artifacts) -> Result:
    """Read every trace and step log that was collected, and write metrics.json."""
    if artifacts.torch_traces is None:
        raise StageError("no traces were collected; look at test_collect_traces")
    root = run.folder.path / artifacts.torch_traces
    summaries, notes = read_ranks(run, root, collected_traces(run.settings, root, artifacts.layout), _progress(run))
    _log_unread(summaries.errors)
    if not summaries.ranks:
        told = [error.error for error in summaries.errors[:MAX_TOLD_FILES]]
        more = len(summaries.errors) - len(told)
        why = "; ".join(told + ([f"and {more} more files"] if more else [])) or "no trace file"
        raise StageError(f"no trace could be read: {why}")
    logs = read_step_logs(root)
    run.folder.write_metrics(collect_metrics(summaries.ranks, logs, artifacts.kernel_log_notes, summaries.lateness))
    checks = tuple(cross_checks(run.settings, artifacts, summaries, logs))
    warnings = [f"{rank.file}: {text}" for rank in summaries.ranks for text in rank.warnings]
    lost = [f"{rank.file}: {rank.events_lost} events lost" for rank in summaries.ranks if rank.events_lost]
    labels = sorted({rank.label for rank in summaries.ranks})
    straggler = _straggler(summaries.lateness)
    missing = missing_ranks(run.settings, summaries.ranks, logs)
    steps = {rank.num_profiled_steps for rank in summaries.ranks if rank.source != "excel"}
    return Result(
        source=" + ".join(labels),
        num_profiled_steps=steps.pop() if len(steps) == 1 else None,
        ranks=tuple(_row(rank) for rank in summaries.ranks),
        missing_ranks=missing.first(MAX_TOLD_RANKS),
        num_missing_ranks=missing.num,
        checks=checks,
        straggler=straggler,
        notes=(*notes, *([straggler.text] if straggler is not None else ()), *warnings, *lost),
    )


def plan(settings: Settings) -> Iterator[Step]:
    """Say how the traces would be read."""
    yield Step(
        "here", f"read the collected traces (analysis.parser: {settings.config.analysis.parser}), write metrics.json"
    )


def _log_unread(errors: Sequence[FileError]) -> None:
    """Say which files cannot be read, in one line however many they are."""
    if errors:
        told = "; ".join(error.error for error in errors[:MAX_TOLD_FILES])
        more = len(errors) - MAX_TOLD_FILES
        log.warning("%d files cannot be read: %s%s", len(errors), told, f"; and {more} more" if more > 0 else "")


def _progress(run: RunContext) -> Callable[[int, int], None]:
    start = time.monotonic()

    def say(done: int, total: int) -> None:
        if time.monotonic() - start > QUIET_SECONDS and done < total:
            run.progress(f"parse: {done} of {total} traces")

    return say


def _row(rank: RankSummary) -> RankRow:
    ratios = shares(rank)
    return RankRow(
        rank=rank.rank if rank.rank is not None else -1,
        device=str(rank.device) if rank.device is not None else None,
        source=rank.label,
        total_time_us=rank.total_time_us,
        compute_ratio=ratios.compute_ratio,
        comm_ratio=ratios.comm_ratio,
        overlap_ratio=ratios.overlap_ratio,
    )


def _straggler(lateness: Lateness | None) -> Straggler | None:
    if lateness is None or lateness.straggler is None:
        return None
    late = lateness.straggler
    text = f"rank {late.rank} is late (kind: {late.kind}): {late.told}; {WHAT_TO_DO[late.kind]}"
    return Straggler(rank=late.rank, kind=late.kind, caused_delay_ms_per_step=late.caused_delay_ms_per_step, text=text)
