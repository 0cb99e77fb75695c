"""The record: run.json, rewritten atomically after each stage."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_aorta.checks import Check
from pytest_aorta.errors import ConfigError
from pytest_aorta.run.folder import RunFolder, read_regular
from pytest_aorta.run.machine import Machine, hostname, is_here, start_ticks, this_machine
from pytest_aorta.run.products import Product, revive

NOT_UNDONE = "could not be undone: "
Outcome = Literal["passed", "failed", "skipped", "interrupted"]
Verdict = Literal["passed", "failed", "could_not_measure", "interrupted"]
FailureKind = Literal["measured", "unmeasured"]
Presence = Literal["finished", "running", "abandoned", "elsewhere"]


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
    """A later judging of the stored run; `judged_by` names the file of its limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: str
    judged_by: str = ""
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
    machine_ids: Machine = Machine()
    started_in: str
    config: dict[str, Any]
    inputs: dict[str, str] = {}
    reports: dict[str, str] = {}
    environment: dict[str, str] = {}
    hosts: dict[str, HostRecord] = {}
    stages: dict[str, StageRecord] = {}
    products: dict[str, dict[str, Any]] = {}
    closing: tuple[str, ...] = ()
    uncleaned: tuple[str, ...] = ()
    judgements: tuple[Judgement, ...] = ()

    @property
    def is_here(self) -> bool:
        """Tell whether this machine ran the run's pytest, so that what it said of its processes can be checked."""
        return is_here(self.machine, self.machine_ids)

    @property
    def presence(self) -> Presence:
        """Tell whether the run was closed; if not, whether its pytest runs, is gone, or cannot be seen from here."""
        if self.finished is not None:
            return "finished"
        if not self.is_here:
            return "elsewhere"
        return "running" if start_ticks(self.pid) == self.pid_start_ticks else "abandoned"

    @property
    def state(self) -> str:
        """The verdict, or `running`, `abandoned`, or `elsewhere`."""
        presence = self.presence
        return self.verdict or "closed" if presence == "finished" else presence

    @property
    def remark(self) -> str:
        """What a person should know of a run that left something behind or may still run; else empty."""
        if self.presence == "elsewhere":
            return (
                f"begun on {self.machine} as pid {self.pid} and never closed; from {hostname()} it cannot be seen "
                "whether that still runs"
            )
        if self.uncleaned:
            return f"not cleaned up on {', '.join(self.uncleaned)}; run `aorta clean {self.run_id}`"
        return ""

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
                machine=hostname(),
                machine_ids=this_machine(),
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

    def not_cleaned(self, hosts: Collection[str]) -> None:
        """Note which hosts a clean-up failed on; none named: any of them. `aorta clean` takes the run up for these.

        Nothing is written yet: cleaning up must go on whatever the disk says.
        """
        known = self.document.hosts
        named = {*self.document.uncleaned, *(hosts or known)}
        self.document.uncleaned = tuple(host for host in known if host in named)

    def closed(self, done: tuple[str, ...], problems: tuple[str, ...]) -> None:
        """Note what the session's end undid because no teardown stage had, and what it could not."""
        self.document.closing = (*done, *(NOT_UNDONE + problem for problem in problems))
        if problems and not self.document.uncleaned:
            self.not_cleaned(())

    def close(self, verdict: Verdict, sentence: str, reports: Mapping[str, str] | None = None) -> None:
        """Close the record; `reports` are the paths of the session's reports by label."""
        self.document.reports = dict(reports or {})
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

    def not_cleaned(self, hosts: Collection[str]) -> None:
        """Leave it alone: a later judging has nothing on any host."""

    def closed(self, done: tuple[str, ...], problems: tuple[str, ...]) -> None:
        """Leave alone how the run's own session ended."""


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
        raise ConfigError(f"{folder.record} is damaged: {_first_fault(error)}") from error
    except RecursionError as error:
        raise ConfigError(f"{folder.record} is damaged: nested too deeply") from error


def is_run_folder(path: str | Path) -> bool:
    """Tell whether a run's record lies in a folder; a path that no folder can have, as one too long, is none."""
    try:
        return (Path(path) / "run.json").is_file()
    except (OSError, ValueError):
        return False


def find_runs(output_dir: Path) -> list[RunFolder]:
    """Give the run folders below `output_dir`, oldest first."""
    return [RunFolder(path.parent) for path in sorted(output_dir.glob("*/run.json"))]


def now() -> str:
    """Give the time of day in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def seconds_since(start: float) -> float:
    """Give the seconds since a `time.monotonic()`, to the millisecond."""
    return round(time.monotonic() - start, 3)


def _first_fault(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"[:400]
