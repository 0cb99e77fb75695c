"""One rank's run from the device to the last line."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Any

import torch

from aorta_train.checksum import checksum_of_weights
from aorta_train.compiling import outcome
from aorta_train.data import step_data
from aorta_train.device import device_of_rank, kind_of_device, name_of_device
from aorta_train.ending import leave_on_error
from aorta_train.group import close_group, open_group
from aorta_train.job import Job
from aorta_train.loop import Loop, Steps
from aorta_train.model import flops_per_token
from aorta_train.options import Options
from aorta_train.parallel.mode import Parallel, share_model
from aorta_train.precision import NAMES
from aorta_train.profiler import Recorder
from aorta_train.rules import num_steps
from aorta_train.step_log import StepLog
from aorta_train.stop import Agreement, StopSignals

log = logging.getLogger("aorta.session")


def run(options: Options, job: Job, output_dir: Path) -> int:
    """Train; gives the exit code: 0, or 128 + the signal that ended the run early.

    Raises:
        Refusal: the machine does not fit the options.
        TrainingFailed: a loss is no number.
    """
    kind = kind_of_device(options)
    device = device_of_rank(options, job, kind)
    open_group(job, kind, device, options.distributed.timeout_seconds)
    leave_on_error()
    agreement = Agreement(job)
    parallel = share_model(options, job, device)
    torch.manual_seed(options.training.seed + job.rank)
    log.info("%d ranks, mode %s, %s, %s", job.world_size, options.distributed.mode, kind, name_of_device(device))
    if options.profiling.chrome_trace and kind == "rocm" and not options.profiling.force_chrome_trace:
        log.warning(
            "profiling.chrome_trace is off on ROCm, the tensorboard file is written; force_chrome_trace: true writes it"
        )
    with StepLog(output_dir, job, flops_per_token(options.model, options.dataset.sequence_length)) as step_log:
        loop = Loop(
            options=options,
            job=job,
            device=device,
            num_steps=num_steps(options, job.world_size),
            data=step_data(options, job, on_gpu=kind != "cpu"),
            steps=Steps(options, job, device, parallel),
            recorder=Recorder(options, job, kind, output_dir),
            step_log=step_log,
            agreement=agreement,
            signals=StopSignals(options.training.stop_grace_seconds),
        )
        end = {"exit": "failed", "weights_checksum": None}
        try:
            with loop.signals, loop.recorder:
                loop.run()
            if loop.ending.signal:
                end["exit"] = "terminated"
            else:
                end = {"exit": "completed", "weights_checksum": checksum_of_weights(parallel.full_parameters())}
        finally:
            step_log.write_end({"steps": loop.ending.num_steps, **end, **_how(options, device, kind, parallel)})
    close_group()
    stop_signal = loop.ending.signal
    if stop_signal:
        log.warning("stopped by %s after step %d", signal.Signals(stop_signal).name, loop.ending.num_steps)
    return 128 + stop_signal if stop_signal else 0


def _how(options: Options, device: torch.device, kind: str, parallel: Parallel) -> dict[str, Any]:
    return {
        "mode": options.distributed.mode,
        "dtype": NAMES[options.training.mixed_precision],
        "device": kind,
        "device_name": name_of_device(device),
        "compile": outcome(parallel.module, options.compile),
        "torch": torch.__version__,
    }
