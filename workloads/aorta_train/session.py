"""One rank's run from the device to the last line."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from aorta_train.checksum import checksum_of_weights
from aorta_train.compiling import outcome
from aorta_train.compute_units import cap_compute_units
from aorta_train.data import step_data
from aorta_train.device import BACKENDS, device_of_rank, kind_of_device, name_of_device
from aorta_train.ending import leave_gloo, leave_on_error, share_temporary_folder
from aorta_train.group import close_group, open_group
from aorta_train.interception import Interception
from aorta_train.job import Job
from aorta_train.loop import Loop, Steps
from aorta_train.memory import memory_needed
from aorta_train.model import flops_per_token
from aorta_train.options import Options
from aorta_train.parallel.mode import Parallel, share_model
from aorta_train.peak import Peak, peak_of
from aorta_train.precision import NAMES
from aorta_train.profiler import Recorder
from aorta_train.refusal import TrainingFailed
from aorta_train.rocm_metrics import sampling
from aorta_train.rules import num_steps
from aorta_train.step_log import StepLog, Work
from aorta_train.stop import Agreement, StopSignals
from aorta_train.timing import StepTimer, StreamTimer, timer_of

log = logging.getLogger("aorta.session")


def run(options: Options, job: Job, output_dir: Path, rocm_metrics: bool) -> int:
    """Train; gives the exit code: 0, or 128 + the signal that ended the run early.

    Raises:
        Refusal: the machine does not fit the options.
        TrainingFailed: a loss is no number, or memory ran out.
    """
    kind = kind_of_device(options)
    device = device_of_rank(options, job, kind)
    cap_compute_units(options.tuning.max_sms, kind, device)
    open_group(options, job, kind, device)
    leave_on_error()
    agreement = Agreement(job, timedelta(seconds=options.distributed.timeout_seconds))
    timer = timer_of(options.profiling.stream_timing, device)
    with memory_needed("while the model was made", job.rank, device):
        peak = peak_of(options, device)
        parallel = share_model(options, job, device, timer)
    torch.manual_seed(options.training.seed + job.rank)
    log.info("%d ranks, mode %s, %s, %s", job.world_size, options.distributed.mode, kind, name_of_device(device))
    work = Work(flops_per_token(options.model, options.dataset.sequence_length), peak)
    with StepLog(output_dir, job, work) as step_log:
        if options.dataloader.num_workers:
            share_temporary_folder()
        with memory_needed("while the data was made", job.rank, device):
            loop = Loop(
                options=options,
                job=job,
                device=device,
                num_steps=num_steps(options, job.world_size),
                data=step_data(options, job, on_gpu=kind != "cpu"),
                steps=Steps(options, job, device, parallel, timer),
                recorder=Recorder(options, job, kind, output_dir),
                step_log=step_log,
                work=work,
                agreement=agreement,
                signals=StopSignals(options.training.stop_grace_seconds, job.rank),
            )

        def write_end(how: str, checksum: str | None = None) -> None:
            end = {"steps": loop.ending.num_steps, "exit": how, "weights_checksum": checksum}
            step_log.write_end({**end, **_how(options, device, kind, parallel, peak)})

        try:
            with ExitStack() as around:
                for one in (
                    loop.signals,
                    *_watchers(job, kind, device, timer, output_dir, rocm_metrics),
                    loop.recorder,
                ):
                    around.enter_context(one)
                gc.collect()
                gc.freeze()  # what is there now stays: the collector need not look at it again in every step
                loop.run()
            checksum = None if loop.ending.signal else checksum_of_weights(parallel.full_parameters())
        except BaseException:
            try:
                write_end("failed")
            except TrainingFailed as failure:
                log.error("%s", failure)  # what went wrong before is what ends the run
            raise
        write_end("terminated" if loop.ending.signal else "completed", checksum)
    close_group()
    stop_signal = loop.ending.signal
    if stop_signal:
        name, whose = signal.Signals(stop_signal).name, loop.ending.signalled_rank
        said = f"stopped by {name}" if whose == job.rank else f"ended because rank {whose} got {name},"
        log.warning("%s after step %d", said, loop.ending.num_steps)
    exit_code = 128 + stop_signal if stop_signal else 0
    if BACKENDS[kind] == "gloo":
        leave_gloo(exit_code)
    return exit_code


def _watchers(
    job: Job, kind: str, device: torch.device, timer: StepTimer, output_dir: Path, rocm_metrics: bool
) -> Iterator[AbstractContextManager[Any]]:
    """Give what watches the steps, where it can see something."""
    if isinstance(timer, StreamTimer):
        yield Interception(timer, device)
    if rocm_metrics and kind != "rocm" and job.rank == 0:
        log.warning("--enable-rocm-metrics does nothing on %s: rocm-smi knows AMD GPUs only", kind)
    if rocm_metrics and kind == "rocm" and job.local_rank == 0:
        yield sampling(output_dir / f"rocm_metrics_{job.rank:02d}.jsonl")


def _how(options: Options, device: torch.device, kind: str, parallel: Parallel, peak: Peak) -> dict[str, Any]:
    return {
        "mode": options.distributed.mode,
        "dtype": NAMES[options.training.mixed_precision],
        "device": kind,
        "device_name": name_of_device(device),
        "compile": outcome(parallel.module, options.compile),
        "peak_tflops": None if peak.tflops is None else round(peak.tflops, 6),
        "peak_source": peak.source,
        "torch": torch.__version__,
    }
