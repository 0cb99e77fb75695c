"""The gates of a deck: each configured limit beside what the thresholds stage said of it, and the tiers they fill."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_aorta.checks import COUNTS, Check, GateKind, Over
from pytest_aorta.reporting.deck_document import DeckSpec, GateVerdict, Status, ThresholdsState
from pytest_aorta.reporting.model import RunView
from pytest_aorta.reporting.text import one_line, without_tally

# Tier -> the threshold that fills it, in the order in which they are shown.
TIERS: Mapping[str, str] = {
    "iteration_time": "max_avg_iteration_ms",
    "compute_ratio": "min_compute_ratio",
    "overlap_ratio": "min_overlap_ratio",
    "rank_balance": "max_time_variance_ratio",
}
RECORD_TIER = "record"
GATES_TIER = "gates"


@dataclass(frozen=True, slots=True)
class Limit:
    """A configured threshold or gate; `name` is the threshold's key, or the metric of a gate."""

    name: str
    metric: str
    kind: GateKind
    value: float
    tolerance: float | None = None
    unit: str = ""
    over: Over = "mean"


@dataclass(frozen=True, slots=True)
class Judged:
    """A limit beside what came of it; `tier` is where it counts."""

    limit: Limit
    verdict: GateVerdict
    actual: float | None
    unit: str
    reason: str

    @property
    def status(self) -> Status:
        """The verdict as a cell's status."""
        return "record" if self.verdict == "not evaluated" else self.verdict

    @property
    def tier(self) -> str:
        """The column of the matrix."""
        return next((tier for tier, key in TIERS.items() if key == self.limit.name), GATES_TIER)


def judgement_of(limit: Limit, view: RunView, state: ThresholdsState) -> Judged:
    """Give what the thresholds stage said of a limit; nothing is judged here."""
    metric = view.metrics.get(limit.metric)
    value, unit = (metric.value, metric.unit) if metric is not None else (None, limit.unit)
    if state != "enforced":
        return Judged(limit, "record" if state == "record-only" else "not evaluated", value, unit, "")
    checks = [check for check in view.gates if _is_of(check, limit)]
    told = [check for check in checks if check.failed] or checks
    if not told:
        return Judged(limit, "not evaluated", value, unit, "")
    check = max(told, key=lambda check: check.excess)
    verdicts: dict[str, GateVerdict] = {"passed": "pass", "failed": "fail"}
    others = len(told) - 1
    more = f"; and {others} more rank{'s' if others > 1 else ''}" if check.failed and others else ""
    reason = one_line(without_tally(check.reason)) + more
    return Judged(limit, verdicts.get(check.state, "not evaluated"), check.actual, check.unit or unit, reason)


def _is_of(check: Check, limit: Limit) -> bool:
    gate = check.gate
    same = (limit.name, limit.kind, limit.value, limit.over)
    return gate is not None and (check.gate_name, gate.kind, gate.limit, gate.over) == same


def tiers_of(judged: Sequence[Judged]) -> tuple[str, ...]:
    """Give the columns of the matrix; gates of the configuration's own have one only when there are any."""
    own = (GATES_TIER,) if any(one.tier == GATES_TIER for one in judged) else ()
    return (*TIERS, *own, RECORD_TIER)


def spec_of(one: Judged) -> DeckSpec:
    """Give a limit and its verdict as the document has them."""
    limit = one.limit
    return DeckSpec(
        name=limit.name,
        kind=limit.kind,
        value=limit.value,
        tolerance=limit.tolerance,
        unit=one.unit,
        actual=finite(one.actual),
        verdict=one.verdict,
        reason=one.reason,
    )


def gate_text(limit: Limit, verdict: GateVerdict, actual: float | None, unit: str) -> str:
    """Give a limit in one line: `PASS · 12,345.68 ms (limit ≤ 12,500.00 ms)`."""
    sign = {"max": "≤ ", "min": "≥ ", "within": ""}[limit.kind]
    value = write_quantity(limit.value, unit, limit.metric)
    spread = f" ± {write_quantity(limit.tolerance, unit, limit.metric)}" if limit.tolerance is not None else ""
    return f"{verdict.upper()} · {write_quantity(actual, unit, limit.metric)} (limit {sign}{value}{spread})"


def write_quantity(value: float | None, unit: str, name: str = "") -> str:
    """Write a value for people: two decimals with a unit, four without, counts whole, thousands apart, else `n/a`."""
    if value is None or not math.isfinite(value):
        return "n/a"
    if name.startswith(COUNTS) and value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.2f} {unit}" if unit else f"{value:,.4f}"


def finite(value: float | None) -> float | None:
    """Give a number that JSON can hold, else None."""
    return value if value is not None and math.isfinite(value) else None
