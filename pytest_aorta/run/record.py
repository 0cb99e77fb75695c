"""The record: run.json, rewritten atomically after each stage."""

from __future__ import annotations

import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_aorta.checks import Check
from pytest_aorta.errors import ConfigError
from pytest_aorta.run.folder import RunFolder, read_regular
from pytest_aorta.run.products import Product, revive

Outcome = Literal["passed", "failed", "skipped", "interrupted"]
Verdict = Literal["passed", "failed", "could_not_measure", "interrupted"]
FailureKind = Literal["measured", "unmeasured"]


class StageRecord(BaseModel):
    """How a stage went. `failure` tells a bad measurement from a measurement that could not be made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome
    reason: str = ""
    failure: FailureKind | None = None
    seconds: float = 0.0
    started: str = ""
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()


class HostRecord(BaseModel):
    """What must be known to clean a host up when everything else is lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    work_dir: str
    state_dir: str


class Judgement(BaseModel):
    """A later judging of the stored run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: str
    stages: tuple[StageRecord, ...]
    thresholds: dict[str, float | None]
    gates: tuple[dict[str, Any], ...]


class RunRecord(BaseModel):
    """The document run.json."""

    model_config = ConfigDict(extra="forbid", validate_assignment=False)

    schema_version: Literal[1] = 1
    run_id: str
    suite: Literal["single", "distributed"]
    plan: tuple[str, ...]
    created: str
    finished: str | None = None
    verdict: Verdict | None = None
    sentence: str = ""
    pid: int
    pid_start_ticks: int
    machine: str
    started_in: str
    config: dict[str, Any]
    inputs: dict[str, str] = {}
    environment: dict[str, str] = {}
    hosts: dict[str, HostRecord] = {}
    stages: dict[str, StageRecord] = {}
    products: dict[str, dict[str, Any]] = {}
    closing: tuple[str, ...] = ()
    judgements: tuple[Judgement, ...] = ()

    @property
    def abandoned(self) -> bool:
        """Tell whether the run was never closed although its pytest is gone (or on another machine)."""
        if self.finished is not None:
            return False
        return self.machine != platform.node() or start_ticks(self.pid) != self.pid_start_ticks

    @property
    def state(self) -> str:
        """The verdict, or `running`, or `abandoned`."""
        return self.verdict or ("abandoned" if self.abandoned else "running")

    def product(self, kind: type[Product]) -> Product | None:
        """Take up a stored product.

        Raises:
            ConfigError: run.json does not hold what it should.
        """
        document = self.products.get(kind.__name__)
        if document is None:
            return None
        try:
            return revive(kind.__name__, document)
        except ValidationError as error:
            raise ConfigError(f"run {self.run_id}: run.json's {kind.__name__} is damaged: {error}") from error


class RecordKeeper:
    """Keeps run.json in step with the run."""

    def __init__(self, folder: RunFolder, document: RunRecord) -> None:
        self.folder = folder
        self.document = document

    @classmethod
    def begin(
        cls,
        folder: RunFolder,
        *,
        suite: Literal["single", "distributed"],
        plan: tuple[str, ...],
        config: dict[str, Any],
        inputs: dict[str, str],
        environment: dict[str, str],
    ) -> RecordKeeper:
        """Start the record of a new run and write it."""
        keeper = cls(
            folder,
            RunRecord(
                run_id=folder.run_id,
                suite=suite,
                plan=plan,
                created=now(),
                pid=os.getpid(),
                pid_start_ticks=start_ticks(os.getpid()),
                machine=platform.node(),
                started_in=str(Path.cwd()),
                config=config,
                inputs=inputs,
                environment=environment,
            ),
        )
        keeper.write()
        return keeper

    def stage(self, outcome: StageRecord) -> None:
        """Keep a stage's outcome."""
        self.document.stages[outcome.name] = outcome
        self.write()

    def product(self, product: Product) -> None:
        """Keep a product that a later session may take up."""
        if product.stored:
            self.document.products[type(product).__name__] = product.model_dump(mode="json")
            self.write()

    def hosts(self, hosts: dict[str, HostRecord]) -> None:
        """Keep what is needed to clean the hosts up."""
        self.document.hosts = hosts
        self.write()

    def closed(self, done: tuple[str, ...], problems: tuple[str, ...]) -> None:
        """Note what the session's end undid because no teardown stage had, and what it could not."""
        self.document.closing = (*done, *(f"could not be undone: {problem}" for problem in problems))

    def close(self, verdict: Verdict, sentence: str) -> None:
        """Close the record."""
        self.document.verdict, self.document.sentence, self.document.finished = verdict, sentence, now()
        self.write()
        self.folder.reserve.unlink(missing_ok=True)

    def judged(self, judgement: Judgement) -> None:
        """Add a later judging; the run's own outcomes stay as they are."""
        self.document.judgements = (*self.document.judgements, judgement)
        self.write()

    def write(self) -> None:
        """Write run.json as it stands."""
        self.folder.write_document(self.folder.record, self.document.model_dump(mode="json"))


class JudgementKeeper(RecordKeeper):
    """Keeps nothing of a later judging but the judgement itself: the run's own outcomes stay as they are."""

    def stage(self, outcome: StageRecord) -> None:
        """Leave the run's stages alone."""

    def product(self, product: Product) -> None:
        """Leave the run's products alone."""

    def hosts(self, hosts: dict[str, HostRecord]) -> None:
        """Leave the run's hosts alone."""


def read(folder: RunFolder) -> RunRecord:
    """Read a run's record.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    try:
        return RunRecord.model_validate(json.loads(read_regular(folder.record)))
    except OSError as error:
        raise ConfigError(f"{folder.path} is no run folder: run.json cannot be read ({error.strerror})") from error
    except (ValueError, ValidationError) as error:
        raise ConfigError(f"{folder.record} is damaged: {str(error).splitlines()[0]}") from error


def find_runs(output_dir: Path) -> list[RunFolder]:
    """Give the run folders below `output_dir`, oldest first."""
    return [RunFolder(path.parent) for path in sorted(output_dir.glob("*/run.json"))]


def now() -> str:
    """Give the time of day in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def start_ticks(pid: int) -> int:
    """Give a process's start in clock ticks since boot, 0 when there is none: a pid with it is never mistaken.

    Source: proc_pid_stat(5), field 22.
    """
    try:
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def seconds_since(start: float) -> float:
    """Give the seconds since a `time.monotonic()`, to the millisecond."""
    return round(time.monotonic() - start, 3)
