"""test_parse_results: turn traces and step logs into metrics, and say what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pytest_aorta.checks import Check
from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import StageError
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Artifacts, RankRow, Result
from pytest_aorta.stages.collect import Layout
from pytest_aorta.stages.measures import collect_metrics
from pytest_aorta.stages.search import is_trace
from pytest_aorta.stages.source import read_ranks
from pytest_aorta.trace.causes import WHAT_TO_DO
from pytest_aorta.trace.lateness import Lateness
from pytest_aorta.trace.metrics import shares
from pytest_aorta.trace.ranks import Summaries
from pytest_aorta.trace.step_log import StepLog, read_step_logs
from pytest_aorta.trace.summary import RankSummary

QUIET_SECONDS = 2.0
MAX_NAMED = 16
MAX_TOLD_FILES = 5


def parse_results(run: RunContext, artifacts: Artifacts) -> Result:
    """Read every trace and step log that was collected, and write metrics.json."""
    if artifacts.torch_traces is None:
        raise StageError("no traces were collected; look at test_collect_traces")
    root = run.folder.path / artifacts.torch_traces
    summaries, notes = read_ranks(run, root, _traces(run.settings, root, artifacts.layout), _progress(run))
    for error in summaries.errors:
        log.warning("%s: %s", error.file, error.error)
    if not summaries.ranks:
        told = [error.error for error in summaries.errors[:MAX_TOLD_FILES]]
        more = len(summaries.errors) - len(told)
        why = "; ".join(told + ([f"and {more} more files"] if more else [])) or "no trace file"
        raise StageError(f"no trace could be read: {why}")
    logs = read_step_logs(root)
    run.folder.write_metrics(collect_metrics(summaries.ranks, logs, artifacts.kernel_log_notes, summaries.lateness))
    missing = _missing(run.settings, summaries.ranks, logs)
    checks = (
        *_unreadable(summaries),
        *_missing_check(run.settings, missing),
        *_unknown_size(run.settings, summaries.ranks, logs),
        *_without_communication(run.settings, summaries),
        *_without_gpu(artifacts, summaries.ranks),
        *_checksums(logs),
        *_step_logs(summaries.ranks, logs, artifacts.completed),
        *_empty(summaries.ranks),
    )
    warnings = [f"{rank.file}: {text}" for rank in summaries.ranks for text in rank.warnings]
    lost = [f"{rank.file}: {rank.events_lost} events lost" for rank in summaries.ranks if rank.events_lost]
    labels = sorted({rank.label for rank in summaries.ranks})
    steps = {rank.num_profiled_steps for rank in summaries.ranks if rank.source != "excel"}
    return Result(
        source=" + ".join(labels),
        num_profiled_steps=steps.pop() if len(steps) == 1 else None,
        ranks=tuple(_row(rank) for rank in summaries.ranks),
        missing_ranks=tuple(sorted(missing)),
        checks=checks,
        notes=(*notes, *_straggler(summaries.lateness), *warnings, *lost),
    )


def plan(settings: Settings) -> Iterator[Step]:
    """Say how the traces would be read."""
    yield Step(
        "here", f"read the collected traces (analysis.parser: {settings.config.analysis.parser}), write metrics.json"
    )


def _traces(settings: Settings, root: Path, layout: Layout) -> list[Path] | None:
    """Give a foreign workload's trace files, which may have any name; None lets the trace engine look for them."""
    workload = settings.config.workload
    if workload is None or not workload.traces:
        return None
    depth = 1 if layout == "combined" else 0
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [path for path in paths if is_trace(settings, "/".join(path.relative_to(root).parts[depth:]))]


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


def _missing(settings: Settings, ranks: Sequence[RankSummary], logs: Sequence[StepLog]) -> set[int]:
    """Give the ranks without a trace: of nodes x processes, or of the world that traces and step logs tell of."""
    expected = _world_size(settings, ranks, logs)
    return set(range(expected)) - {rank.rank for rank in ranks if rank.rank is not None}


def _world_size(settings: Settings, ranks: Sequence[RankSummary], logs: Sequence[StepLog]) -> int:
    """Give how many ranks there should be; 0: nobody says."""
    workload = settings.config.workload
    if workload is not None and workload.launcher == "none":
        sizes = [rank.world_size or 0 for rank in ranks] + [step_log.world_size or 0 for step_log in logs]
        return max(sizes, default=0)
    collects_head_only = settings.suite == "single" or not settings.config.multi_node.collect_traces
    return (1 if collects_head_only else len(settings.cluster.hosts)) * settings.nproc_per_node


def _unknown_size(settings: Settings, ranks: Sequence[RankSummary], logs: Sequence[StepLog]) -> Iterator[Check]:
    if not _world_size(settings, ranks, logs):
        yield Check(
            label="[evidence] (check=missing_ranks)",
            state="not_judged",
            subtest=False,
            reason=f"whether {len(ranks)} ranks are all: no trace and no step log tells a world_size",
        )


def _straggler(lateness: Lateness | None) -> Iterator[str]:
    if lateness is not None and lateness.straggler is not None:
        late = lateness.straggler
        yield (
            f"rank {late.rank} is late (kind: {late.kind}): the others wait {late.caused_delay_ms_per_step:.2f} ms a "
            f"profiled step for it, and it is the last in {late.share_last:.1%} of its collectives; "
            f"{WHAT_TO_DO[late.kind]}"
        )


def _unreadable(summaries: Summaries) -> Iterator[Check]:
    for error in summaries.errors:
        name = Path(error.file).name
        yield Check(
            label=f"[evidence] (check=trace, file={name})",
            state="failed",
            fault="rig",
            subtest=False,
            reason=error.error
            if error.error.startswith(error.file)
            else f"{error.file}{error.error.removeprefix(name)}",
            next_step="was the rank killed while it wrote its trace? If it is no trace, narrow workload.traces",
        )


def _missing_check(settings: Settings, missing: set[int]) -> Iterator[Check]:
    if missing:
        names = ", ".join(str(rank) for rank in sorted(missing)[:16]) + (", ..." if len(missing) > 16 else "")
        per_node = settings.nproc_per_node
        hosts = settings.cluster.hosts
        where = sorted({hosts[rank // per_node].name for rank in missing if rank // per_node < len(hosts)})
        on = f" (on {', '.join(where)})" if where else ""
        yield Check(
            label="[evidence] (check=missing_ranks)",
            state="failed",
            fault="rig",
            subtest=False,
            reason=f"no trace of rank {names} {on}; metrics are those of the others",
            next_step="see the logs of these ranks, or correct gpus_per_node and nproc_per_node",
        )


def _without_communication(settings: Settings, summaries: Summaries) -> Iterator[Check]:
    silent = [rank for rank in summaries.ranks if rank.lacks_communication]
    if silent:
        names = ", ".join(str(rank.rank) for rank in silent[:16])
        yield Check(
            label="[evidence] (check=communication)",
            state="failed",
            subtest=False,
            fault="workload",
            reason=f"no communication in the trace of rank {names} although the world has {silent[0].world_size} ranks",
            next_step="does the workload really train together? Check its distributed mode",
        )


def _without_gpu(artifacts: Artifacts, ranks: Sequence[RankSummary]) -> Iterator[Check]:
    without = [rank for rank in ranks if not rank.num_gpu_events and rank.source != "excel"]
    if without and artifacts.accelerator != "cpu":
        names = ", ".join(str(rank.rank) for rank in without[:16])
        yield Check(
            label="[evidence] (check=gpu_events)",
            state="failed",
            subtest=False,
            fault="rig",
            reason=f"no GPU event in the trace of rank {names} although accelerator is {artifacts.accelerator}",
            next_step="check that the profiler records GPU activity (permissions, another profiler attached)",
        )


def _checksums(logs: Sequence[StepLog]) -> Iterator[Check]:
    """Ranks that hold the same weights must agree on them at the end."""
    sums: dict[str, list[int]] = {}
    for step_log in logs:
        if step_log.weights_checksum is not None:
            sums.setdefault(step_log.weights_checksum, []).append(step_log.rank)
    silent = [log.rank for log in logs if log.weights_checksum is None and log.final.get("exit") == "completed"]
    if sums and silent:
        yield Check(
            label="[evidence] (check=weights_checksum)",
            state="failed",
            subtest=False,
            reason=f"rank {_names(silent)} completed without a checksum of its weights, which other ranks gave",
            next_step="look at the logs of these ranks: could they gather their weights?",
        )
    if len(sums) > 1:
        sizes = sorted(len(ranks) for ranks in sums.values())
        by_size = sorted(sums.values(), key=len)
        others = "; ".join(f"ranks {_names(ranks)}" for ranks in by_size)
        alone = f"; rank {_names(by_size[0])} stands alone" if sizes[0] < sizes[1] and sizes[0] * 2 < sum(sizes) else ""
        yield Check(
            label="[evidence] (check=weights_checksum)",
            state="failed",
            subtest=False,
            reason=f"the ranks ended with {len(sums)} different sets of weights: {others}{alone}",
            next_step="suspect silent data corruption: run again, and if it repeats test these hosts one by one",
        )


def _step_logs(ranks: Sequence[RankSummary], logs: Sequence[StepLog], completed: bool) -> Iterator[Check]:
    """In a run that ended well every rank logged every step and its own good end."""
    if not logs or not completed:
        return
    told_end = any(log.final for log in logs)
    every_step = {step.number for log in logs for step in log.steps}
    problems = []
    for told in logs:
        num_steps = len({step.number for step in told.steps})
        if told.final.get("exit", "completed") != "completed":
            problems.append(f"rank {told.rank} ended as {told.final['exit']}")
        elif told_end and not told.final:
            problems.append(f"rank {told.rank} did not log its end")
        if num_steps < len(every_step):
            problems.append(f"rank {told.rank} logged {num_steps} of {len(every_step)} steps")
        if told.num_bad_losses:
            problems.append(f"the loss of rank {told.rank} is no finite number in {told.num_bad_losses} steps")
        if told.repeated:
            problems.append(f"rank {told.rank} tells step {told.repeated[0]} more than once")
        if told.num_lost:
            problems.append(f"{told.num_lost} lines of rank {told.rank} cannot be read")
    with_trace, with_log = {rank.rank for rank in ranks if rank.rank is not None}, {log.rank for log in logs}
    if with_trace - with_log:
        problems.append(f"rank {_names(sorted(with_trace - with_log))} has a trace but no step log")
    if with_log - with_trace:
        problems.append(f"rank {_names(sorted(with_log - with_trace))} has a step log but no trace")
    if problems:
        yield Check(
            label="[evidence] (check=step_log)",
            state="failed",
            subtest=False,
            fault="workload",
            reason="step logs: " + "; ".join(problems[:MAX_NAMED]),
            next_step="see the logs of these ranks: did they stop early, or write elsewhere?",
        )


def _empty(ranks: Sequence[RankSummary]) -> Iterator[Check]:
    without = [rank.rank for rank in ranks if not rank.total_time_us]
    if without:
        yield Check(
            label="[evidence] (check=trace)",
            state="failed",
            fault="rig",
            subtest=False,
            reason=f"the trace of rank {_names(without)} spans no time at all or has no steps; nothing was measured",
            next_step="look at the trace: are its events without durations, was the profiler ever in its active steps?",
        )


def _names(ranks: Sequence[int | None]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:MAX_NAMED])
    return f"{shown}, ..." if len(ranks) > MAX_NAMED else shown
