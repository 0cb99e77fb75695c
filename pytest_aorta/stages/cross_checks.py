"""Cross-checks: whether the traces and step logs of all ranks tell of one whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_aorta.checks import Account, Check
from pytest_aorta.config.settings import Settings
from pytest_aorta.ranks import place_of, ranks_of
from pytest_aorta.run.products import Artifacts
from pytest_aorta.stages.missing import Missing
from pytest_aorta.trace.ranks import Summaries
from pytest_aorta.trace.step_log import StepLog
from pytest_aorta.trace.summary import RankSummary

MAX_NAMED = 16
MAX_FILES = 5
MAX_LOST_RATIO = 0.01


def cross_checks(
    settings: Settings, artifacts: Artifacts, summaries: Summaries, logs: Sequence[StepLog]
) -> Iterator[Check]:
    """Give what is wrong, or cannot be told, about the ranks of a run."""
    yield from _unreadable(summaries)
    missing = missing_ranks(settings, summaries.ranks, logs)
    yield from _missing_check(settings, artifacts, missing)
    if not missing.num and not launched_size(settings) and artifacts.layout == "combined":
        yield from _fewer_than_hosts(settings, artifacts, summaries.ranks)
    yield from _unknown_size(settings, summaries.ranks, logs)
    yield from _alone(settings, summaries.ranks, logs)
    yield from _without_gpu(artifacts, summaries.ranks)
    yield from _empty(summaries.ranks)
    yield from _cut(artifacts, summaries.ranks)
    yield from _lossy(artifacts, summaries.ranks)
    yield from _checksums(logs)
    if logs and artifacts.completed:
        yield from _step_logs(settings, artifacts, summaries.ranks, logs)


def _failed(check: str, reason: str, next_step: str, fault: Account = "cluster", host: str | None = None) -> Check:
    where = f"host={host}, " if host is not None else ""
    return Check(
        label=f"[evidence] ({where}check={check})",
        state="failed",
        subtest=False,
        fault=fault,
        host=host,
        reason=reason,
        next_step=next_step,
    )


def missing_ranks(settings: Settings, ranks: Sequence[RankSummary], logs: Sequence[StepLog]) -> Missing:
    """Give the ranks without a trace: of nodes x processes, or of the world that traces and step logs tell of."""
    present = frozenset(rank.rank for rank in ranks if rank.rank is not None)
    return Missing(_world_size(settings, ranks, logs), present)


def _world_size(settings: Settings, ranks: Sequence[RankSummary], logs: Sequence[StepLog]) -> int:
    """Give how many ranks there should be; 0: nobody says."""
    if not launched_size(settings):
        sizes = [rank.world_size or 0 for rank in ranks] + [step_log.world_size or 0 for step_log in logs]
        return max(sizes, default=0)
    collects_head_only = settings.suite == "single" or not settings.config.multi_node.collect_traces
    return settings.nproc_per_node if collects_head_only else settings.world_size


def launched_size(settings: Settings) -> int:
    """Give how many ranks were launched; 0: the workload starts its own, as many as it likes."""
    workload = settings.config.workload
    return 0 if workload is not None and workload.launcher == "none" else settings.world_size


def _unknown_size(settings: Settings, ranks: Sequence[RankSummary], logs: Sequence[StepLog]) -> Iterator[Check]:
    if not _world_size(settings, ranks, logs):
        yield Check(
            label="[evidence] (check=missing_ranks)",
            state="not_judged",
            subtest=False,
            reason=f"whether {len(ranks)} ranks are all: no trace and no step log tells a world_size",
        )


def _unreadable(summaries: Summaries) -> Iterator[Check]:
    next_step = "was the rank killed while it wrote its trace? If it is no trace, narrow workload.traces"
    for error in summaries.errors[:MAX_FILES]:
        yield _failed(f"trace, file={Path(error.file).name}", error.error, next_step, "rig")
    more = len(summaries.errors) - MAX_FILES
    if more > 0:
        noun = "file" if more == 1 else "files"
        yield _failed("trace", f"and {more} more {noun}", next_step, "rig")


def _missing_of(settings: Settings, missing: Missing) -> dict[str, int]:
    """Count the missing ranks of each host, as far as it is known which host has which."""
    hosts = [host.name for host in settings.cluster.hosts]
    per_host = settings.ranks_per_host
    if not per_host:
        return {hosts[0]: missing.num} if len(hosts) == 1 else {}
    return {host: missing.num_of(ranks_of(node, per_host)) for node, host in enumerate(hosts)}


def _missing_check(settings: Settings, artifacts: Artifacts, missing: Missing) -> Iterator[Check]:
    """Say which ranks are missing; only a warning where the workload ended early, which has failed the run already.

    Likewise where their hosts failed the collection by it; of ranks whose hosts nobody knows, where any host did.
    """
    if missing.num:
        num_of = _missing_of(settings, missing)
        where = sorted(host for host, num in num_of.items() if num)
        count = [f"{missing.num} of {missing.expected}"] if missing.num > MAX_NAMED else []
        told = [*count, *([f"on {', '.join(where)}"] if where else [])]
        more = f" ({', '.join(told)})" if told else ""
        check = _failed(
            "missing_ranks",
            f"no trace of rank {_names(missing.first(MAX_NAMED + 1))}{more}; metrics are those of the others",
            "see the logs of these ranks, or correct gpus_per_node and nproc_per_node",
            "rig",
        )
        are_placed = sum(num_of.values()) == missing.num
        is_lacking = artifacts.errors.keys() >= set(where) and (are_placed or bool(artifacts.errors))
        is_told = is_lacking or not artifacts.completed
        yield check.model_copy(update={"state": "warned"}) if is_told else check


def _fewer_than_hosts(settings: Settings, artifacts: Artifacts, ranks: Sequence[RankSummary]) -> Iterator[Check]:
    """Say that a host cannot have trained where nobody tells how many ranks there are, but fewer than hosts wrote."""
    num_hosts = len(settings.cluster.hosts) - len(artifacts.errors)
    num_ranks = len({rank.rank for rank in ranks})
    if num_ranks < num_hosts:
        wrote = "1 rank wrote a trace" if num_ranks == 1 else f"{num_ranks} ranks wrote traces"
        yield _failed(
            "missing_ranks",
            f"{wrote} on {num_hosts} hosts, expected one or more of each host",
            "does the workload train on every host? See the logs of each",
            "rig",
        )


def _alone(settings: Settings, ranks: Sequence[RankSummary], logs: Sequence[StepLog]) -> Iterator[Check]:
    """Say which ranks trained by themselves, by their own word or by that of the launcher."""
    launched = launched_size(settings)
    num_ranks = len({rank.rank for rank in ranks})
    num_expected = launched or num_ranks
    told = [(rank.rank, "trace", rank.world_size or 0) for rank in ranks]
    told += [(log.rank, "step log", log.world_size or 0) for log in logs]
    small = [each for each in told if each[2] and _is_wrong(each[2], num_expected, bool(launched))]
    silent = [rank for rank in ranks if rank.lacks_communication(launched)]
    next_step = "does the workload really train together? Check its distributed mode"
    if small:
        said = f"{launched} were launched" if launched else f"{num_ranks} wrote traces"
        _, what, size = small[0]
        numbers = _names(list(dict.fromkeys(rank for rank, which, _ in small if which == what)))
        yield _failed(
            "communication",
            f"the {what} of rank {numbers} tells of a world of {size}, {said}",
            next_step,
            "workload",
        )
    elif silent:
        size = silent[0].world_size or 0
        world = f"the world has {size} ranks" if size > 1 else f"{launched} ranks were launched"
        yield _failed(
            "communication",
            f"no communication in the trace of rank {_numbers(silent)} although {world}",
            next_step,
            "workload",
        )
    elif untold := [rank for rank in ranks if num_expected > 1 and _tells_of_nobody(rank)]:
        yield Check(
            label="[evidence] (check=communication)",
            state="not_judged",
            subtest=False,
            reason=f"whether {num_expected} ranks trained together: the trace of rank {_numbers(untold)} shows neither "
            "a world_size nor communication",
            next_step=next_step,
        )


def _is_wrong(told: int, expected: int, is_known: bool) -> bool:
    return told != expected if is_known else told < expected


def _tells_of_nobody(rank: RankSummary) -> bool:
    return rank.source in ("timeline", "cpu-steps") and not (
        rank.world_size or rank.has_comm_ops or rank.num_comm_kernels
    )


def _numbers(ranks: Sequence[RankSummary]) -> str:
    return _names(list(dict.fromkeys(rank.rank for rank in ranks)))


def _without_gpu(artifacts: Artifacts, ranks: Sequence[RankSummary]) -> Iterator[Check]:
    without = [rank for rank in ranks if not rank.num_gpu_events and rank.source != "excel"]
    if without and artifacts.accelerator != "cpu":
        yield _failed(
            "gpu_events",
            f"no GPU event in the trace of rank {_names([rank.rank for rank in without])} although accelerator is "
            f"{artifacts.accelerator}",
            "check that the profiler records GPU activity (permissions, another profiler attached)",
            "rig",
        )


def _checksums(logs: Sequence[StepLog]) -> Iterator[Check]:
    """Ranks that hold the same weights must agree on them at the end."""
    sums: dict[str, list[int]] = {}
    for step_log in logs:
        if step_log.weights_checksum is not None:
            sums.setdefault(step_log.weights_checksum, []).append(step_log.rank)
    silent = [log.rank for log in logs if log.weights_checksum is None and log.final.get("exit") == "completed"]
    if sums and silent:
        yield _failed(
            "weights_checksum",
            f"rank {_names(silent)} completed without a checksum of its weights, which other ranks gave",
            "look at the logs of these ranks: could they gather their weights?",
        )
    if len(sums) > 1:
        sizes = sorted(len(ranks) for ranks in sums.values())
        by_size = sorted(sums.values(), key=len)
        others = "; ".join(f"ranks {_names(ranks)}" for ranks in by_size)
        alone = f"; rank {_names(by_size[0])} stands alone" if sizes[0] < sizes[1] and sizes[0] * 2 < sum(sizes) else ""
        yield _failed(
            "weights_checksum",
            f"the ranks ended with {len(sums)} different sets of weights: {others}{alone}",
            "suspect silent data corruption: run again, and if it repeats test these hosts one by one",
        )


def _step_logs(
    settings: Settings, artifacts: Artifacts, ranks: Sequence[RankSummary], logs: Sequence[StepLog]
) -> Iterator[Check]:
    """In a run that ended well every rank logged every step and its own good end; a check for each host."""
    by_host: dict[str | None, list[str]] = {}
    num_steps, told_end = len({number for log in logs for number in log.numbers}), any(log.final for log in logs)
    problems = [(told.rank, text) for told in logs for text in _problems_of(told, num_steps, told_end=told_end)]
    with_trace, with_log = {rank.rank for rank in ranks if rank.rank is not None}, {log.rank for log in logs}
    lacking = [host for host in settings.cluster.hosts if host.name in artifacts.errors]
    known = tuple(f"node_{host.rank}/" if artifacts.layout == "combined" else "" for host in lacking)
    explained = {log.rank for log in logs if log.file.startswith(known)}  # by the collection
    problems += [(rank, f"rank {rank} has a trace but no step log") for rank in sorted(with_trace - with_log)]
    problems += [
        (rank, f"rank {rank} has a step log but no trace") for rank in sorted(with_log - with_trace - explained)
    ]
    for rank, text in problems:
        by_host.setdefault(_host_of(settings, rank), []).append(text)
    next_step = "see the logs of these ranks: did they stop early, or write elsewhere?"
    if any(told.num_bad_losses for told in logs):
        next_step = "look in the step logs where the loss left the numbers"
    for host, texts in by_host.items():
        on = f" (on {host})" if host is not None else ""
        yield _failed("step_log", f"step logs{on}: {'; '.join(texts[:MAX_NAMED])}", next_step, "workload", host)


def _problems_of(told: StepLog, num_steps: int, *, told_end: bool) -> Iterator[str]:
    """Say what a rank's step log lacks beside those of the others: `num_steps` in all, and the end that one told."""
    if told.final.get("exit", "completed") != "completed":
        yield f"rank {told.rank} ended as {told.final['exit']}"
    elif told_end and not told.final:
        yield f"rank {told.rank} did not log its end"
    if len(told.numbers) < num_steps:
        yield f"rank {told.rank} logged {len(told.numbers)} of {num_steps} steps"
    if told.num_bad_losses:
        yield f"the loss of rank {told.rank} is no finite number in {told.num_bad_losses} steps"
    if told.repeated:
        yield f"rank {told.rank} tells step {told.repeated[0]} more than once"
    if told.num_lost:
        yield f"{told.num_lost} lines of rank {told.rank} cannot be read"


def _host_of(settings: Settings, rank: int) -> str | None:
    """Give the host of a rank, None where the workload places its ranks itself or there is only one host."""
    hosts = [host.name for host in settings.cluster.hosts]
    return None if len(hosts) == 1 else place_of(rank, hosts, settings.ranks_per_host)[0]


def _empty(ranks: Sequence[RankSummary]) -> Iterator[Check]:
    without = [rank.rank for rank in ranks if not rank.total_time_us]
    if without:
        yield _failed(
            "trace",
            f"the trace of rank {_names(without)} spans no time at all or has no steps; nothing was measured",
            "look at the trace: are its events without durations, was the profiler ever in its active steps?",
            "rig",
        )


def _cut(artifacts: Artifacts, ranks: Sequence[RankSummary]) -> Iterator[Check]:
    """Say which traces lack their end: their times are too small to be judged; of a failed run that is no news."""
    cut = [rank.rank for rank in ranks if rank.is_cut]
    if cut:
        check = _failed(
            "trace",
            f"the trace of rank {_names(list(dict.fromkeys(cut)))} is cut: its end is missing, so that its times are "
            "too small",
            "was the disk full, or was the rank ended while it wrote its trace? Run again",
            "rig",
        )
        yield check if artifacts.completed else check.model_copy(update={"state": "warned"})


def _lossy(artifacts: Artifacts, ranks: Sequence[RankSummary]) -> Iterator[Check]:
    """Say which whole traces lost more than a few of the events that times are made of; fewer are only noted."""
    lossy = [rank for rank in ranks if rank.lost_ratio > MAX_LOST_RATIO and not rank.is_cut]
    if lossy:
        worst = max(rank.lost_ratio for rank in lossy)
        check = _failed(
            "trace",
            f"the trace of rank {_numbers(lossy)} lost {worst:.1%} of its GPU events, launch calls or steps (expected "
            f"{MAX_LOST_RATIO:.0%} or less), so that its times are wrong",
            "see the notes on these traces: are events of it without a usable time, was the file damaged? Run again",
            "rig",
        )
        yield check if artifacts.completed else check.model_copy(update={"state": "warned"})


def _names(ranks: Sequence[int | None]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:MAX_NAMED])
    return f"{shown}, ..." if len(ranks) > MAX_NAMED else shown
