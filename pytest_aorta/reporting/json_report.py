"""The JSON reports: aorta_benchmark_report.json, verdict.json, and the host lists beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_aorta.checks import COMMUNICATION, STEP_LOG, TRACE_COLLECTION, UNMEASURED, Check
from pytest_aorta.hostlist import host_list
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.document import Document, HintPart, hint_part
from pytest_aorta.reporting.model import Fault, RunVerdict, RunView
from pytest_aorta.reporting.text import one_line

BenchmarkStatus = Literal["pending", "running", "completed", "failed", "timeout"]
SCHEMA_VERSION = 1


class ClusterPart(Document):
    """How much machinery took part."""

    nodes: int
    gpus_per_node: int
    total_gpus: int


class ConfigurationPart(Document):
    """The settings a benchmark is compared by."""

    nccl_channels: int | None = None
    compute_channels: int | None = None
    rccl_branch: str | None = None


class PerformancePart(Document):
    """Aggregates over the ranks. The unit ends each name; ratios are fractions; null was not measured."""

    avg_iteration_time_ms: float | None
    std_iteration_time_us: float | None
    avg_compute_ratio: float | None
    avg_comm_ratio: float | None
    avg_overlap_ratio: float | None
    min_iteration_time_ms: float | None
    max_iteration_time_ms: float | None
    time_variance_ratio: float | None
    step_time_ms_median: float | None
    samples_per_second: float | None
    tokens_per_second_per_gpu: float | None


class RankPart(Document):
    """One rank's share of the benchmark."""

    rank: int
    total_time_us: float | None
    compute_ratio: float | None
    comm_ratio: float | None = None
    overlap_ratio: float | None = None


class ThresholdPart(Document):
    """One gate as it was judged."""

    label: str
    state: str
    actual: float | None
    unit: str
    kind: str
    limit: float
    reason: str


class KernelLogPart(Document):
    """One class of kernel log lines that matched, on one host."""

    host: str
    class_name: str
    severity: str
    count: int
    text: str


class BenchmarkReport(Document):
    """aorta_benchmark_report.json: the documented keys, unchanged, then ours."""

    status: BenchmarkStatus
    validation_passed: bool
    error_message: str
    collection_errors: dict[str, str]
    duration_seconds: float
    cluster: ClusterPart
    configuration: ConfigurationPart
    performance: PerformancePart
    per_rank_summary: tuple[RankPart, ...]
    schema_version: int = SCHEMA_VERSION
    run_id: str
    metrics_source: str
    thresholds: tuple[ThresholdPart, ...]
    kernel_log: tuple[KernelLogPart, ...]


class HostVerdict(Document):
    """What to do with one host, and why."""

    host: str
    action: str
    evidence: tuple[str, ...]


class VerdictReport(Document):
    """verdict.json: the run in one sentence, on whose account, the hosts to look at, and a hint at the first cause."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    verdict: RunVerdict
    fault: Fault
    sentence: str
    hosts: tuple[HostVerdict, ...]
    not_judged: tuple[str, ...]
    hint: HintPart | None = None


def benchmark_report(
    view: RunView,
    *,
    status: BenchmarkStatus,
    validation_passed: bool,
    duration_seconds: float,
    cluster: ClusterPart,
    configuration: ConfigurationPart | None = None,
    ranks: Sequence[RankPart] = (),
    error_message: str = "",
    collection_errors: Mapping[str, str] | None = None,
    metrics_source: str = "—",
    kernel_log: Sequence[KernelLogPart] = (),
) -> dict[str, Any]:
    """Give aorta_benchmark_report.json; metrics and gates are taken from the view."""
    report = BenchmarkReport(
        status=status,
        validation_passed=validation_passed,
        error_message=error_message,
        collection_errors=dict(collection_errors or {}),
        duration_seconds=duration_seconds,
        cluster=cluster,
        configuration=configuration or ConfigurationPart(),
        performance=_performance(view.metrics),
        per_rank_summary=tuple(ranks),
        run_id=view.run_id,
        metrics_source=metrics_source,
        thresholds=tuple(_threshold(check) for check in view.gates),
        kernel_log=tuple(kernel_log),
    )
    return report.model_dump(mode="json")


def verdict_document(view: RunView) -> dict[str, Any]:
    """Give verdict.json.

    `fault` is the cluster's account if a check blames a host, else that of the first failed check (in a run
    that measured something bad: the first that did), else the rig's.
    """
    suspects: dict[str, list[Check]] = {}
    for check in view.checks:
        if check.host is not None and check.state in ("failed", "warned"):
            suspects.setdefault(check.host, []).append(check)
    report = VerdictReport(
        run_id=view.run_id,
        verdict=view.verdict,
        fault=_fault(view),
        sentence=one_line(view.sentence),
        hosts=tuple(_host_verdict(host, checks) for host, checks in suspects.items()),
        not_judged=view.not_judged,
        hint=hint_part(view.hint),
    )
    return report.model_dump(mode="json")


def blamed_hosts(checks: Iterable[Check]) -> tuple[str, ...]:
    """Give the hosts that failed checks blame, each once."""
    return tuple(dict.fromkeys(check.host for check in checks if check.blames_host and check.host))


def sort_hosts(view: RunView, hosts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Part the hosts into failing ones (a failed check blames them) and good ones; the others are neither.

    A host is good only when something was measured on it: a run that broke off, or a workload that failed before it
    gave a metric, proves nothing, nor does a host whose rank died or whose traces are missing or may be another's. Nor
    is any host good when a check failed on the cluster's account that names no host, when ranks did not
    train together, or when the step log of a rank is bad whose host nobody knows.
    """
    failing = set(blamed_hosts(view.checks))
    failed = [check for check in view.checks if check.failed]
    named = {check.host for check in failed if check.gate is None}
    named |= {c.host for c in view.checks if c.state == "not_judged" and c.label.startswith(TRACE_COLLECTION)}
    has_metric = any(metric.value is not None for metric in view.metrics.values())
    measured = has_metric or (view.verdict == "failed" and bool(failing))
    measured = measured and view.verdict in {"passed", "failed"}
    measured = measured and (bool(failing) or not any(check.fault == "cluster" for check in failed))
    measured = measured and all(check.label not in (COMMUNICATION, STEP_LOG) for check in failed)
    return (
        tuple(host for host in hosts if host in failing),
        tuple(host for host in hosts if measured and host not in named),
    )


def host_lines(hosts: Sequence[str]) -> str:
    """Give failing_nodes.txt or good_nodes.txt: one host list, as Slurm writes it, on a line; nothing for no hosts."""
    return f"{host_list(hosts)}\n" if hosts else ""


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document as indented JSON, whole or not at all; NaN and infinity are refused with ValueError."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all: the old file stays until the new one is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _performance(metrics: Mapping[str, Metric]) -> PerformancePart:
    def value(name: str) -> float | None:
        metric = metrics.get(name)
        return metric.value if metric is not None else None

    std_ms = value("std_iteration_time_ms")
    same_name = {name: value(name) for name in PerformancePart.model_fields if name != "std_iteration_time_us"}
    return PerformancePart(std_iteration_time_us=None if std_ms is None else std_ms * 1000, **same_name)


def _threshold(check: Check) -> ThresholdPart:
    if check.gate is None:
        raise TypeError(f"{check.label}: a threshold has a limit, this check has none")
    return ThresholdPart(
        label=check.label,
        state=check.state,
        actual=check.actual,
        unit=check.unit,
        kind=check.gate.kind,
        limit=check.gate.limit,
        reason=check.reason,
    )


def _fault(view: RunView) -> Fault:
    if view.verdict in ("passed", "interrupted"):
        return "none"
    checks = (*view.checks_before, *view.checks)
    if any(check.blames_host for check in checks):
        return "cluster"
    failed = [check.fault for check in checks if check.failed]
    if view.verdict == "failed":  # beside what was measured and is bad, what was not measured is not the verdict's
        failed = [fault for fault in failed if fault not in UNMEASURED] or failed
    return failed[0] if failed else "rig"


def _host_verdict(host: str, checks: Sequence[Check]) -> HostVerdict:
    bad = sorted((check for check in checks if check.failed), key=lambda check: not check.blames_host)
    steps = [check.next_step for check in (*bad, *checks) if check.next_step]
    action = steps[0] if steps else ("inspect" if bad else "watch")
    return HostVerdict(host=host, action=action, evidence=tuple(one_line(check.line()) for check in checks))
