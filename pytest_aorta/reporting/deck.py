"""The Run Deck: what a run came to, as the document that its page is drawn from. It renders and never judges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pytest_aorta.metric import Metric
from pytest_aorta.reporting import deck_ranks
from pytest_aorta.reporting.deck_document import (
    DeckCell,
    DeckDatasets,
    DeckDocument,
    DeckEnvironmentRow,
    DeckFailure,
    DeckKernelLine,
    DeckMatrix,
    DeckMatrixRow,
    DeckMetric,
    DeckPanel,
    DeckProfile,
    DeckProvenance,
    DeckReport,
    DeckStage,
    DeckSteps,
    DeckStraggler,
    DeckSummary,
    DeckSweep,
    DeckTable,
    Status,
    ThresholdsState,
)
from pytest_aorta.reporting.deck_gates import (
    RECORD_TIER,
    Judged,
    Limit,
    finite,
    gate_text,
    judgement_of,
    spec_of,
    tiers_of,
)
from pytest_aorta.reporting.document import hint_part
from pytest_aorta.reporting.model import RunView
from pytest_aorta.reporting.text import one_line

ABSENT = "—"
PREFIX = "training."
DEFAULT_CELL = "default"
FOOTER = "The Run Deck is drawn from the run's stored results. It judges nothing and changes no outcome."
ALL_PASSED = "No stage failed"
SOME_FAILED = "Failures: see the pytest report"


PANELS: Mapping[str, str] = {
    "next-steps": "What to do next",
    "run-card": "Run",
    "lifecycle": "Lifecycle timeline",
    "gates": "Threshold gates",
    "cells": "Benchmark result",
    "ranks": "Per-rank breakdown",
    "results": "Full results",
    "steps": "Step times",
    "kernel-log": "Kernel log",
    "environment": "Environment",
}

HEADLINE = "avg_iteration_time_ms"
_METRICS = (
    "avg_iteration_time_ms",
    "std_iteration_time_ms",
    "min_iteration_time_ms",
    "max_iteration_time_ms",
    "time_variance_ratio",
    "avg_compute_time_ms",
    "avg_comm_time_ms",
    "avg_compute_ratio",
    "avg_comm_ratio",
    "avg_overlap_ratio",
    "ranks",
)
_COLUMNS: Mapping[str, str] = {
    "Ranks": "ranks",
    "Avg iter (ms)": "avg_iteration_time_ms",
    "Iter std across ranks (ms)": "std_iteration_time_ms",
    "Min rank iter (ms)": "min_iteration_time_ms",
    "Max rank iter (ms)": "max_iteration_time_ms",
    "Time variance": "time_variance_ratio",
    "Compute (ms)": "avg_compute_time_ms",
    "Comm time (ms)": "avg_comm_time_ms",
    "Compute ratio": "avg_compute_ratio",
    "Comm ratio": "avg_comm_ratio",
    "Overlap ratio": "avg_overlap_ratio",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeckFacts:
    """Everything that a deck is made of.

    `result_source` is None when nothing was parsed. `labels` are the stages' labels by test name, `evaluated` tells
    whether the thresholds stage came to a judgement. With 0 `ranks_per_host` it is not known which host has which rank.
    """

    view: RunView
    mode: str
    cell_id: str = ""
    workload: str = ""
    image: str = ""
    hosts: tuple[str, ...] = ()
    gpus_per_node: int = 1
    ranks_per_host: int = 1
    nccl_channels: int | None = None
    rccl_branch: str = ""
    result_source: str | None = None
    limits: tuple[Limit, ...] = ()
    enforced: bool = False
    evaluated: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    failures: tuple[DeckFailure, ...] = ()
    straggler: DeckStraggler | None = None
    kernel_log: tuple[DeckKernelLine, ...] = ()
    host_environment: tuple[DeckEnvironmentRow, ...] = ()
    steps: DeckSteps | None = None
    provenance: DeckProvenance
    generated_at: datetime


def build_deck(facts: DeckFacts) -> DeckDocument:
    """Make the deck of a run."""
    view = facts.view
    has_result = facts.result_source is not None
    values = _values(view.metrics) if has_result else {}
    gate_ran = facts.enforced and facts.evaluated and has_result
    state: ThresholdsState = "record-only" if not facts.enforced else "enforced" if gate_ran else "not evaluated"
    judged = tuple(judgement_of(limit, view, state) for limit in facts.limits)
    cells = (_cell(facts, judged, values, gate_ran=gate_ran),) if has_result else ()
    ranks = deck_ranks.Ranks.of(view.metrics, facts.hosts, facts.ranks_per_host) if has_result else deck_ranks.NO_RANKS
    failed = sum(one.verdict == "fail" for one in judged)
    document = DeckDocument(
        generated_at=facts.generated_at.astimezone(UTC).isoformat(timespec="seconds"),
        cvs_version=facts.provenance.cvs_version,
        overall_status=_overall(cells, gate_ran=gate_ran),
        thresholds_state=state,
        report=DeckReport(
            title="Aorta Run Deck",
            subtitle=f"{facts.mode} benchmark summary",
            footer=FOOTER,
            metric_tier_order=tiers_of(judged),
            headline_metric=PREFIX + HEADLINE,
            session_lifecycle_labels=dict(facts.labels),
        ),
        run_card_display=tuple(_run_card(facts, judged, state)),
        run_card_notes=tuple(one_line(note) for note in view.notes),
        provenance=facts.provenance,
        lifecycle=_lifecycle(facts),
        stages=_stages(facts),
        cells=cells,
        gate_matrix=DeckMatrix(
            tiers=tiers_of(judged),
            rows=tuple(DeckMatrixRow(cell_id=cell.cell_id, values=cell.tiers) for cell in cells),
        ),
        results_table=_results(facts, values) if has_result else DeckTable(headers=(), rows=()),
        datasets=DeckDatasets(
            training_sweep=DeckSweep(
                cells=cells, metric_charts=ranks.charts(), time_split=ranks.time_split(), steps=facts.steps
            )
        ),
        panels=(),
        deck_profile=DeckProfile(name="aorta", metric_prefix=PREFIX),
        summary=DeckSummary(
            verdict=view.verdict,
            sentence=one_line(view.sentence),
            first_cause=one_line(view.first_cause),
            next_step=one_line(view.next_step),
            hint=hint_part(view.hint),
            num_hosts=len(facts.hosts),
            num_ranks=len(ranks.ranks),
            num_gates=len(judged),
            num_gates_failed=failed,
            not_judged=view.not_judged,
            failures=facts.failures,
            straggler=facts.straggler,
            worst_ranks=ranks.worst(),
        ),
        hosts=facts.hosts,
        ranks_per_host=facts.ranks_per_host,
        kernel_log=facts.kernel_log,
        environment=tuple((name, value) for name, value, _ in view.environment),
        host_environment=facts.host_environment,
    )
    return document.model_copy(update={"panels": _panels(document)})


def _panels(deck: DeckDocument) -> tuple[DeckPanel, ...]:
    """Give the sections that have something to show, in order."""
    sweep = deck.datasets.training_sweep
    shown = {
        "next-steps": bool(deck.summary.failures),
        "lifecycle": bool(deck.stages),
        "gates": bool(deck.cells),
        "cells": bool(deck.cells),
        "ranks": bool(sweep.metric_charts.series),
        "results": bool(deck.results_table.rows),
        "steps": sweep.steps is not None,
        "kernel-log": bool(deck.kernel_log),
        "environment": bool(deck.environment or deck.host_environment),
    }
    return tuple(DeckPanel(id=name, title=title) for name, title in PANELS.items() if shown.get(name, True))


def _overall(cells: Sequence[DeckCell], *, gate_ran: bool) -> Status:
    if not cells:
        return "na"
    if not gate_ran:
        return "record"
    return "fail" if any("fail" in cell.tiers.values() for cell in cells) else "pass"


def _cell(facts: DeckFacts, judged: Sequence[Judged], values: Mapping[str, float | int], *, gate_ran: bool) -> DeckCell:
    tiers: dict[str, Status] = {}
    for tier in tiers_of(judged):
        statuses = [one.status for one in judged if one.tier == tier]
        if tier == RECORD_TIER or not gate_ran:
            tiers[tier] = "record"
        else:
            worst: tuple[Status, ...] = ("fail", "pass", "record")
            tiers[tier] = next((status for status in worst if status in statuses), "na")
    by_metric: dict[str, list[Judged]] = {}
    for one in judged:
        by_metric.setdefault(one.limit.metric, []).append(one)
    metrics = [
        DeckMetric(metric=PREFIX + name, status=one.status, spec=spec_of(one))
        for name, group in by_metric.items()
        for one in group
    ]
    metrics += [
        DeckMetric(metric=PREFIX + name, status="record", spec=None) for name in values if name not in by_metric
    ]
    return DeckCell(
        cell_id=facts.cell_id or DEFAULT_CELL,
        actuals={PREFIX + name: value for name, value in values.items()},
        tiers=tiers,
        metrics=tuple(metrics),
    )


def _values(metrics: Mapping[str, Metric]) -> dict[str, float | int]:
    """Give the documented metrics that were measured, by name; times in ms, ratios as fractions."""
    found: dict[str, float | int] = {}
    for name in _METRICS:
        metric = metrics.get(name)
        value = finite(metric.value) if metric is not None else None
        if value is not None:
            found[name] = value
    shares = {"avg_compute_time_ms": "avg_compute_ratio", "avg_comm_time_ms": "avg_comm_ratio"}
    for name, share in shares.items():
        times = deck_ranks.times_ms(metrics, share) if share in found else {}
        known = [time for time in times.values() if time is not None]
        if known:
            found[name] = math.fsum(known) / len(known)
    iteration = metrics.get(HEADLINE)
    if iteration is not None and iteration.per_rank:
        found["ranks"] = len(iteration.per_rank)
    return {name: found[name] for name in _METRICS if name in found}


def _results(facts: DeckFacts, values: Mapping[str, float | int]) -> DeckTable:
    """Give the one row of results; a dash where something is absent."""
    about: dict[str, str | float | int] = {
        "Model": facts.cell_id or DEFAULT_CELL,
        "Nodes": len(facts.hosts),
        "GPUs/node": facts.gpus_per_node,
        "NCCL channels": ABSENT if facts.nccl_channels is None else facts.nccl_channels,
        "RCCL branch": facts.rccl_branch or ABSENT,
    }
    row = (*about.values(), *(values.get(name, ABSENT) for name in _COLUMNS.values()))
    return DeckTable(headers=(*about, *_COLUMNS), rows=(row,))


def _run_card(facts: DeckFacts, judged: Sequence[Judged], state: ThresholdsState) -> list[tuple[str, str, bool]]:
    provenance = facts.provenance
    rows = [
        ("Workload", facts.workload or ABSENT, False),
        ("Framework", "Aorta", False),
        ("Image", facts.image or ABSENT, False),
    ]
    if facts.result_source is not None:
        rows += [
            ("Nodes", str(len(facts.hosts)), False),
            ("GPUs/node", str(facts.gpus_per_node), False),
            ("NCCL channels", ABSENT if facts.nccl_channels is None else str(facts.nccl_channels), False),
            ("RCCL branch", facts.rccl_branch or ABSENT, False),
        ]
    rows.append(("Metrics source", facts.result_source or ABSENT, False))
    rows.append(("Thresholds", state, False))
    rows += [(one.limit.name, gate_text(one.limit, one.verdict, one.actual, one.unit), False) for one in judged]
    bad = any(stage.outcome in {"failed", "interrupted"} for stage in facts.view.stages)
    rows.append(("Pytest stages", SOME_FAILED if bad else ALL_PASSED, False))
    for label, href in (("Pytest report", provenance.pytest_html_href), ("Run log", provenance.log_file_href)):
        rows.append((label, href or ABSENT, bool(href)))
    rows.append(("CVS version", provenance.cvs_version, False))
    rows.append(("Generated", f"{facts.generated_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC", False))
    optional = {
        "Run": provenance.run_id,
        "Config file": provenance.config_file,
        "Judged by": provenance.judged_by,
        "Cluster file": provenance.cluster_file,
        "Workload commit": provenance.git_commit,
    }
    return rows + [(label, value, False) for label, value in optional.items() if value]


def _lifecycle(facts: DeckFacts) -> dict[str, float]:
    """Give the seconds of each stage that was done, by label, to the millisecond."""
    done = {"passed", "failed", "interrupted"}
    return {
        facts.labels.get(stage.name, stage.name): round(stage.seconds, 3)
        for stage in facts.view.stages
        if stage.outcome in done and stage.seconds > 0
    }


def _stages(facts: DeckFacts) -> tuple[DeckStage, ...]:
    ran = {"passed", "failed", "interrupted"}
    return tuple(
        DeckStage(
            name=stage.name,
            label=facts.labels.get(stage.name, stage.name),
            outcome=stage.outcome,
            verdict=stage.verdict,
            seconds=round(stage.seconds, 3) if stage.outcome in ran else None,
            reason=one_line(stage.reason),
        )
        for stage in facts.view.stages
    )
