"""The process group: NCCL or RCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from aorta_train.device import BACKENDS
from aorta_train.job import Job
from aorta_train.options import Options
from aorta_train.priority import group_wishes


def open_group(options: Options, job: Job, kind: str, device: torch.device) -> None:
    """Join the other ranks, whom the launcher's variables name; a job of one needs no address."""
    wishes: dict[str, Any] = {"backend": BACKENDS[kind], **group_wishes(options)}
    if kind != "cpu":
        wishes["device_id"] = device
    if not job.launched:
        wishes.update(store=HashStore(), rank=0, world_size=1)
    dist.init_process_group(**wishes)


def close_group() -> None:
    """Leave the group when every rank came to the end; after a failure this could wait for ever."""
    dist.destroy_process_group()
