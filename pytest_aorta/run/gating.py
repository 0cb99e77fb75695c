"""Gating: a row of the stage table, and the rules by which one stage follows another."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from pytest_aorta.checks import UNMEASURED, Account, Check
from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import AortaError, ContainerError, Defect, FleetError, HostError, Misnamed, StoodStill
from pytest_aorta.hostlist import told
from pytest_aorta.reporting.model import PRIOR_FAILURE
from pytest_aorta.reporting.text import clean, cut_middle
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.defects import guarded
from pytest_aorta.run.evidence import weigh
from pytest_aorta.run.interruption import Interrupted
from pytest_aorta.run.products import Product
from pytest_aorta.run.record import FailureKind, StageRecord, now, seconds_since
from pytest_aorta.run.secrecy import cleaned

log = logging.getLogger("pytest_aorta")

_BLAMELESS = (StoodStill, Defect)  # errors of this machine that came while a host was asked

Suite = Literal["single", "distributed"]
BOTH: tuple[Suite, ...] = ("single", "distributed")

COULD_NOT_MEASURE = "could not measure: "
MEASURED_BAD = "measured, bad: "
MAX_REASON_CHARS = 4000


class AfterFailure(Enum):
    """What a stage does once an earlier one has failed."""

    SKIP = "skip"
    RECOVER = "run if what it needs exists"
    ALWAYS = "run"


@dataclass(frozen=True, slots=True)
class NotNeeded:
    """A configuration does without the stage: why, and what stands in for its product."""

    reason: str
    stand_in: Product


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a stage would do on one host, for the dry run."""

    host: str
    text: str


SkipRule = Callable[[Settings], NotNeeded | None]
Plan = Callable[[Settings], Iterable[Step]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row of the table: a stage test, its function, and what it needs and gives.

    `without` says when a configuration does without it. `absent` is the skip reason when what it needs was never made
    although nothing failed; without it such a stage fails and names the stage to select.
    """

    test: str
    label: str
    does: Callable[..., Product]
    needs: tuple[type[Product], ...] = ()
    gives: type[Product]
    after_failure: AfterFailure = AfterFailure.SKIP
    without: SkipRule | None = None
    suites: tuple[Suite, ...] = BOTH
    absent: str | None = None
    plan: Plan

    @property
    def rejudges(self) -> bool:
        """Tell whether a stored run is enough for it: it needs files only, nothing live."""
        return bool(self.needs) and all(need.stored for need in self.needs)


def check_table(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return `stages`, or raise TypeError with one sentence at the first row that cannot work."""
    given: set[type[Product]] = set()
    seen: set[str] = set()
    for stage in stages:
        if stage.test in seen:
            raise TypeError(f"{stage.test}: two rows have this name")
        seen.add(stage.test)
        does = getattr(stage.does, "__name__", repr(stage.does))
        signature = inspect.signature(stage.does, eval_str=True)
        wants = tuple(p.annotation for p in signature.parameters.values())
        if wants != (RunContext, *stage.needs):
            shown = ", ".join([RunContext.__name__, *(kind.__name__ for kind in stage.needs)])
            raise TypeError(f"{stage.test}: its row says ({shown}), but {does} takes {signature}")
        if signature.return_annotation is not stage.gives:
            raise TypeError(f"{stage.test}: its row gives {stage.gives.__name__}, but {does} does not")
        if missing := [need.__name__ for need in stage.needs if need not in given]:
            raise TypeError(f"{stage.test}: no earlier row gives {', '.join(missing)}")
        given.add(stage.gives)
    return tuple(stages)


class Pipeline:
    """Performs stages one at a time, remembers how each went, and decides what may still be done.

    `absence` says why a product may be missing, where that is not the selection of stages.
    """

    def __init__(self, run: RunContext, table: Sequence[Stage], *, absence: str = "") -> None:
        self.run = run
        self.table = table
        self._absence = absence
        self.outcomes: dict[str, StageRecord] = {}
        for stage in table:
            if run.settings.suite not in stage.suites and stage.without and (rule := stage.without(run.settings)):
                run.products[stage.gives] = rule.stand_in

    @property
    def first_failure(self) -> StageRecord | None:
        """The first stage that failed or was interrupted: the root cause of every later skip."""
        return next((o for o in self.outcomes.values() if o.outcome in {"failed", "interrupted"}), None)

    def perform(self, stage: Stage) -> StageRecord:
        """Do one stage, or say why not; asked again it gives the same outcome. Raises only a second interruption."""
        if stage.test in self.outcomes:
            return self.outcomes[stage.test]
        begun, start = now(), time.monotonic()
        try:
            outcome = self._gate(stage) or self._attempt(stage, start)
        except BaseException as error:  # another plugin's doing, such as a time limit of its own
            reason = f"ended from outside after {time.monotonic() - start:.0f} s: {error or type(error).__name__}"
            outcome = StageRecord(name=stage.test, outcome="interrupted", reason=reason, failure="unmeasured")
            self._record(stage, outcome, begun, start)
            raise
        return self._record(stage, outcome, begun, start)

    def _record(self, stage: Stage, outcome: StageRecord, begun: str, start: float) -> StageRecord:
        outcome = outcome.model_copy(update={"seconds": seconds_since(start), "started": begun})
        said = cleaned(outcome.model_dump(mode="json"), self.run.folder.secrets)
        return self._keep(stage, StageRecord.model_validate(_legible(said)))

    def _gate(self, stage: Stage) -> StageRecord | None:
        cause = self.first_failure
        missing = [need for need in stage.needs if not self._has(need)]
        if cause is not None and stage.after_failure is not AfterFailure.ALWAYS:
            recovers = stage.after_failure is AfterFailure.RECOVER and not missing
            if not recovers:
                return _skipped(stage, f"{PRIOR_FAILURE}: {cause.name}: {bare(cause.reason)}")
        if stage.without and (rule := stage.without(self.run.settings)):
            self.run.give(rule.stand_in)
            return _skipped(stage, rule.reason)
        if missing and stage.absent:
            return _skipped(stage, stage.absent)
        if missing:
            givers = {row.gives: row.test for row in self.table}
            names = ", ".join(givers[need] for need in missing)
            absence = self._absence or "which was not selected; select it too, or drop -k"
            sentence = f"it needs what {names} gives, {absence}"
            return _failed(stage, COULD_NOT_MEASURE + sentence, "unmeasured")
        return None

    def _has(self, kind: type[Product]) -> bool:
        product = self.run.products.get(kind)
        return product is not None and product.usable

    def _attempt(self, stage: Stage, start: float) -> StageRecord:
        return guarded(stage.test, lambda: self._do(stage, start), lambda error: _defect(stage, error))

    def _do(self, stage: Stage, start: float) -> StageRecord:
        try:
            self.run.progress(stage.test)
            with self.run.interruption.let_in():
                log.info("%s begins", stage.test)
                product = stage.does(self.run, *(self.run.products[need] for need in stage.needs))
            weighed = tuple(weigh(product.checks, self.run.settings.config.evidence))
            product = product.model_copy(update={"checks": weighed})
            with self.run.interruption.held():
                self.run.give(product)
        except Interrupted as interrupted:
            reason = f"{interrupted} after {time.monotonic() - start:.0f} s"
            log.warning("%s: %s", stage.test, reason)
            return StageRecord(name=stage.test, outcome="interrupted", reason=reason, failure="unmeasured")
        except (AortaError, OSError) as error:
            log.error("%s: %s", stage.test, error)
            failed = _failed(stage, COULD_NOT_MEASURE + _sentence(error), "unmeasured")
            return failed.model_copy(update={"checks": tuple(_by_host(stage, error))})
        return _judged(stage, product)

    def _keep(self, stage: Stage, outcome: StageRecord) -> StageRecord:
        self.outcomes[stage.test] = outcome
        try:
            with self.run.interruption.held():
                self.run.record.stage(outcome)
        except OSError as error:
            if outcome.outcome != "failed":
                outcome = _failed(stage, f"{COULD_NOT_MEASURE}run.json: {_sentence(error)}", "unmeasured")
                self.outcomes[stage.test] = outcome
        except Interrupted as interrupted:
            outcome = outcome.model_copy(
                update={
                    "outcome": "interrupted",
                    "failure": "unmeasured",
                    "reason": f"{interrupted} as the stage ended",
                }
            )
            self.outcomes[stage.test] = outcome
        return outcome


def _judged(stage: Stage, product: Product) -> StageRecord:
    failed = [check for check in product.checks if check.failed]
    warned = tuple(check.reason for check in product.checks if check.state == "warned")
    notes = (*warned, *product.notes)
    whole = StageRecord(name=stage.test, outcome="passed", checks=product.checks, notes=notes)
    if not failed:
        return whole
    sentence = product.failure or told((check.host, check.reason or check.label) for check in failed)
    rig = all(check.fault in UNMEASURED for check in failed)
    reason = (COULD_NOT_MEASURE if rig else MEASURED_BAD) + sentence
    return whole.model_copy(
        update={"outcome": "failed", "reason": reason, "failure": "unmeasured" if rig else "measured"}
    )


def _legible(value: Any) -> Any:
    """Give a document without terminal sequences in its texts, each of them of a length that can be read."""
    if isinstance(value, str):
        return cut_middle(clean(value), MAX_REASON_CHARS)[0]
    if isinstance(value, dict):
        return {name: _legible(child) for name, child in value.items()}
    return [_legible(child) for child in value] if isinstance(value, list) else value


def _skipped(stage: Stage, reason: str) -> StageRecord:
    return StageRecord(name=stage.test, outcome="skipped", reason=reason)


def _failed(stage: Stage, reason: str, kind: FailureKind) -> StageRecord:
    return StageRecord(name=stage.test, outcome="failed", reason=reason, failure=kind)


def _defect(stage: Stage, error: Exception) -> StageRecord:
    sentence = f"{type(error).__name__}: {error}; this is a defect of pytest-aorta, the log has its traceback"
    return _failed(stage, COULD_NOT_MEASURE + sentence, "unmeasured")


def _by_host(stage: Stage, error: AortaError | OSError) -> Iterator[Check]:
    """Give what failed on which hosts: the sentence is for people, the verdict names hosts to programs."""
    causes: dict[str, str] = {}
    if isinstance(error, FleetError):
        causes = {host: str(each) for host, each in error.by_host.items() if not isinstance(each, _BLAMELESS)}
    elif isinstance(error, ContainerError):
        causes = {host: f"{host}: {why}" for host, why in error.by_host.items()}
    elif isinstance(error, HostError) and not isinstance(error, _BLAMELESS):
        causes = {error.host: str(error)}
    misnamed = isinstance(error, FleetError) and all(isinstance(each, Misnamed) for each in error.by_host.values())
    fault: Account = "config" if misnamed else "rig"
    for host, cause in causes.items():
        label = f"[{stage.label}] (host={host})"
        yield Check(label=label, state="failed", fault=fault, host=host, subtest=False, reason=cause)


def bare(reason: str) -> str:
    """Give a reason without the words that tell a bad measurement from none."""
    return reason.removeprefix(COULD_NOT_MEASURE).removeprefix(MEASURED_BAD)


def _sentence(error: AortaError | OSError) -> str:
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        elsewhere = ", or set TMPDIR to another folder" if "temporary directory" in str(error) else ""
        return f"{where}{error.strerror or error}; free space or permissions on this machine{elsewhere}, then run again"
    return str(error)
