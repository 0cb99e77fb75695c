"""The torch profiler: a finite schedule, one export a cycle, a name of its own for each.

Without a `repeat` torch starts the schedule over, and leaving the profiler inside the second cycle writes an empty
trace over the first; a second export of one profile raises, so the second file is a copy.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import shutil
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule

from aorta_train.job import Job
from aorta_train.options import Options, Profiling
from aorta_train.output import trace_folder
from aorta_train.refusal import TrainingFailed
from aorta_train.rules import cycle_steps

log = logging.getLogger("aorta.profiler")


class Recorder:
    """Profiles some steps of a run and writes their traces to `<output_dir>/torch_profiler/rank<R>/`."""

    def __init__(self, options: Options, job: Job, kind: str, output_dir: Path) -> None:
        self._options = options.profiling
        self._cycle_steps = cycle_steps(options)
        self._folder = trace_folder(output_dir, job)
        self._kind = kind
        self._names_chrome = self._options.chrome_trace and (kind != "rocm" or self._options.force_chrome_trace)
        self._profile: profile | None = None
        if self._options.enabled:
            if self._options.chrome_trace and not self._names_chrome and job.local_rank == 0:
                log.warning(
                    "profiling.trace_filename is not used on ROCm: the trace is named as with profiling.tensorboard; "
                    "profiling.force_chrome_trace=true uses it"
                )
            self._folder.mkdir(parents=True, exist_ok=True)
            self._profile = self._make_profile()

    def __enter__(self) -> Recorder:  # noqa: PYI034  (Self needs Python 3.11)
        """Begin the schedule."""
        if self._profile:
            self._profile.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the schedule; a cycle that is being recorded is exported as far as it came.

        After an error not on a GPU: torch waits for it then, and it may wait for collectives that no rank will join.
        """
        if not self._profile or (error is not None and self._kind != "cpu"):
            return
        try:
            self._profile.stop()
        except TrainingFailed as failure:
            if error is None:
                raise
            log.error("%s", failure)  # what went wrong before is what ends the run

    def end_step(self) -> None:
        """Tell the profiler that a step is over; exports after the last step of a cycle."""
        if self._profile:
            self._profile.step()

    def is_busy(self, global_step: int) -> bool:
        """Say whether the profiler warms up, records, or exports within a step (counted from 1)."""
        if not self._profile:
            return False
        index = global_step - 1
        cycle, position = divmod(index, self._cycle_steps)
        exports = index > 0 and position == 0 and cycle <= self._options.repeat
        return exports or (cycle < self._options.repeat and position >= self._options.wait)

    def _make_profile(self) -> profile:
        options = self._options
        activities = [ProfilerActivity.CPU]
        if self._kind != "cpu":
            activities.append(ProfilerActivity.CUDA)
        return profile(
            activities=activities,
            schedule=schedule(wait=options.wait, warmup=options.warmup, active=options.active, repeat=options.repeat),
            on_trace_ready=self._export,
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_flops=options.with_flops,
        )

    def _export(self, finished: Any) -> None:
        try:
            self._write(finished)
        except OSError as error:
            for partial in self._folder.glob(".*.partial*"):
                partial.unlink(missing_ok=True)
            raise TrainingFailed(
                f"the trace cannot be written to {self._folder}: {error.strerror}; free space, or record less"
            ) from None

    def _write(self, finished: Any) -> None:
        """Write each file under a name that no reader takes for a trace, then give it its own."""
        suffix = ".gz" if self._options.gzip else ""
        names = [name + suffix for name in self._names(finished.step_num)]
        raw = self._folder / ".trace.partial"
        finished.export_chrome_trace(str(raw))
        if not raw.is_file() or not raw.stat().st_size:
            raise OSError(errno.ENOSPC, "the profiler wrote none; is the disk full?")
        if self._options.gzip:
            raw = _compress(raw)
        for name in names[1:]:
            copy = self._folder / f".{name}.partial"
            shutil.copyfile(raw, copy)
            copy.replace(self._folder / name)
        raw.replace(self._folder / names[0])
        log.info("trace written: %s", ", ".join(str(self._folder / name) for name in names))

    def _names(self, step: int) -> list[str]:
        names = []
        if self._options.tensorboard or not self._names_chrome:
            names.append(f"{socket.gethostname()}_{os.getpid()}.{time.time_ns()}.pt.trace.json")
        if self._names_chrome:
            names.append(_name_of_cycle(self._options, step))
        return names


def _name_of_cycle(options: Profiling, step: int) -> str:
    path = Path(options.trace_filename)
    return path.name if options.repeat == 1 else f"{path.stem}_step{step}{path.suffix}"


def _compress(raw: Path) -> Path:
    packed = raw.with_name(raw.name + ".gz")
    with raw.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    raw.unlink()
    return packed
