"""Failures on purpose, to validate the harness that watches the run."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
from torch import Tensor

from aorta_train.job import Job
from aorta_train.options import FaultInjection

MORE_BYTES_THAN_ANY_MACHINE = 1 << 50


class Fault:
    """The one failure that the configuration asks for, if any."""

    def __init__(self, options: FaultInjection, job: Job, device: torch.device) -> None:
        self._options = options
        self._device = device
        self._is_mine = options.kind != "none" and options.rank == job.rank

    def strike(self, step: int) -> None:
        """Fail at the beginning of `step`, if that is asked for."""
        if not self._is_mine or step != self._options.step:
            return
        kind = self._options.kind
        if kind == "raise":
            raise RuntimeError(f"fault_injection: raised on rank {self._options.rank} at step {step}, as configured")
        if kind == "exit":
            sys.stdout.flush()
            os._exit(self._options.exit_code)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "hang":
            _hang_on_purpose()
        if kind == "oom":
            torch.empty(MORE_BYTES_THAN_ANY_MACHINE, dtype=torch.uint8, device=self._device)

    def spoil(self, loss: Tensor, step: int) -> Tensor:
        """Give a loss that is no number, if that is asked for."""
        spoils = self._is_mine and self._options.kind == "nan" and step == self._options.step
        return loss * float("nan") if spoils else loss


def _hang_on_purpose() -> None:
    while True:
        time.sleep(3600)
