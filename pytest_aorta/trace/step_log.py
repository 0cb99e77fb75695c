"""Step log: the workload's own line a step, and the performance of the steps that no profiler slowed down."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

_FILE = re.compile(r"rank_[0-9]{1,9}_metrics\.jsonl")
_MAX_LINE_BYTES = 1 << 20
_MAX_AMOUNT = 1e15  # beyond it nothing that is counted or timed here can lie
_MIN_STEP_MS = 1e-6

MIN_STEADY_STEPS = 20
WARMUP_STEPS = 5
WARMUP_RATIO = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank; `samples` and `tokens` are this rank's, None where the workload does not count them."""

    number: int
    step_ms: float
    profiled: bool
    samples: float | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class StepLog:
    """What one rank logged. `final` is its last line (`exit`, `weights_checksum` ...), empty when it never came.

    `tells_profiled`: at least one line says whether its step was profiled. `num_bad_losses`: steps whose loss is told
    and is no finite number.
    """

    rank: int
    file: str
    world_size: int | None
    steps: tuple[Step, ...]
    final: Mapping[str, Any] = field(default_factory=dict)
    num_lost: int = 0
    tells_profiled: bool = True
    num_bad_losses: int = 0

    @property
    def numbers(self) -> set[int]:
        """Numbers of the steps that were told, each once."""
        return {step.number for step in self.steps}

    @property
    def repeated(self) -> tuple[int, ...]:
        """Numbers of steps that were told more than once, in their order."""
        return tuple(sorted(number for number, times in Counter(s.number for s in self.steps).items() if times > 1))

    @property
    def weights_checksum(self) -> str | None:
        """Checksum of the rank's weights at the end, equal on all ranks of a sound run."""
        checksum = self.final.get("weights_checksum")
        return None if checksum is None else str(checksum)


@dataclass(frozen=True, slots=True)
class Performance:
    """How fast the job trained in its steady steps; None where not measured, `why` then says so.

    `profiled_unknown`: no rank says which steps were profiled, so profiled ones may be among the steady.
    A step lasts as long as its slowest rank: `step_time_ms_*` are over steps, of the maximum over ranks.
    `rank_step_time_ms_median` is each rank's own median, by rank. `samples_per_second` is of the job,
    `tokens_per_second_per_gpu` of one rank, both at the median step.
    """

    num_steps: int
    num_steady_steps: int
    num_ranks: int
    step_time_ms_median: float | None = None
    step_time_ms_p95: float | None = None
    step_time_ms_max: float | None = None
    samples_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    rank_step_time_ms_median: tuple[tuple[int, float], ...] = ()
    profiled_unknown: bool = False
    why: str = ""


def read_step_logs(root: Path) -> tuple[StepLog, ...]:
    """Read every `rank_<n>_metrics.jsonl` below a folder, by rank; copies of one log are given once.

    A line that cannot be read, such as a last one cut by the end of its process, is counted in `num_lost`.
    """
    logs: dict[tuple[int, tuple[Step, ...]], StepLog] = {}
    for path in sorted(_files(root)):
        log = _read(path, path.relative_to(root).as_posix())
        logs.setdefault((log.rank, log.steps), log)
    return tuple(sorted(logs.values(), key=lambda log: (log.rank, log.file)))


def performance(logs: Sequence[StepLog]) -> Performance:
    """Give the performance of the steady steps, which every rank logged.

    Not steady: a step that any rank's profiler recorded, warmed up for or exported in, the step after it, and warm-up:
    the first 5 steps or the first 10 %, whichever is more. Fewer than 20 steady steps are not enough to judge.
    """
    by_number = [{step.number: step for step in log.steps} for log in logs]
    numbers = sorted(set.intersection(*(set(steps) for steps in by_number))) if logs else []
    steady = _steady(numbers, {step.number for log in logs for step in log.steps if step.profiled})
    found = Performance(
        num_steps=len(numbers),
        num_steady_steps=len(steady),
        num_ranks=len(logs),
        profiled_unknown=not any(log.tells_profiled for log in logs),
    )
    why = _why_not_measured(logs, found)
    if why:
        return replace(found, why=why)
    rows = [[steps[number] for number in steady] for steps in by_number]
    step_ms = np.array([[step.step_ms for step in row] for row in rows])
    slowest_ms = step_ms.max(axis=0)
    median_ms = float(np.median(slowest_ms))
    samples = _mean([step.samples for row in rows for step in row])
    tokens = _mean([step.tokens for row in rows for step in row])
    return replace(
        found,
        step_time_ms_median=median_ms,
        step_time_ms_p95=float(np.percentile(slowest_ms, 95)),
        step_time_ms_max=float(slowest_ms.max()),
        samples_per_second=None if samples is None else samples * len(logs) * 1000 / median_ms,
        tokens_per_second_per_gpu=None if tokens is None else tokens * 1000 / median_ms,
        rank_step_time_ms_median=tuple(
            (log.rank, float(median)) for log, median in zip(logs, np.median(step_ms, axis=1), strict=True)
        ),
    )


def _steady(numbers: Sequence[int], profiled: set[int]) -> list[int]:
    num_warmup = max(WARMUP_STEPS, math.ceil(len(numbers) * WARMUP_RATIO))
    return [number for number in numbers[num_warmup:] if not {number, number - 1} & profiled]


def _why_not_measured(logs: Sequence[StepLog], found: Performance) -> str:
    if not logs:
        return "no step log (rank_<n>_metrics.jsonl) was found where the traces are looked for"
    repeated = sorted(rank for rank, count in Counter(log.rank for log in logs).items() if count > 1)
    if repeated:
        files = ", ".join(log.file for log in logs if log.rank == repeated[0])
        return f"rank {repeated[0]} has several different step logs ({files})"
    for log in logs:
        if log.repeated:
            return (
                f"{log.file} tells step {log.repeated[0]} more than once (of another run, or counted anew in each "
                "epoch); expected one line a step, counted by global_step"
            )
    world_size = max(log.world_size or 0 for log in logs)
    if len(logs) < world_size:
        return f"only {len(logs)} of {world_size} ranks wrote a step log"
    if found.num_steady_steps < MIN_STEADY_STEPS:
        return (
            f"{found.num_steady_steps} of {found.num_steps} steps are steady (outside the profiler's window and after "
            f"warm-up), at least {MIN_STEADY_STEPS} are needed"
        )
    return ""


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in names:
            path = Path(folder, name)
            if _FILE.fullmatch(name) and path.is_file() and not path.is_symlink():
                yield path


def _read(path: Path, name: str) -> StepLog:
    steps: list[Step] = []
    final: dict[str, Any] = {}
    world_size: int | None = None
    num_lost = num_bad_losses = 0
    tells_profiled = False
    with path.open("rb") as file:
        while line := file.readline(_MAX_LINE_BYTES):
            document = _document(line)
            if document is None:
                num_lost += bool(line.strip())
                continue
            world_size = _size(document.get("world_size")) if world_size is None else world_size
            step = _step(document)
            if document.get("final") is True:
                final = document
            elif step is not None:
                steps.append(step)
                tells_profiled = tells_profiled or isinstance(document.get("profiled"), bool)
                num_bad_losses += "loss" in document and _finite(document["loss"]) is None
            else:
                num_lost += 1
    rank = int(path.name.removeprefix("rank_").removesuffix("_metrics.jsonl"))
    return StepLog(rank, name, world_size, tuple(steps), final, num_lost, tells_profiled, num_bad_losses)


def _document(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _step(document: Mapping[str, Any]) -> Step | None:
    number = _count(document.get("global_step", document.get("step")))
    step_ms = _amount(document.get("step_ms"))
    is_possible = (_count(document.get("world_size")) or 0) <= _MAX_AMOUNT
    if number is None or step_ms is None or step_ms < _MIN_STEP_MS or not is_possible:
        return None
    return Step(
        number=number,
        step_ms=step_ms,
        profiled=document.get("profiled") is True,
        samples=_amount(document.get("samples")),
        tokens=_amount(document.get("tokens")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _size(value: object) -> int | None:
    size = _count(value)
    return size if size is not None and size <= _MAX_AMOUNT else None


def _amount(value: object) -> float | None:
    amount = _finite(value)
    return amount if amount is not None and 0 <= amount <= _MAX_AMOUNT else None


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None
