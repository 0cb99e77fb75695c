"""The model of a report: what is drawn, as plain data, whoever draws it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_aorta.checks import Check
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.hints import Hint

Outcome = Literal["passed", "failed", "skipped", "not_run", "interrupted"]
RunVerdict = Literal["passed", "failed", "could_not_measure", "interrupted"]
StageVerdict = Literal["passed", "failed", "could_not_measure", "interrupted", "skipped", "not_run"]
Fault = Literal["none", "cluster", "rig", "workload", "config"]

COULD_NOT_MEASURE = "could not measure"
PRIOR_FAILURE = "a prior lifecycle stage failed"
_THRESHOLD_LABEL = re.compile(r"^\[threshold\] \(metric=(?P<name>[^)]*)\)$")


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage as reports show it.

    `log_sections` are (title, text) pairs that stand in the stage's log page before what pytest captured; `hint` is
    what its failure probably comes from, where that is known.
    """

    name: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    checks: tuple[Check, ...] = ()
    log_sections: tuple[tuple[str, str], ...] = ()
    hint: Hint | None = None

    @property
    def verdict(self) -> StageVerdict:
        """Tell a bad measurement from one that could not be made."""
        if self.outcome == "failed" and self.reason.startswith(COULD_NOT_MEASURE):
            return "could_not_measure"
        return self.outcome

    @property
    def subtests(self) -> tuple[Check, ...]:
        """Give the checks that are sub-tests, in order."""
        return tuple(check for check in self.checks if check.subtest)


@dataclass(frozen=True, slots=True)
class RunView:
    """One run as reports show it.

    `suite` names the files (`aorta_single`), `environment` holds (name, value, link or ""), `paths` (label, path);
    `drain` are the commands that take hosts that failed out of a Slurm cluster. `checks_before` are those of the run
    itself that a later judging did not make again.
    """

    run_id: str
    suite: str
    verdict: RunVerdict
    sentence: str
    stages: tuple[StageRow, ...] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    environment: tuple[tuple[str, str, str], ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    next_step: str = ""
    first_cause: str = ""
    not_judged: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hint: Hint | None = None
    drain: tuple[str, ...] = ()
    checks_before: tuple[Check, ...] = ()

    @property
    def checks(self) -> tuple[Check, ...]:
        """Give the checks of all stages, in run order."""
        return tuple(check for stage in self.stages for check in stage.checks)

    @property
    def untold(self) -> tuple[str, ...]:
        """Give what was not judged and is not named by the sentence already."""
        return tuple(one for one in self.not_judged if one not in self.sentence)

    @property
    def gates(self) -> tuple[Check, ...]:
        """Give the checks that hold a value against a limit, in run order."""
        return tuple(check for check in self.checks if check.gate is not None)


def without_cause(reason: str) -> str:
    """Give a reason without the cause of an earlier stage's failure, which stands at that stage: its name is enough."""
    if not reason.startswith(PRIOR_FAILURE):
        return reason
    return ": ".join(reason.split(": ")[:2])


def title(suite: str) -> str:
    """Give the suite's name as a heading: `aorta_single` is `Aorta single`."""
    return suite.replace("_", " ").capitalize()


def short_label(check: Check) -> str:
    """Give a gate's bare name where a column says that it is a gate: `[threshold] (metric=x)` is `x`."""
    match = _THRESHOLD_LABEL.match(check.label)
    return match["name"] if match else check.label
