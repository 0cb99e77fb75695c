"""Output: what lies where below the output folder."""

from __future__ import annotations

from pathlib import Path

from aorta_train.job import Job

FLIGHT_RECORDER = "flight_recorder"


def step_lines(output_dir: Path, job: Job) -> Path:
    """Give the file of a rank's step lines."""
    return output_dir / f"rank_{job.rank:02d}_metrics.jsonl"


def trace_folder(output_dir: Path, job: Job) -> Path:
    """Give the folder of a rank's traces."""
    return output_dir / "torch_profiler" / f"rank{job.rank}"
