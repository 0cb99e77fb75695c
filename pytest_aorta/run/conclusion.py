"""The conclusion of a run: its verdict in one sentence, and the documents that carry it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from pytest_aorta.checks import worst_first
from pytest_aorta.config.cluster import OF_OTHER_TOOLS
from pytest_aorta.hostlist import advised, drain_command, likewise
from pytest_aorta.metric import Metric
from pytest_aorta.reporting import json_report
from pytest_aorta.reporting.hints import Hint, find
from pytest_aorta.reporting.json_report import (
    BenchmarkStatus,
    ClusterPart,
    ConfigurationPart,
    RankPart,
    blamed_hosts,
)
from pytest_aorta.reporting.model import RunView, StageRow, short_label, without_cause
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.gating import bare
from pytest_aorta.run.products import Artifacts, Execution, Result
from pytest_aorta.run.record import NOT_UNDONE, RunRecord, StageRecord, Verdict

NO_SOURCE = "—"
THRESHOLDS = "test_validate_thresholds"
SET_LIMITS = 'set limits and enforce_thresholds: docs/quickstart.md, "Set limits that mean something"'
PHASE_LOGS = {"test_build_rccl": "rccl", "test_run_benchmark": "benchmark"}
MAX_LOGS = 64
MAX_STEPS = 3
RUN_ID_CHARS = 13  # what names the millisecond that it began in
LOG_TAIL_BYTES = 64 * 1024
LAST_WORDS_BYTES = 8 * 1024
TELLING = re.compile(r"N?R?CCL (?:WARN|ERROR)|\b\w*(?:Error|error|ERROR)\b|\bfault\b|killed by signal|\[E\d{4} ")
# The sentences of our errors end with what to do next; these are the words that such an ending begins with.
INSTRUCTION = re.compile(
    r"; (?P<step>(?:add|allow|ask|check|compare|correct|drop|enlarge|free|give|install|leave|load|look|make|mount|name|"
    r"open|put|raise|read|remove|replace|run|see|select|set|start|stop|take|try|unset|upgrade|use|wait|write)\b[^;]*)$"
)
HANDLED = re.compile(
    r"\b(?:WARNING|INFO|DEBUG)\b|\w*Warning:|^(?:\[\w+\]:)*\s?(?:\[[WI] |\[?[WI]\d{4} )"
    r"|\b(?:[Ff]alling back|fallback|[Ii]gnor(?:ed|ing)|[Rr]etrying)\b"
)


def conclude(stages: Mapping[str, StageRecord], plan: tuple[str, ...], *, cut_short: str = "") -> tuple[Verdict, str]:
    """Give a run's verdict and the sentence that explains it.

    `cut_short` says why stages of the plan were not reached although selected (a signal, -x); the run is then
    `interrupted`, whatever its stages came to.
    """
    cause = _cause(stages)
    if cut_short or (cause is not None and cause.outcome == "interrupted"):
        if cause is None:
            return "interrupted", cut_short or "ended from outside"
        told = _told(cause)
        return "interrupted", told if cause.outcome == "interrupted" else f"{told}; {cut_short}"
    if cause is not None:
        verdict: Verdict = "could_not_measure" if cause.failure == "unmeasured" else "failed"
        return verdict, _told(cause)
    return "passed", _passed(stages, plan)


def _told(cause: StageRecord) -> str:
    """Tell of a failed stage; of the first gate among its causes with the worst value and the limit."""
    said = f"{cause.name}: {bare(cause.reason)}"
    missed = (check for check in worst_first(cause.checks) if check.gate is not None and check.actual is not None)
    worst = next(missed, None)
    if worst is None:
        return said
    counted = said.removesuffix(f" {worst.gate_name}")
    return f"{counted}{';' if counted == said else ''} {short_label(worst)} {worst.actual_text} ({worst.gate})"


def _passed(stages: Mapping[str, StageRecord], plan: tuple[str, ...]) -> str:
    gates = [check for stage in stages.values() for check in stage.checks if check.gate is not None]
    held = sum(check.state == "passed" for check in gates)
    missing = tuple(not_judged(stages))
    unjudged = "no stage failed" if _is_recorded(stages) else "no gate was judged"
    parts = [f"{held} of {len(gates)} gates held" if gates else unjudged]
    if len(stages) < len(plan):
        parts.append(f"only {len(stages)} of {len(plan)} stages were selected")
    if missing:
        parts.append("not judged: " + ", ".join(missing))
    return "; ".join(parts)


def _is_recorded(stages: Mapping[str, StageRecord]) -> bool:
    """Tell whether metrics were recorded without judgement: what is not judged then begins with the thresholds."""
    judging = stages.get(THRESHOLDS)
    return judging is not None and judging.outcome == "skipped"


def with_stored(
    record: RunRecord, judged: Mapping[str, StageRecord], verdict: Verdict, sentence: str
) -> tuple[Verdict, str]:
    """Give the verdict of a later judging beside what the run itself came to: a failed run is not mended by it."""
    cause = _cause(stages_besides(record, judged))
    if cause is not None:
        kind: Verdict = "could_not_measure" if cause.failure == "unmeasured" else "failed"
        but = "but" if verdict == "passed" else "and"
        both = verdict if verdict in {"failed", "interrupted"} else kind
        return both, f"{sentence}; {but} the run itself failed: {_told(cause)}"
    if verdict == "passed" and record.verdict in {None, "interrupted"}:
        return "interrupted", f"{sentence}; but the run itself was interrupted"
    return verdict, sentence


def stages_besides(record: RunRecord, judged: Mapping[str, StageRecord]) -> dict[str, StageRecord]:
    """Give the outcomes of a run's own stages that a later judging has not gone through again."""
    return {name: stage for name, stage in record.stages.items() if name not in judged}


def _cause(stages: Mapping[str, StageRecord]) -> StageRecord | None:
    return next((stage for stage in stages.values() if stage.outcome in {"failed", "interrupted"}), None)


def not_judged(stages: Mapping[str, StageRecord]) -> Iterator[str]:
    """Name what the run says nothing about, each once, so that green is not read as more than it is."""
    yield from dict.fromkeys(_unjudged(stages))


def _unjudged(stages: Mapping[str, StageRecord]) -> Iterator[str]:
    for stage in stages.values():
        if stage.name == THRESHOLDS and stage.outcome == "skipped":
            yield f"thresholds ({without_cause(stage.reason).partition(';')[0]})"
        for check in stage.checks:
            if check.state == "not_judged":
                yield check.label.partition("metric=")[2].rstrip(")") or check.reason


def next_step(stages: Mapping[str, StageRecord], folder: RunFolder, log: str = "") -> str:
    """Give what a person should do about the first failure; `log` is where everything was logged."""
    for stage in stages.values():
        if stage.outcome not in {"failed", "interrupted"}:
            continue
        steps = [check for check in stage.checks if check.failed and check.next_step]
        if steps:
            return advised(
                (check.host, check.next_step) for check in sorted(steps, key=lambda each: not each.blames_host)
            )
        gates = [check for check in stage.checks if check.failed and check.gate is not None]
        if gates and all(check.actual is None for check in gates):
            return "the gate's reason says why it was not measured; leave the limit out where it cannot be"
        if gates:
            return f"see each rank's share in {folder.judged_metrics}; {_judging(folder)} other limits"
        if stage.outcome != "failed":
            return ""
        hint = hint_for(stage, folder)
        step = _remedy(stage) or (hint.next_step if hint is not None else "")
        return step or f"read what {stage.name} said in {log or folder.path}"
    return ""


def _judging(folder: RunFolder) -> str:
    return f"pytest --aorta-run={folder.run_id} --aorta-config=FILE judges this run by"


def _remedy(stage: StageRecord) -> str:
    """Give what the sentences about an error say to do, host by host: each last clause that is an instruction.

    They name the host and the file, which a hint cannot.
    """
    if stage.failure != "unmeasured":
        return ""
    of_hosts = [(check.host, check.reason) for check in stage.checks if check.failed and check.host]
    steps = likewise(_steps_in(of_hosts)) or [step for _, step in _steps_in([("", stage.reason)])]
    more = len(steps) - MAX_STEPS
    return "; ".join([*steps[:MAX_STEPS], *([f"and so on, {more} more in the report"] if more > 0 else [])])


def _steps_in(sentences: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(host, found["step"]) for host, said in sentences if (found := INSTRUCTION.search(said))]


def hint_for(stage: StageRecord | None, folder: RunFolder) -> Hint | None:
    """Give the hint about a failed stage; the logs of its phase are looked at where its reason says too little.

    Lines that are marked as errors come first: what the last other lines say counts only where these tell nothing. What
    could not be measured beside a failure that was is no cause of it.
    """
    if stage is None or stage.outcome != "failed":
        return None
    failed = [check for check in stage.checks if check.failed]
    measured = [check.reason for check in failed if check.fault in {"workload", "cluster"}]
    is_beside = stage.failure != "unmeasured" and 0 < len(measured) < len(failed)
    words = "; ".join(measured if is_beside else (stage.reason, *(check.reason for check in failed)))
    labels = tuple(check.label for check in failed if not check.unmeasured)
    hint = find(words, labels)
    phase = PHASE_LOGS.get(stage.name)
    if phase is None:
        return hint
    told = find(words, labels, (line for line in _lines(folder, phase, LOG_TAIL_BYTES) if TELLING.search(line)))
    return told if told is not hint else _by_last_words(words, labels, tuple(_lines(folder, phase, LAST_WORDS_BYTES)))


@lru_cache(maxsize=4)
def _by_last_words(words: str, labels: tuple[str, ...], lines: tuple[str, ...]) -> Hint | None:
    """Give what `find` gives; every report of a run asks the same, and 64 hosts' lines take a second."""
    return find(words, labels, lines)


def _lines(folder: RunFolder, phase: str, max_bytes: int) -> Iterator[str]:
    """Give the lines from the ends of a phase's logs, each once, without those that tell of what was handled."""
    seen: set[str] = set()
    for path in sorted(folder.path.glob(f"{phase}-node-*.log"))[:MAX_LOGS]:
        try:
            with path.open("rb") as stream:
                stream.seek(max(0, path.stat().st_size - max_bytes))
                tail = stream.read(max_bytes).decode("utf-8", "replace")
        except OSError:
            continue
        fresh = dict.fromkeys(line for line in tail.splitlines() if line not in seen)
        seen.update(fresh)
        yield from (line for line in fresh if not HANDLED.search(line))


def view_of(
    record: RunRecord,
    folder: RunFolder,
    *,
    paths: tuple[tuple[str, str], ...] = (),
    stored: RunRecord | None = None,
) -> RunView:
    """Give a run, finished or not, as reports show it; of a later judging, `stored` is what the run itself came to."""
    verdict, sentence = record.verdict, record.sentence
    if verdict is None:
        verdict, sentence = conclude(record.stages, record.plan)
    before = stages_besides(stored, record.stages) if stored is not None else {}
    stages = {**before, **record.stages}
    cause = _cause(stages)
    rows = tuple(_row(name, record.stages.get(name), folder) for name in record.plan)
    step = next_step(stages, folder, dict(paths).get("log", ""))
    if verdict == "passed" and _is_recorded(stages):
        step = f"{SET_LIMITS}; {_judging(folder)} them"
    return RunView(
        run_id=record.run_id,
        suite=f"aorta_{record.suite}{'-rejudged' if folder.judgement else ''}",
        verdict=verdict,
        sentence=sentence,
        stages=rows,
        metrics=_metrics(folder),
        environment=tuple(_environment(record, folder)),
        paths=(("run folder", str(folder.path)), *paths),
        notes=tuple(_notes(record)),
        next_step=step,
        hint=hint_for(cause, folder),
        first_cause=f"{cause.name}: {bare(cause.reason)}" if cause is not None else "",
        not_judged=tuple(not_judged(record.stages)),
        drain=drain(record),
        checks_before=tuple(check for stage in before.values() for check in stage.checks),
    )


def _environment(record: RunRecord, folder: RunFolder) -> Iterator[tuple[str, str, str]]:
    if folder.judgement and record.judgements:
        yield "Judged by", record.judgements[-1].judged_by, ""
    yield from ((name, value, "") for name, value in record.environment.items())


def drain(record: RunRecord) -> tuple[str, ...]:
    """Give the commands that drain the hosts that failed on the cluster's account, one a reason; none is ever run."""
    checks = [check for stage in record.stages.values() for check in stage.checks]
    failing = blamed_hosts(checks)
    by_reason: dict[str, list[str]] = {}
    for host in (host for host in record.hosts if host in failing):
        why = next(check.reason for check in checks if check.host == host and host in blamed_hosts([check]))
        by_reason.setdefault(re.sub(rf"^{re.escape(host)}:? ", "", why), []).append(host)
    commands = (
        drain_command(hosts, f"aorta {record.run_id[:RUN_ID_CHARS]}: {why}") for why, hosts in by_reason.items()
    )
    return tuple(filter(None, commands))


def _notes(record: RunRecord) -> Iterator[str]:
    doubts = [str(warning) for warning in record.config.get("warnings") or ()]
    yield from (f"configuration: {doubt}" for doubt in doubts if OF_OTHER_TOOLS not in doubt)
    for stage in record.stages.values():
        for note in stage.notes:
            yield f"{stage.name}: {note}"
    yield from (entry for entry in record.closing if entry.startswith(NOT_UNDONE))
    if undone := [entry for entry in record.closing if not entry.startswith(NOT_UNDONE)]:
        yield f"cleaned up when the session ended: {'; '.join(undone)}"
    if record.judgements:
        last = record.judgements[-1]
        failed = [stage.name for stage in last.stages if stage.outcome == "failed"]
        came_to = f"{', '.join(failed)} failed" if failed else "what was judged passed"
        yield f"judged again {len(record.judgements)} time(s), last at {last.at}: {came_to}"


def stage_row(stage: StageRecord, folder: RunFolder) -> StageRow:
    """Give a stage's outcome as reports show it."""
    notes = (("Notes", "\n".join(stage.notes)),) if stage.notes else ()
    return StageRow(
        name=stage.name,
        outcome=stage.outcome,
        seconds=stage.seconds,
        reason=stage.reason,
        checks=stage.checks,
        log_sections=notes,
        hint=hint_for(stage, folder),
    )


def write_documents(run: RunContext, record: RunRecord | None = None) -> tuple[str, ...]:
    """Write aorta_benchmark_report.json and verdict.json from what is known now; give their names.

    `record` is what a later judging makes of the run; without, the run's own.
    """
    own = run.record.document
    view = view_of(record or own, run.folder, stored=own if record is not None else None)
    execution, artifacts, result = (_known(run, kind) for kind in (Execution, Artifacts, Result))
    status: BenchmarkStatus = execution.status if isinstance(execution, Execution) else "pending"
    nodes, per_node = len(run.group), run.settings.nproc_per_node
    report = json_report.benchmark_report(
        view,
        status=status,
        validation_passed=view.verdict == "passed",
        duration_seconds=execution.duration_seconds if isinstance(execution, Execution) else 0.0,
        cluster=ClusterPart(nodes=nodes, gpus_per_node=per_node, total_gpus=nodes * per_node),
        configuration=ConfigurationPart(
            nccl_channels=execution.nccl_channels if isinstance(execution, Execution) else None,
            rccl_branch=run.settings.config.rccl.branch,
        ),
        ranks=_ranks(result) if isinstance(result, Result) else (),
        error_message=execution.error_message if isinstance(execution, Execution) else view.first_cause,
        collection_errors=artifacts.errors if isinstance(artifacts, Artifacts) else {},
        metrics_source=result.source if isinstance(result, Result) else NO_SOURCE,
    )
    run.folder.write_document(run.folder.benchmark_report, report)
    run.folder.write_document(run.folder.verdict, json_report.verdict_document(view))
    return tuple(run.folder.relative(path) for path in (run.folder.benchmark_report, run.folder.verdict))


def _known(run: RunContext, kind: type[Execution | Artifacts | Result]) -> object:
    return run.products.get(kind)


def _ranks(result: Result) -> tuple[RankPart, ...]:
    return tuple(
        RankPart(
            rank=row.rank,
            total_time_us=row.total_time_us,
            compute_ratio=row.compute_ratio,
            comm_ratio=row.comm_ratio,
            overlap_ratio=row.overlap_ratio,
        )
        for row in result.ranks
    )


def _row(name: str, stage: StageRecord | None, folder: RunFolder) -> StageRow:
    return StageRow(name=name, outcome="not_run") if stage is None else stage_row(stage, folder)


def _metrics(folder: RunFolder) -> dict[str, Metric]:
    try:
        return folder.read_metrics()
    except (OSError, ValueError, KeyError):
        return {}
