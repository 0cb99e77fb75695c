"""The bundled trainer with one rank made slow on purpose, started by torchrun as `train.py` is.

    torchrun --nproc_per_node 2 benchmarks/workload_slowed.py HOW RANK FILE CONFIG [overrides ...]

It begins when FILE is there and says the milliseconds MS, so that the next run can be started while one trains.

HOW: `none`; `host` waits for the device in every step, as a loop does that reads its loss, and then sleeps MS (without
the wait a host that is ahead of its device hides them); `kernels` enqueues matrix products that last about MS; `pinned`
binds the rank's process to one core, which a busy process shares.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "workloads"))

from aorta_train.loop import Steps
from aorta_train.main import main as train

ROWS = 2048


def main(arguments: list[str]) -> int:
    """Slow this rank down if it is the one, and train."""
    how, rank, file, config, *overrides = arguments
    milliseconds = _wait_for(Path(file))
    if how != "none" and int(os.environ["RANK"]) == int(rank):
        SLOWED[how](float(milliseconds))
    return train(["--config", config, "--override", *overrides])


def _wait_for(file: Path) -> str:
    while not (file.exists() and file.read_text("utf-8").endswith("\n")):
        time.sleep(0.05)
    return file.read_text("utf-8")


def _host(milliseconds: float) -> None:
    def hold_up() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        time.sleep(milliseconds / 1000)

    _before_each_step(hold_up)


def _kernels(milliseconds: float) -> None:
    work: list[Any] = []

    def multiply() -> None:
        if not work:
            left = torch.randn(ROWS, ROWS, device="cuda", dtype=torch.bfloat16)
            work.extend([left, _products_of(left, milliseconds)])
        for _ in range(work[1]):
            torch.mm(work[0], work[0])

    _before_each_step(multiply)


def _products_of(matrix: torch.Tensor, milliseconds: float) -> int:
    """Count the products that last so long."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for _ in range(20):
        torch.mm(matrix, matrix)
    begin.record()
    for _ in range(50):
        torch.mm(matrix, matrix)
    end.record()
    end.synchronize()
    return max(1, round(milliseconds * 50 / float(begin.elapsed_time(end))))


def _pinned(milliseconds: float) -> None:
    core = min(os.sched_getaffinity(0))
    busy = multiprocessing.get_context("spawn").Process(target=_keep_busy, args=(core,), daemon=True)
    busy.start()
    os.sched_setaffinity(0, {core})


def _keep_busy(core: int) -> None:
    os.sched_setaffinity(0, {core})
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(100_000))


def _before_each_step(slow_down: Callable[[], None]) -> None:
    take = Steps.take

    def slowed(self: Steps, *arguments: Any) -> Any:
        slow_down()
        return take(self, *arguments)

    Steps.take = slowed  # type: ignore[method-assign,assignment]


SLOWED = {"host": _host, "kernels": _kernels, "pinned": _pinned}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
