"""The process group: NCCL or RCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from aorta_train.device import BACKENDS
from aorta_train.job import Job


def open_group(job: Job, kind: str, device: torch.device, timeout_seconds: int) -> None:
    """Join the other ranks, whom the launcher's variables name; a job of one needs no address."""
    wishes: dict[str, Any] = {"backend": BACKENDS[kind], "timeout": timedelta(seconds=timeout_seconds)}
    if kind != "cpu":
        wishes["device_id"] = device
    if not job.launched:
        wishes.update(store=HashStore(), rank=0, world_size=1)
    dist.init_process_group(**wishes)


def close_group() -> None:
    """Leave the group when every rank came to the end; after a failure this could wait for ever."""
    dist.destroy_process_group()
