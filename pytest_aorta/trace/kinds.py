"""Kinds: which event counts as what.

Source: Kineto's activity names (`kernel`, `gpu_memcpy` ...; capitalised until 2021) and TraceLens' rules for
communication (by kernel name) and for the copy kernels of older ROCm, so that totals can be compared.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Category(IntEnum):
    """What an event's `cat` makes of it; events of other categories are passed over."""

    KERNEL = 0
    COPY = 1
    SET = 2
    LAUNCH = 3
    RANGE = 4
    OPERATOR = 5
    INSTANT = 6


CATEGORIES: dict[str | None, Category] = {
    "kernel": Category.KERNEL,
    "Kernel": Category.KERNEL,
    "gpu_memcpy": Category.COPY,
    "Memcpy": Category.COPY,
    "gpu_memset": Category.SET,
    "Memset": Category.SET,
    "cuda_runtime": Category.LAUNCH,
    "cuda_driver": Category.LAUNCH,
    "hip_runtime": Category.LAUNCH,
    "hip_driver": Category.LAUNCH,
    "Runtime": Category.LAUNCH,
    "user_annotation": Category.RANGE,
    "Operator": Category.RANGE,
    "cpu_op": Category.OPERATOR,
    "cpu_instant_event": Category.INSTANT,
}


class Kind(IntEnum):
    """What a GPU event spends its time on."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    SET = 3


_COMMUNICATION = re.compile(r"nccl|rccl|cross_device_reduce", re.IGNORECASE)
_ROCM_COPY = re.compile(
    r"(MEMORY_COPY_(HOST_TO_DEVICE|DEVICE_TO_HOST|DEVICE_TO_DEVICE)|__amd_rocclr_copyBuffer(Rect)?(Aligned)?)(\.kd)?"
)
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
}
_DIRECTION = re.compile(r"\b([HDP]to[HDP])\b")
_ROCM_DIRECTIONS = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD"}
COLLECTIVE_OPS = ("record_param_comms", "c10d::", "nccl:", "gloo:")
"""What the names of CPU rows that launch a collective begin with."""
STEP = re.compile(r"ProfilerStep#(\d{1,18})")


def kind_of(category: Category, name: str) -> Kind:
    """Tell what a GPU event of `category` (KERNEL, COPY or SET) spends its time on.

    Memset counts as computation in the totals, as TraceLens has it; it keeps a kind of its own to be reported too.
    """
    if category is Category.COPY or (category is Category.KERNEL and _ROCM_COPY.fullmatch(name)):
        return Kind.COPY
    if _COMMUNICATION.search(name):
        return Kind.COMMUNICATION
    return Kind.SET if category is Category.SET else Kind.COMPUTE


def operation_of(name: str) -> str:
    """Give the operation that a collective's recorded name means (`_allgather_base` is `all_gather`), else the name.

    Source: the names that PyTorch's process groups record (ProcessGroupNCCL.cpp, RECORD_PARAM_COMMS_DATA).
    """
    letters = name.lower().replace("_", "")
    return next((operation for start, operation in _OPERATIONS.items() if letters.startswith(start)), name)


def direction_of(name: str) -> str:
    """Give a copy's direction (`HtoD`, `DtoH`, `DtoD`, `PtoP`), or `other` when its name does not tell."""
    found = _DIRECTION.search(name)
    if found:
        return found[1]
    return next((short for long, short in _ROCM_DIRECTIONS.items() if long in name), "other")
