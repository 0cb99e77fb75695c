"""The documented thresholds as rules, the gates of a configuration as rules, and the judgement of all of them."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_aorta.checks import Bound, Check, GateKind, Over
from pytest_aorta.errors import ConfigError, Fault
from pytest_aorta.gates.rules import HostOf, Rule, judge, not_measured, nowhere
from pytest_aorta.metric import Metric

# Threshold key -> (metric, kind), in the order in which they are judged and shown.
THRESHOLDS: dict[str, tuple[str, GateKind]] = {
    "max_avg_iteration_ms": ("avg_iteration_time_ms", "max"),
    "min_compute_ratio": ("avg_compute_ratio", "min"),
    "min_overlap_ratio": ("avg_overlap_ratio", "min"),
    "max_time_variance_ratio": ("time_variance_ratio", "max"),
}

_DOCUMENTED = frozenset(metric for metric, _ in THRESHOLDS.values())
_VARIANCE, _MEAN = "time_variance_ratio", "avg_iteration_time_ms"


def rules(thresholds: Mapping[str, float | None]) -> tuple[Rule, ...]:
    """Give the rules of the thresholds that are set, in table order; a null threshold gives none.

    Raises:
        ConfigError: a key that is not one of the four.
    """
    faults = [
        Fault(key, f"unknown threshold, the thresholds are {', '.join(THRESHOLDS)}{_hint(key, THRESHOLDS)}")
        for key in thresholds
        if key not in THRESHOLDS
    ]
    if faults:
        raise ConfigError(faults)
    found = []
    for key, (metric, kind) in THRESHOLDS.items():
        limit = thresholds.get(key)
        if limit is not None:
            found.append(Rule(metric, kind, float(limit), label_key=key))
    return tuple(found)


def gate(metric: str, kind: GateKind, value: float, *, tolerance: float | None = None, over: Over = "mean") -> Rule:
    """Give the rule of one entry of the configuration's `gates`."""
    return Rule(metric, kind, float(value), tolerance=tolerance, over=over, label_key=metric)


def judge_all(rules: Sequence[Rule], metrics: Mapping[str, Metric], *, host_of: HostOf = nowhere) -> tuple[Check, ...]:
    """Judge every rule, in the given order; each failing check's reason ends with all the gates that failed.

    `host_of` names the host on which a rank ran.
    """
    checks = [check for rule in rules for check in _judge_one(rule, metrics, host_of)]
    if not any(check.failed for check in checks):
        return tuple(checks)
    ending = f"({tally(checks)})"
    return tuple(
        check.model_copy(update={"reason": f"{check.reason} {ending}"}) if check.failed else check for check in checks
    )


def tally(checks: Sequence[Check]) -> str:
    """Say how many gates failed and which, `2 of 4 gates failed: a, b`; the ranks of one gate count as one.

    Gates that nothing was measured for are told apart: `1 of 4 gates could not be measured: c`.
    """
    by_gate: dict[tuple[str, Bound | None], list[Check]] = {}
    for check in checks:
        by_gate.setdefault((check.gate_name, check.gate), []).append(check)
    num_of_name = Counter(name for name, _ in by_gate)
    failed, unmeasured = [], []
    for (name, bound), judged in by_gate.items():
        shown = name if num_of_name[name] == 1 else f"{name} ({bound})"
        if any(check.failed and check.actual is not None for check in judged):
            failed.append(shown)
        elif any(check.failed for check in judged):
            unmeasured.append(shown)
    parts = [f"{len(failed)} of {len(by_gate)} gates failed" + (f": {', '.join(failed)}" if failed else "")]
    if unmeasured:
        parts.append(f"{len(unmeasured)} of {len(by_gate)} gates could not be measured: {', '.join(unmeasured)}")
    return "; ".join(parts if failed or not unmeasured else parts[1:])


def _judge_one(rule: Rule, metrics: Mapping[str, Metric], host_of: HostOf) -> tuple[Check, ...]:
    metric = metrics.get(rule.metric)
    if metric is None and rule.metric not in _DOCUMENTED:
        why = f"no metric of the name {rule.metric}{_hint(rule.metric, metrics)}"
        return (not_measured(rule, why, next_step="take a name from metrics.json"),)
    if rule.metric == _VARIANCE and (metric is None or metric.value is None) and _mean_is_zero(metrics):
        why = "not evaluated: the mean iteration time is 0, the ratio has no value"
        return (Check(label=rule.label(), state="passed", reason=why, gate=rule.bound("")),)
    return judge(rule, metric, host_of)


def _mean_is_zero(metrics: Mapping[str, Metric]) -> bool:
    mean = metrics.get(_MEAN)
    return mean is not None and mean.value == 0


def _hint(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else ""
