"""The device of a rank: its local rank's GPU, or the CPU."""

from __future__ import annotations

import torch

from aorta_train.compiling import compile_faults
from aorta_train.environment import release_of
from aorta_train.job import Job
from aorta_train.options import Options
from aorta_train.refusal import Refusal
from aorta_train.rules import faults_on_device

FSDP2_ON_CPU = (2, 9)
"""Before 2.6 fully_shard needs CUDA streams; in 2.6 to 2.8 it adds gradients up over gloo without averaging."""

BACKENDS = {"cpu": "gloo", "cuda": "nccl", "rocm": "nccl"}


def kind_of_device(options: Options) -> str:
    """Say what the ranks run on: cpu, cuda or rocm.

    Raises:
        Refusal: a GPU was asked for and torch sees none.
    """
    wanted = options.distributed.device
    if wanted == "cpu":
        return "cpu"
    if not torch.cuda.is_available():
        if wanted == "gpu":
            raise Refusal(
                "distributed.device: is gpu, but torch sees none; check the driver and *_VISIBLE_DEVICES, or use cpu"
            )
        return "cpu"
    return "rocm" if torch.version.hip else "cuda"


def device_of_rank(options: Options, job: Job, kind: str) -> torch.device:
    """Take the device whose index is the local rank (indices already follow *_VISIBLE_DEVICES).

    Raises:
        Refusal: there are more ranks than devices on this node, or a knob does nothing on them or has an unknown value.
    """
    faults = [*faults_on_device(options, kind), *compile_faults(options.compile)]
    if kind == "cpu" and options.distributed.mode == "fsdp2" and release_of(torch.__version__) < FSDP2_ON_CPU:
        faults.append(f"distributed.mode: fsdp2 on cpu needs torch 2.9 or newer, this is {torch.__version__}; use fsdp")
    if faults:
        raise Refusal([*_why_cpu(options, kind), *faults])
    if kind == "cpu":
        return torch.device("cpu")
    num_devices = torch.cuda.device_count()
    if job.local_world_size > num_devices:
        raise Refusal(
            f"this node has {num_devices} visible GPUs for {job.local_world_size} ranks; start at most one rank a GPU"
        )
    device = torch.device("cuda", job.local_rank)
    torch.cuda.set_device(device)
    return device


def _why_cpu(options: Options, kind: str) -> list[str]:
    """Say what comes before faults on a CPU that nobody asked for."""
    if kind != "cpu" or options.distributed.device != "auto":
        return []
    seen = f"torch {torch.__version__} sees no GPU, so distributed.device auto is the CPU"
    return [f"{seen}; on a machine with GPUs check the driver, *_VISIBLE_DEVICES and which torch is installed"]


def name_of_device(device: torch.device) -> str:
    """Name the device as its vendor does."""
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
