"""Check: one thing measured against one expectation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Literal

from pydantic import BaseModel, ConfigDict

COUNTS = ("num_", "kernel_log_notes")
COUNTED = ("GPUs",)
TRACE_COLLECTION = "[trace collection]"
COMMUNICATION = "[evidence] (check=communication)"
STEP_LOG = "[evidence] (check=step_log)"

State = Literal["passed", "failed", "warned", "not_judged"]
Account = Literal["cluster", "rig", "workload", "config"]
GateKind = Literal["max", "min", "within"]
Over = Literal["mean", "max", "min", "each"]
_RANKS: dict[Over, str] = {"mean": "", "max": ", largest rank", "min": ", smallest rank", "each": ", each rank"}
UNMEASURED = frozenset[Account]({"rig", "config"})  # a failure on such an account says nothing about the cluster


class Bound(BaseModel):
    """The limit a value is held against, in the unit of the value; `over` says of which ranks that is."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: GateKind
    limit: float
    tolerance: float | None = None
    unit: str = ""
    over: Over = "mean"

    def __str__(self) -> str:
        """Give the bound as reports print it: `max 12000 ms`, `within 5 ± 0.1`, `max 20 ms, each rank`."""
        spread = f" ± {self.tolerance:g}" if self.tolerance is not None else ""
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.kind} {_plain(self.limit)}{spread}{unit}{_RANKS[self.over]}"


class Check(BaseModel):
    """One thing measured against one expectation.

    `label` is the sub-test's name (`[threshold] (metric=min_overlap_ratio)`), `reason` one sentence that says why it
    failed, warned or was not judged, `next_step` what a person should do. A check that is not `subtest` is shown in
    the stage's row only. `fault` says on whose account a failure goes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    label: str
    state: State
    reason: str = ""
    actual: float | None = None
    unit: str = ""
    gate: Bound | None = None
    host: str | None = None
    fault: Account = "cluster"
    next_step: str = ""
    subtest: bool = True

    @property
    def blames_host(self) -> bool:
        """Tell whether the cluster's account is charged with one host by this failure.

        A rank that misses a limit blames none: it may be another one that it waits for.
        """
        return self.failed and self.fault == "cluster" and self.gate is None and bool(self.host)

    @property
    def failed(self) -> bool:
        """Tell whether the measurement is bad."""
        return self.state == "failed"

    @property
    def unmeasured(self) -> bool:
        """Tell whether a limit was missed only because nothing was measured that could be held against it."""
        return self.failed and self.gate is not None and self.actual is None

    @property
    def excess(self) -> float:
        """How hard a gate's value leans on its limit, so that of many ranks the one that matters is told."""
        if self.gate is None:
            return 0.0
        if self.actual is None:
            return math.inf
        over = self.actual - self.gate.limit
        return {"max": over, "min": -over, "within": abs(over)}[self.gate.kind]

    @property
    def gate_name(self) -> str:
        """Give the name of the threshold or metric that a gate is about, without the rank that it was held against."""
        return self.label.partition("metric=")[2].removesuffix(")").partition(", rank=")[0]

    @property
    def actual_text(self) -> str:
        """Give the measured value with its unit: `20.00 ms`, `0.5000`, a count as `12`, or `n/a`."""
        return show(self.actual, self.unit, self.label.partition("metric=")[2])

    def line(self) -> str:
        """Give the check as one line, as in JUnit properties: label, outcome, actual, gate, reason."""
        parts = [f"{self.label}: {'failed' if self.failed else 'passed'}"]
        if self.gate is not None:
            parts += [f"actual={self.actual_text}", f"gate={self.gate}"]
        if self.reason:
            parts.append(self.reason)
        return "; ".join(parts)


def worst_first(checks: Iterable[Check]) -> Iterator[Check]:
    """Give the failed checks in their order, but of the ranks of one gate the worst first."""
    failed = (check for check in checks if check.failed)
    for _, ranks in groupby(failed, lambda check: (check.gate_name, check.gate)):
        yield from sorted(ranks, key=lambda check: -check.excess)


def show(value: float | None, unit: str, name: str = "") -> str:
    """Format a value with its unit: ratios (no unit) with four decimals, everything else with two, `n/a` for None.

    `name` is the metric's: a count is written as one, and so is a number of things.
    """
    if value is None:
        return "n/a"
    if name.startswith(COUNTS) or unit in COUNTED:
        number = f"{value:.0f}" if value == int(value) else f"{value:.1f}"
        return f"{number} {unit}" if unit else number
    return f"{value:.2f} {unit}" if unit else f"{value:.4f}"


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else repr(value)
