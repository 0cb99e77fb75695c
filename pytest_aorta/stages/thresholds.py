"""test_validate_thresholds: hold every configured gate against the run's metrics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import Fault, StageError
from pytest_aorta.gates.rules import Rule
from pytest_aorta.gates.thresholds import gate, judge_all, rules, tally
from pytest_aorta.ranks import place_of
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.gating import NotNeeded, Step
from pytest_aorta.run.products import Result, Verdicts


def validate_thresholds(run: RunContext, result: Result) -> Verdicts:
    """Judge all gates before any of them is reported, so that none is lost."""
    try:
        metrics = run.folder.read_metrics()
    except (OSError, ValueError, KeyError) as error:
        raise StageError(f"{run.folder.metrics} cannot be read ({error}); select test_parse_results too") from error
    checks = judge_all(all_rules(run.settings), metrics, host_of=partial(_host_of, run.settings))
    return Verdicts(
        enforced=True,
        checks=checks,
        failure=tally(checks) if any(check.failed for check in checks) else "",
    )


def _host_of(settings: Settings, rank: int) -> str | None:
    return place_of(rank, [host.name for host in settings.hosts], settings.ranks_per_host)[0]


def all_rules(settings: Settings) -> tuple[Rule, ...]:
    """Give the documented thresholds in table order, then the gates as configured."""
    gates = tuple(gate(g.metric, g.kind, g.value, tolerance=g.tolerance, over=g.over) for g in settings.config.gates)
    return (*rules(settings.thresholds.model_dump()), *gates)


def not_enforced(settings: Settings) -> NotNeeded | None:
    """The configuration records without judging."""
    if settings.config.enforce_thresholds:
        return None
    reason = "enforce_thresholds=false; metrics are recorded without threshold assertions"
    return NotNeeded(reason, Verdicts(enforced=False))


def without_limit(settings: Settings) -> Iterator[Fault]:
    """Give the fault of a configuration that enforces limits none of which can fail: its green would say nothing."""
    judged = all_rules(settings)
    if settings.config.enforce_thresholds and judged and all(rule.cannot_fail for rule in judged):
        yield Fault(
            "enforce_thresholds", f"seen true, but {judged[0].cannot_fail}; set a limit that can fail, or false"
        )


def plan(settings: Settings) -> Iterator[Step]:
    """Say which gates would be judged."""
    for rule in all_rules(settings):
        yield Step("here", f"{rule.label_key}: {rule.kind} {rule.limit:g}")
