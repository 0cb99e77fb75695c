"""The Run Deck of a run: its stored record and documents as a page and a JSON document."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from urllib.parse import quote

from pytest_aorta import __version__
from pytest_aorta.checks import Bound, Check, worst_first
from pytest_aorta.config.settings import Settings, restore
from pytest_aorta.gates.metrics import unit_of
from pytest_aorta.gates.thresholds import THRESHOLDS, gate, rules
from pytest_aorta.ranks import place_of
from pytest_aorta.reporting.deck import DeckFacts, build_deck
from pytest_aorta.reporting.deck_document import (
    DeckEnvironmentRow,
    DeckFailure,
    DeckKernelLine,
    DeckProvenance,
    DeckSteps,
    DeckStraggler,
    DeckValue,
)
from pytest_aorta.reporting.deck_gates import Limit
from pytest_aorta.reporting.deck_page import DECK, DeckPlace, deck_stylesheet, render_deck
from pytest_aorta.reporting.json_report import write_json, write_text
from pytest_aorta.reporting.model import RunView, without_cause
from pytest_aorta.reporting.text import one_line, without_tally
from pytest_aorta.run.conclusion import next_step, view_of
from pytest_aorta.run.defects import guarded
from pytest_aorta.run.evidence import KERNEL_LOG, WARNINGS, check_name
from pytest_aorta.run.folder import RunFolder, read_regular
from pytest_aorta.run.gating import bare
from pytest_aorta.run.products import Artifacts, Execution, Product, Rccl, Result
from pytest_aorta.run.record import RunRecord, StageRecord
from pytest_aorta.run.secrecy import cleaned
from pytest_aorta.trace.step_log import StepLog, read_step_logs

log = logging.getLogger("pytest_aorta")

P = TypeVar("P", bound=Product)
MAX_STEP_HOSTS = 8
MAX_STEPS = 400
GIB = 1024**3
_FACTS_OF_THE_MOMENT = frozenset({"hostname", "wall_ns", "uptime_s", "boot_id", "group_ids", "pid_namespace"})
_GIT = "git:"
_NOT_ENFORCED = "enforce_thresholds=false"
_RANK = re.compile(r"\brank=(?P<rank>\d+)\)$")
_RANK_THAT_ENDED = re.compile(r"^\S+: rank (?P<rank>\d+) (?:exited|was ended)")


def draw(record: RunRecord, folder: RunFolder, deck: DeckPlace) -> str:
    """Draw a run's deck; give why it could not be drawn, empty when it was. Never raises: a page changes no outcome."""
    return guarded(
        DECK, lambda: _draw(record, folder, deck), lambda error: _undrawn(f"{type(error).__name__}: {error}")
    )


def _draw(record: RunRecord, folder: RunFolder, deck: DeckPlace) -> str:
    document = build_deck(facts_of(_told(record, folder), folder, deck))
    page = render_deck(document, name=deck.page.stem)
    data, css = deck.beside
    try:
        write_text(css, deck_stylesheet())
        write_json(data, document.model_dump(mode="json"))
        write_text(deck.page, page)
    except OSError as error:
        return _undrawn(error.strerror or str(error))
    return ""


def _undrawn(why: str) -> str:
    log.warning("deck could not be drawn: %s", why)
    return f"deck could not be drawn: {why}"


def with_deck(view: RunView, record: RunRecord, folder: RunFolder, deck: DeckPlace) -> RunView:
    """Draw a run's deck and give the view that names it, or says why there is none."""
    why = draw(record, folder, deck)
    if why:
        return replace(view, notes=(why, *view.notes))
    first = sum(label in {"run folder", "HTML report"} for label, _ in view.paths)
    return replace(view, paths=(*view.paths[:first], (DECK, str(deck.page)), *view.paths[first:]))


def facts_of(record: RunRecord, folder: RunFolder, deck: DeckPlace) -> DeckFacts:
    """Gather what the deck of a run shows."""
    settings = restore(record.config)
    view = view_of(record, folder)
    stages = tuple(replace(stage, reason=without_cause(stage.reason)) for stage in view.stages)
    result, execution = _product(record, Result), _product(record, Execution)
    hosts, per_host = tuple(host.name for host in settings.hosts), settings.ranks_per_host
    config, judging = settings.config, record.stages.get("test_validate_thresholds")
    return DeckFacts(
        view=replace(view, stages=stages),
        mode=record.suite,
        cell_id=config.model.id if config.model is not None else "",
        workload=_workload(settings),
        image=_image(settings),
        hosts=hosts,
        gpus_per_node=settings.nproc_per_node,
        ranks_per_host=per_host,
        nccl_channels=execution.nccl_channels if execution is not None else None,
        rccl_branch=_rccl(config.rccl.branch, _product(record, Rccl)),
        result_source=result.source if result is not None else None,
        limits=_limits(judging, settings),
        enforced=_is_enforced(judging, settings),
        evaluated=_is_evaluated(judging),
        labels={name: deck.labels.get(name, name) for name in record.plan},
        failures=tuple(_failures(record, folder, hosts, per_host)),
        straggler=_straggler(result, hosts, per_host),
        kernel_log=tuple(_kernel_log(record)),
        host_environment=tuple(_host_environment(folder, hosts)),
        steps=_steps(folder, _product(record, Artifacts), len(hosts)),
        provenance=_provenance(record, folder, deck, execution),
        generated_at=datetime.now(UTC),
    )


def _told(record: RunRecord, folder: RunFolder) -> RunRecord:
    """Give the record as run.json has it: without secrets."""
    return RunRecord.model_validate(cleaned(record.model_dump(mode="json"), folder.secrets))


def _product(record: RunRecord, kind: type[P]) -> P | None:
    product = record.product(kind)
    return product if isinstance(product, kind) else None


def _image(settings: Settings) -> str:
    container = settings.config.container
    if container is None or not settings.uses_container:
        return "none, on the host"
    return container.image or ""


def _workload(settings: Settings) -> str:
    config = settings.config
    if config.model is not None:
        return config.model.id
    if config.workload is not None:
        return " ".join(config.workload.command)[:200]
    return f"bundled workload, {config.base_config}" if config.aorta_path is None else config.base_config


def _rccl(branch: str, product: Rccl | None) -> str:
    """Give the branch that was asked for with what was built of it."""
    if product is None or not product.built:
        return f"{branch} (not built)"
    return f"{branch} ({product.commit})" if product.commit else branch


def _limits(judging: StageRecord | None, settings: Settings) -> tuple[Limit, ...]:
    """Give the limits that were judged, which a later judging may have changed; else those of the configuration."""
    if _is_evaluated(judging) and judging is not None:
        gates = ((check, check.gate) for check in judging.checks if check.gate is not None)
        found = (_limit(check, bound) for check, bound in gates)
        return tuple(dict.fromkeys(found))
    return tuple(
        Limit(rule.name, rule.metric, rule.kind, float(rule.limit), rule.tolerance, unit_of(rule.metric), rule.over)
        for rule in (
            *rules(settings.thresholds.model_dump()),
            *(gate(g.metric, g.kind, g.value, tolerance=g.tolerance, over=g.over) for g in settings.config.gates),
        )
    )


def _limit(check: Check, bound: Bound) -> Limit:
    name = check.gate_name
    metric = THRESHOLDS[name][0] if name in THRESHOLDS else name
    return Limit(name, metric, bound.kind, bound.limit, bound.tolerance, bound.unit, bound.over)


def _is_enforced(judging: StageRecord | None, settings: Settings) -> bool:
    if judging is not None and judging.outcome == "skipped" and judging.reason.startswith(_NOT_ENFORCED):
        return False
    return settings.config.enforce_thresholds or _is_evaluated(judging)


def _is_evaluated(judging: StageRecord | None) -> bool:
    """Tell a judgement from a stage that broke off: only a judgement leaves its gates behind."""
    if judging is None or judging.outcome not in {"passed", "failed"}:
        return False
    return any(check.gate is not None for check in judging.checks)


def _failures(record: RunRecord, folder: RunFolder, hosts: Sequence[str], per_host: int) -> Iterator[DeckFailure]:
    for stage in record.stages.values():
        if stage.outcome not in {"failed", "interrupted"}:
            continue
        advice = next_step({stage.name: stage}, folder)
        failed = list(worst_first(stage.checks))
        for check in failed:
            rank = _rank_of(check)
            host = check.host or (place_of(rank, hosts, per_host)[0] if rank is not None else None)
            yield DeckFailure(
                stage=stage.name,
                what=check.label,
                host=host,
                rank=rank,
                reason=one_line(without_tally(check.reason)) or check.label,
                next_step=check.next_step or advice,
            )
        if not failed:
            yield DeckFailure(
                stage=stage.name, what="", host=None, rank=None, reason=bare(stage.reason), next_step=advice
            )


def _rank_of(check: Check) -> int | None:
    found = _RANK.search(check.label) or _RANK_THAT_ENDED.search(check.reason)
    return int(found["rank"]) if found is not None else None


def _straggler(result: Result | None, hosts: Sequence[str], per_host: int) -> DeckStraggler | None:
    late = result.straggler if result is not None else None
    if late is None or late.rank is None:
        return None
    return DeckStraggler(rank=late.rank, host=place_of(late.rank, hosts, per_host)[0], text=late.text)


def _kernel_log(record: RunRecord) -> Iterator[DeckKernelLine]:
    """Give what the scan of the kernel logs said: failures first, then warnings, then what was not scanned."""
    lines = [
        DeckKernelLine(host=check.host, state=check.state, text=check.reason or check.label, next_step=check.next_step)
        for stage in record.stages.values()
        for check in stage.checks
        if check_name(check) in {KERNEL_LOG, WARNINGS} and check.state != "passed"
    ]
    order = ("failed", "warned", "not_judged")
    yield from sorted(lines, key=lambda line: order.index(line.state))


def _host_environment(folder: RunFolder, hosts: Sequence[str]) -> Iterator[DeckEnvironmentRow]:
    """Give what the hosts said of themselves, equal values together, the most common first."""
    by_name: dict[str, dict[str, list[str]]] = {}
    for host in hosts:
        for name, value in _facts(folder, host).items():
            if name not in _FACTS_OF_THE_MOMENT:
                by_name.setdefault(name, {}).setdefault(_written(name, value), []).append(host)
    for name, values in by_name.items():
        ordered = sorted(values.items(), key=lambda pair: -len(pair[1]))
        yield DeckEnvironmentRow(
            name=name, values=tuple(DeckValue(value=value, hosts=tuple(where)) for value, where in ordered)
        )


def _facts(folder: RunFolder, host: str) -> dict[str, Any]:
    try:
        facts = json.loads(read_regular(folder.facts(host)))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _written(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int) and value >= GIB:
        return f"{value / GIB:.0f} GiB"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return json.dumps(value) if isinstance(value, (dict, bool)) or value is None else str(value)


def _steps(folder: RunFolder, artifacts: Artifacts | None, num_hosts: int) -> DeckSteps | None:
    """Give the step times of all ranks, of a large run those of eight hosts spread over it."""
    if artifacts is None or artifacts.torch_traces is None:
        return None
    roots = [folder.path / artifacts.torch_traces]
    if artifacts.layout == "combined" and num_hosts > MAX_STEP_HOSTS:
        chosen = {round(i * (num_hosts - 1) / (MAX_STEP_HOSTS - 1)) for i in range(MAX_STEP_HOSTS)}
        roots = [folder.traces(artifacts.layout, node) for node in sorted(chosen)]
        num_hosts = len(roots)
    logs = [found for each in roots if each.is_dir() for found in read_step_logs(each) if found.steps]
    return _over_steps(logs, num_hosts) if logs else None


def _over_steps(logs: Sequence[StepLog], num_hosts: int) -> DeckSteps | None:
    by_step: dict[int, list[tuple[float, int]]] = {}
    profiled: set[int] = set()
    for one in logs:
        for step in one.steps:
            by_step.setdefault(step.number, []).append((step.step_ms, one.rank))
            if step.profiled:
                profiled.add(step.number)
    numbers = sorted(by_step)
    if len(numbers) > MAX_STEPS:
        numbers = numbers[:: -(-len(numbers) // MAX_STEPS)]
    columns = [sorted(by_step[number]) for number in numbers]
    return DeckSteps(
        steps=tuple(numbers),
        min_ms=tuple(column[0][0] for column in columns),
        median_ms=tuple(median(value for value, _ in column) for column in columns),
        max_ms=tuple(column[-1][0] for column in columns),
        slowest_rank=tuple(column[-1][1] for column in columns),
        profiled_steps=tuple(sorted(profiled)),
        num_ranks=len({one.rank for one in logs}),
        num_hosts=num_hosts,
    )


def _provenance(record: RunRecord, folder: RunFolder, deck: DeckPlace, execution: Execution | None) -> DeckProvenance:
    is_commit = execution is not None and execution.workload.startswith(_GIT)
    return DeckProvenance(
        run_id=record.run_id,
        pytest_html_path=str(deck.html) if deck.html is not None else None,
        pytest_html_href=_href(deck, deck.html),
        log_file_path=str(deck.log) if deck.log is not None else None,
        log_file_href=_href(deck, deck.log),
        cluster_file=record.inputs.get("cluster"),
        config_file=record.inputs.get("config"),
        judged_by=record.judgements[-1].judged_by or None if folder.judgement and record.judgements else None,
        git_commit=execution.workload.removeprefix(_GIT) if execution is not None and is_commit else None,
        cvs_version=f"pytest-aorta {record.environment.get('pytest-aorta', __version__)}",
    )


def _href(deck: DeckPlace, target: Path | None) -> str | None:
    """Give a link from the page that still works where both were moved together."""
    if target is None:
        return None
    return quote(os.path.relpath(target.absolute(), deck.page.absolute().parent))
