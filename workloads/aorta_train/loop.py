"""The training loop: one step after the other until the last, a stop that all ranks agreed on, or a failure."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aorta_train.data import FeatureTable, StepData, to_device
from aorta_train.fault import Fault
from aorta_train.job import Job
from aorta_train.memory import memory_needed, memory_peak_bytes
from aorta_train.meter import Meter, Reading, StepFacts
from aorta_train.model import loss_of
from aorta_train.optim import make_optimizer, rate_factor, set_rate
from aorta_train.options import Options
from aorta_train.parallel.mode import Parallel
from aorta_train.precision import LossScaler, low_precision
from aorta_train.profiler import Recorder
from aorta_train.refusal import TrainingFailed
from aorta_train.step_log import StepLog, Work, beat
from aorta_train.stop import Agreed, Agreement, StopSignals
from aorta_train.stress import AllReduceStress
from aorta_train.timing import StepTimer, Untimed

log = logging.getLogger("aorta.train")


class Steps:
    """Takes optimizer steps; knows nothing of files, signals or the profiler."""

    def __init__(
        self, options: Options, job: Job, device: torch.device, parallel: Parallel, timer: StepTimer | None = None
    ) -> None:
        self.timer = timer or Untimed()
        self._options = options
        self._device = device
        self._parallel = parallel
        # In the type of the matrix products, which the model would cast them to.
        self._features = FeatureTable(options.dataset, low_precision(options.training) or torch.float32, device)
        self._optimizer = make_optimizer(parallel.module.parameters(), options.optimizer, device)
        self._scaler = LossScaler() if options.training.mixed_precision == "fp16" else None
        self._fault = Fault(options.fault_injection, job, device)
        self._stress = None
        if options.training.inject_allreduce_copies:
            self._stress = AllReduceStress(options.training.allreduce_stress_level, device, job.world_size)

    def take(self, data: StepData, global_step: int) -> tuple[Tensor, Tensor | None, float]:
        """Take one step; gives this rank's mean loss, the global norm of the gradients, and the learning rate."""
        self._fault.strike(global_step)
        rate = self._options.optimizer.lr * rate_factor(global_step, self._options.scheduler)
        set_rate(self._optimizer, rate)
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._fault.spoil(self._accumulate(data, global_step), global_step)
        with self.timer.phase("clip"):
            norm = self._clip()
        with self.timer.phase("optimizer"):
            if self._scaler is None or norm is None or self._scaler.accepts(norm):
                self._optimizer.step()
        if self._stress:
            with self.timer.phase("stress"):
                self._stress.run(loss)
        return loss, norm, rate

    def _accumulate(self, data: StepData, global_step: int) -> Tensor:
        """Add up the gradients of all batches; they travel with the last one."""
        num_batches = len(data.batches)
        losses = []
        for index, samples in enumerate(data.batches):
            with self.timer.phase("data", batch=index):
                batch = self._features.complete(to_device(samples, self._device))
            with self._parallel.batch_context(last=index == num_batches - 1):
                with self.timer.phase("forward", batch=index):
                    logits = self._parallel.module(batch["dense"], batch["categorical"])
                    loss = loss_of(logits, batch["target"], batch["importance"])
                    losses.append(loss.detach())
                    share = (self._scaler.scale if self._scaler else 1.0) / num_batches
                    scaled = loss if share == 1.0 else loss * share
                with self.timer.phase("backward", batch=index):
                    self.timer.watch_loss(scaled)
                    scaled.backward()  # type: ignore[no-untyped-call]
        return losses[0] if num_batches == 1 else torch.stack(losses).mean()

    def _clip(self) -> Tensor | None:
        """Clip after unscaling; without clipping the norm is measured only where the scaler needs it."""
        limit = self._options.training.grad_clip_norm
        if self._scaler:
            self._scaler.unscale(self._parallel.module.parameters())
        elif not limit:
            return None
        return self._parallel.clip(limit or math.inf)


@dataclass
class Ending:
    """How the loop ended, kept up to date while it runs."""

    num_steps: int = 0
    signal: int = 0
    signalled_rank: int | None = None


@dataclass
class Loop:
    """Runs all steps of one rank and writes what it sees."""

    options: Options
    job: Job
    device: torch.device
    num_steps: int
    data: Iterator[StepData]
    steps: Steps
    recorder: Recorder
    step_log: StepLog
    work: Work
    agreement: Agreement
    signals: StopSignals
    ending: Ending = field(default_factory=Ending)
    _fault: str = ""

    def run(self) -> None:
        """Take all steps, or fewer when the ranks agree to stop.

        Raises:
            TrainingFailed: on every rank, when a loss or a norm of any rank is no finite number.
        """
        meter = Meter(self.device)
        meter.begin()
        for global_step in range(1, self.num_steps + 1):
            self._step(meter, global_step)
            self.signals.advance()
            self.ending.num_steps = global_step
            self._report(meter.readings())
            self._heed(self.agreement.answer())
            self.agreement.tell(self.signals.received, failed=bool(self._fault))
            self.signals.suspend()
            self.recorder.end_step()
            if self.ending.signal:
                break
            self.signals.advance()
        self._report(meter.readings(all_of_them=True))
        self._heed(self.agreement.answer())
        self.agreement.tell(self.signals.received, failed=bool(self._fault))
        self._heed(self.agreement.answer())

    def _step(self, meter: Meter, global_step: int) -> None:
        timer = self.steps.timer
        timer.begin_step()
        with memory_needed(f"in step {global_step}", self.job.rank, self.device):
            with timer.phase("data"):
                data = next(self.data)
            loss, norm, rate = self.steps.take(data, global_step)
        recording = timer.end_step()
        num_samples = sum(len(batch["target"]) for batch in data.batches)
        num_tokens = num_samples * self.options.dataset.sequence_length
        profiled = self.recorder.is_busy(global_step)
        facts = StepFacts(data.epoch, data.step, global_step, rate, num_samples, num_tokens, profiled)
        meter.end_step(facts, loss, norm, recording)

    def _report(self, readings: Iterator[Reading]) -> None:
        """Write finished steps, and note what is wrong with the first bad one."""
        for reading in readings:
            self.step_log.write_step(reading, memory_peak_bytes(self.device))
            beat(reading, self.job, self.num_steps, self.work)
            step = reading.facts.global_step
            if step % self.options.training.log_interval == 0 or step == self.num_steps:
                log.info("step %d/%d loss %.5f %.2f ms", step, self.num_steps, reading.loss, reading.step_ms)
            self._fault = self._fault or self._fault_in(reading)

    def _fault_in(self, reading: Reading) -> str:
        step = reading.facts.global_step
        advice = "expected a finite number; lower optimizer.lr or check the device"
        if not math.isfinite(reading.loss):
            return f"the loss is {reading.loss} on rank {self.job.rank} at step {step}, {advice}"
        scaled = self.options.training.mixed_precision == "fp16"
        if reading.grad_norm is not None and not scaled and not math.isfinite(reading.grad_norm):
            return f"the norm of the gradients is {reading.grad_norm} at step {step}, {advice}"
        return ""

    def _heed(self, agreed: Agreed) -> None:
        """Do as the ranks agreed: go on, stop by a signal, or fail together."""
        if not self.ending.signal:
            self.ending.signal, self.ending.signalled_rank = agreed.signal, agreed.signalled_rank
        if agreed.failed_rank is None:
            return
        if agreed.failed_rank == self.job.rank:
            raise TrainingFailed(self._fault)
        raise TrainingFailed(f"ended because rank {agreed.failed_rank} failed")
