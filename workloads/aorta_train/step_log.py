"""What a rank writes: a JSON line a step to its file, a heartbeat on stdout from rank 0."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from aorta_train.job import Job
from aorta_train.meter import Reading
from aorta_train.output import step_lines
from aorta_train.peak import Peak
from aorta_train.refusal import TrainingFailed


@dataclass(frozen=True)
class Work:
    """What a token costs in operations, and how many of them the device can do."""

    flops_per_token: int
    peak: Peak

    def tflops_per_s(self, tokens: int, seconds: float) -> float | None:
        """Give the rate of the model's operations, in 10^12 a second."""
        return _rate(tokens * self.flops_per_token / 1e12, seconds)

    def utilization(self, tokens: int, seconds: float) -> float | None:
        """Give the share of one device's peak that the model's operations take, if the peak is known."""
        if self.peak.tflops is None or seconds <= 0:
            return None
        return round(tokens * self.flops_per_token / 1e12 / seconds / self.peak.tflops, 6)


class StepLog:
    """`rank_<NN>_metrics.jsonl`, made anew for each run, each line complete on disk as soon as its step is."""

    def __init__(self, output_dir: Path, job: Job, work: Work) -> None:
        self._job = job
        self._work = work
        self._path = step_lines(output_dir, job)
        with _written(self._path):
            self._file = self._path.open("w", encoding="utf-8", buffering=1)

    def __enter__(self) -> StepLog:  # noqa: PYI034  (Self needs Python 3.11)
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; what could not be written has been told."""
        with suppress(OSError):
            self._file.close()

    def write_step(self, reading: Reading, memory_peak_bytes: int) -> None:
        """Write one step; counts and rates are this rank's."""
        facts = reading.facts
        seconds = reading.step_ms / 1000
        line = {
            "rank": self._job.rank,
            "world_size": self._job.world_size,
            "epoch": facts.epoch,
            "step": facts.step,
            "global_step": facts.global_step,
            "loss": _finite(reading.loss),
            "grad_norm": _finite(reading.grad_norm),
            "lr": facts.learning_rate,
            "step_ms": round(reading.step_ms, 4),
            "samples": facts.samples,
            "tokens": facts.tokens,
            "samples_per_s": _rate(facts.samples, seconds),
            "tokens_per_s": _rate(facts.tokens, seconds),
            "model_flops": facts.tokens * self._work.flops_per_token,
            "model_tflops_per_s": self._work.tflops_per_s(facts.tokens, seconds),
            "utilization": self._work.utilization(facts.tokens, seconds),
            "profiled": facts.profiled,
            "memory_peak_bytes": memory_peak_bytes,
        }
        self._write(line if reading.profile is None else {**line, "profile": reading.profile})

    def write_end(self, end: dict[str, Any]) -> None:
        """Write the last line."""
        self._write({"final": True, "rank": self._job.rank, "world_size": self._job.world_size, **end})

    def _write(self, line: dict[str, Any]) -> None:
        with _written(self._path):
            self._file.write(json.dumps(line, allow_nan=False) + "\n")


def beat(reading: Reading, job: Job, max_steps: int, work: Work) -> None:
    """Print the heartbeat of one step, from rank 0; rates are the whole job's, whose ranks work alike."""
    if job.rank != 0:
        return
    facts = reading.facts
    seconds = reading.step_ms / 1000
    line = {
        "aorta": "step",
        "step": facts.global_step,
        "max_steps": max_steps,
        "loss": _finite(reading.loss),
        "step_ms": round(reading.step_ms, 3),
        "samples_per_s": _rate(facts.samples * job.world_size, seconds),
        "tokens_per_s": _rate(facts.tokens * job.world_size, seconds),
        "model_tflops_per_s": work.tflops_per_s(facts.tokens * job.world_size, seconds),
        "utilization": work.utilization(facts.tokens, seconds),
    }
    with _written("the heartbeat on stdout"):
        sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
        sys.stdout.flush()


@contextmanager
def _written(what: object) -> Iterator[None]:
    """Turn an error of writing into one sentence.

    Raises:
        TrainingFailed: something could not be written inside.
    """
    try:
        yield
    except OSError as error:
        raise TrainingFailed(f"{what} cannot be written: {error.strerror}; free space, or write elsewhere") from None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rate(count: float, seconds: float) -> float | None:
    return round(count / seconds, 3) if seconds > 0 else None
