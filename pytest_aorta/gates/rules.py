"""Rule: what a metric must be; and the judgement of one metric by one rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from pytest_aorta.checks import Bound, Check, GateKind, Over
from pytest_aorta.errors import ConfigError, Fault
from pytest_aorta.gates.metrics import range_of, speak, unit_of, write_limit, write_value
from pytest_aorta.metric import Metric

HostOf = Callable[[int], str | None]

_MORE_DIGITS = 17
WHOLE_TRACE = "whole trace, "
"""What the source of a metric of whole traces says before the number of their steps."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit for a metric. `label_key` names the sub-test: a threshold key, or the metric.

    `over` says which value is held against it: the run's own value (`mean`), the greatest or least of the ranks, or
    `each` rank for itself.
    """

    metric: str
    kind: GateKind
    limit: float
    tolerance: float | None = None
    over: Over = "mean"
    label_key: str = ""

    def __post_init__(self) -> None:
        """Refuse a rule that says nothing.

        Raises:
            ConfigError: a limit that is not a number, a tolerance that is missing, negative or not wanted.
        """
        faults = []
        if not math.isfinite(self.limit):
            faults.append(Fault(self.name, f"the limit of a gate must be a finite number, not {self.limit}"))
        if self.kind == "within" and not (self.tolerance is not None and 0 <= self.tolerance < math.inf):
            faults.append(
                Fault(self.name, f"a gate of kind within needs a tolerance of 0 or more, not {self.tolerance}")
            )
        if self.kind != "within" and self.tolerance is not None:
            faults.append(Fault(self.name, f"a gate of kind {self.kind} takes no tolerance, leave it out"))
        if faults:
            raise ConfigError(faults)

    @property
    def name(self) -> str:
        """The name under which the gate is reported."""
        return self.label_key or self.metric

    def label(self, rank: int | None = None) -> str:
        """Give the sub-test's name."""
        suffix = f", rank={rank}" if rank is not None else ""
        return f"[threshold] (metric={self.name}{suffix})"

    def bound(self, unit: str) -> Bound:
        """Give the limit as checks carry it."""
        return Bound(kind=self.kind, limit=float(self.limit), tolerance=self.tolerance, unit=unit, over=self.over)

    def accepts(self, value: float) -> bool:
        """Tell whether the value is within the limit, the limit itself included.

        In decimal arithmetic, as people write limits: 1.1 is within 1.0 ± 0.1, though not as binary fractions.
        """
        low, high = self.interval()
        return low <= Decimal(repr(float(value))) <= high

    def interval(self) -> tuple[Decimal, Decimal]:
        """Give the least and the greatest value that passes."""
        limit = Decimal(repr(float(self.limit)))
        match self.kind:
            case "max":
                return Decimal("-Infinity"), limit
            case "min":
                return limit, Decimal("Infinity")
            case "within":
                tolerance = Decimal(repr(float(self.tolerance or 0.0)))
                return limit - tolerance, limit + tolerance

    @property
    def cannot_fail(self) -> str:
        """Say why no value of the metric can break the rule, empty when one can."""
        least, greatest = range_of(self.metric)
        low, high = self.interval()
        if not (low <= Decimal(least) and high >= Decimal(greatest)):
            return ""
        span = f"{least:g} or more" if greatest == math.inf else f"between {least:g} and {greatest:g}"
        return f"no limit: {self.metric} is always {span}, so {self.kind} {self.limit:g} cannot fail"


def nowhere(_rank: int) -> None:
    """Say of no rank where it ran."""


def judge(rule: Rule, metric: Metric | None, host_of: HostOf = nowhere) -> tuple[Check, ...]:
    """Hold a metric against a rule: one check, with `over: each` one a rank. None means that nothing was measured."""
    unit = metric.unit if metric is not None and metric.unit else unit_of(rule.metric)
    if rule.cannot_fail:
        value = metric.value if metric is not None else None
        actual = value if value is not None and math.isfinite(value) else None
        return (
            Check(
                label=rule.label(),
                state="not_judged",
                reason=rule.cannot_fail,
                actual=actual,
                unit=unit,
                gate=rule.bound(unit),
                next_step="set a limit that can fail, or leave it out",
            ),
        )
    if metric is None:
        return (not_measured(rule, "the run gave no such metric", unit=unit),)
    if rule.over == "mean":
        return (_judge_value(rule, unit, metric.value, metric.why or "it has no value", steps=_steps_of(metric)),)
    return _judge_ranks(rule, metric, unit, host_of)


def _judge_ranks(rule: Rule, metric: Metric, unit: str, host_of: HostOf) -> tuple[Check, ...]:
    if not metric.per_rank:
        return (not_measured(rule, metric.why or f"{rule.metric} has no value for each rank", unit=unit),)
    why = metric.why or "it has no value"
    if rule.over == "each":
        return tuple(
            _judge_value(rule, unit, one.value, why, rank=one.rank, host=host_of(one.rank)) for one in metric.per_rank
        )
    missing = [str(one.rank) for one in metric.per_rank if one.value is None or not math.isfinite(one.value)]
    if missing:
        return (not_measured(rule, f"no value of rank {', '.join(missing)}", unit=unit),)
    values = [(one.value, one.rank) for one in metric.per_rank if one.value is not None]
    value, rank = max(values, key=lambda pair: (pair[0], -pair[1])) if rule.over == "max" else min(values)
    return (
        _judge_value(rule, unit, value, why, subject=f"{_place(rank, host_of(rank))} (the {rule.over} over ranks)"),
    )


def _judge_value(
    rule: Rule,
    unit: str,
    value: float | None,
    why: str,
    *,
    rank: int | None = None,
    host: str | None = None,
    subject: str = "",
    steps: str = "",
) -> Check:
    if value is None or not math.isfinite(value):
        said = why if value is None else f"its value is {value}"
        return not_measured(rule, said, unit=unit, rank=rank).model_copy(update={"host": host})
    passed = rule.accepts(value)
    whose = subject or (_place(rank, host) if rank is not None else "")
    return Check(
        label=rule.label(rank),
        state="passed" if passed else "failed",
        reason="" if passed else _failure(rule, unit, value, whose, steps),
        actual=value,
        unit=unit,
        gate=rule.bound(unit),
        host=host,
    )


def _place(rank: int, host: str | None) -> str:
    return f"rank {rank} on {host}" if host is not None else f"rank {rank}"


def _steps_of(metric: Metric) -> str:
    """Give how many steps the metric's time spans, ` (3 profiled steps)`, as its source says for whole traces."""
    steps = metric.source.partition(WHOLE_TRACE)[2]
    return f" ({steps})" if steps else ""


def _failure(rule: Rule, unit: str, value: float, subject: str, steps: str) -> str:
    who = f"{rule.metric} of {subject}" if subject else f"{speak(rule.metric)}{steps}"
    actual, limit = write_value(rule.metric, value, unit), write_limit(rule.metric, rule.limit, unit)
    if write_value(rule.metric, rule.limit, unit) == actual:
        actual, limit = f"{value:.{_MORE_DIGITS}g}", f"{rule.limit:.{_MORE_DIGITS}g}"
    match rule.kind:
        case "max":
            return f"{who} {actual} is above {limit}"
        case "min":
            return f"{who} {actual} is below {limit}"
        case "within":
            tolerance = write_limit(rule.metric, rule.tolerance or 0.0, unit)
            return f"{who} {actual} is further than {tolerance} from {limit}"


def not_measured(rule: Rule, why: str, *, unit: str = "", rank: int | None = None, next_step: str = "") -> Check:
    """Give the failed check of a rule without a measurement: what nobody saw is not green, and the rig is at fault."""
    return Check(
        label=rule.label(rank),
        state="failed",
        reason=f"not measured: {why}",
        unit=unit,
        gate=rule.bound(unit),
        fault="rig",
        next_step=next_step,
    )
