"""How a run stops early: signals are noted, all ranks agree on the step, and a rank that hangs is given up."""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aorta_train.ending import remove_temporary_folder
from aorta_train.job import Job

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Notes SIGTERM and SIGINT while it is entered; `received` is the number of the first one, 0 before.

    A rank blocked in a collective runs no Python signal handler, so a thread is told as well (by the wakeup descriptor,
    which the C handler writes) and ends the process once no step has ended for `grace_seconds`.
    """

    def __init__(self, grace_seconds: float, rank: int) -> None:
        self.received = 0
        self._rank = rank
        self._grace_seconds = grace_seconds
        self._left = threading.Event()
        self._advanced_at_s = 0.0

    def advance(self) -> None:
        """Say that this rank does not hang: a step has ended."""
        self._advanced_at_s = time.monotonic()

    def suspend(self) -> None:
        """Say that until it advances this rank waits for no other: it writes a trace, however long that takes."""
        self._advanced_at_s = math.inf

    def __enter__(self) -> StopSignals:  # noqa: PYI034  (Self needs Python 3.11)
        """Take over the signals."""
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._earlier = {number: signal.signal(number, self._note) for number in SIGNALS}
        self._earlier_descriptor = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="stop-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back and end the thread."""
        self._left.set()
        signal.set_wakeup_fd(self._earlier_descriptor)
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        os.write(self._writing, b"\0")
        self._thread.join()
        os.close(self._writing)
        os.close(self._reading)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or number

    def _watch(self) -> None:
        number = 0
        while number not in SIGNALS and not self._left.is_set():
            number = os.read(self._reading, 1)[0]
        told_at_s = time.monotonic()
        while (rest_s := max(told_at_s, self._advanced_at_s) + self._grace_seconds - time.monotonic()) > 0:
            if self._left.wait(min(rest_s, 1.0)):
                return
        name, seconds = signal.Signals(number).name, f"{self._grace_seconds:g} s"
        said = f"rank {self._rank}: no step ended for {seconds} after {name}; stacks follow\n"
        try:
            with os.fdopen(os.memfd_create("stacks"), "w+b") as stacks:  # in memory: the disk may be full
                faulthandler.dump_traceback(stacks, all_threads=True)
                stacks.seek(0)
                os.write(sys.stderr.fileno(), said.encode() + stacks.read())  # one write: the ranks share a stream
            remove_temporary_folder()
        finally:
            os._exit(128 + number)


@dataclass(frozen=True)
class Agreed:
    """What all ranks know after a step; `signalled_rank` got the signal: this one, or else the lowest."""

    signal: int
    signalled_rank: int | None
    failed_rank: int | None


class Agreement:
    """Tells every rank whether any of them wants to stop, so that all leave after the same step.

    It runs over gloo in a group of its own: the host needs the answer, and must not wait for the GPU to get it. Nor
    does a rank wait for slower ones: what was told after a step is answered after the next.
    """

    def __init__(self, job: Job, timeout: timedelta) -> None:
        self._job = job
        self._group = dist.new_group(backend="gloo", timeout=timeout)
        self._told: tuple[Tensor, Any] | None = None
        self._has_signal = False

    def tell(self, signal_number: int, failed: bool) -> None:
        """Tell the others that this rank received a signal (0: none), or that it failed."""
        mine = self._job.world_size - self._job.rank  # the lowest rank has the highest
        signalled = signal_number * (self._job.world_size + 1) + mine if signal_number else 0
        flags = torch.tensor([signalled, mine if failed else 0], dtype=torch.int32)
        self._has_signal = signal_number != 0
        self._told = flags, dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._group, async_op=True)

    def answer(self) -> Agreed:
        """Give the highest signal that any rank told of and whose it was, and the lowest rank that failed.

        Nothing before `tell`.
        """
        if self._told is None:
            return Agreed(signal=0, signalled_rank=None, failed_rank=None)
        (flags, work), self._told = self._told, None
        work.wait()
        signalled, failed = (int(flag) for flag in flags)
        number, signalled = divmod(signalled, self._job.world_size + 1)
        return Agreed(number, self._job.rank if self._has_signal else self._rank_of(signalled), self._rank_of(failed))

    def _rank_of(self, flag: int) -> int | None:
        return self._job.world_size - flag if flag else None
