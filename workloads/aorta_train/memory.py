"""Memory: how much is in use, and what to say when it runs out."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from aorta_train.refusal import TrainingFailed

ERRORS = (getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError), MemoryError)
"""torch has moved its error; on the CPU it raises a RuntimeError with these words."""
WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Storage size calculation overflowed",
    "numel: integer multiplication overflow",
)
ADVICE = "lower training.batch_size, dataset.sequence_length or the model's size, or shard it with fsdp or fsdp2"


def memory_peak_bytes(device: torch.device) -> int:
    """Give the most memory in use so far: allocated on the GPU, resident on the CPU."""
    if device.type == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    statistics = torch.cuda.memory_stats_as_nested_dict(device)
    return int(statistics["allocated_bytes"]["all"]["peak"]) if statistics else 0


@contextmanager
def memory_needed(when: str, rank: int, device: torch.device) -> Iterator[None]:
    """Turn an error for want of memory into one sentence.

    Raises:
        TrainingFailed: memory ran out inside.
    """
    try:
        yield
    except (*ERRORS, RuntimeError) as error:
        if not isinstance(error, ERRORS) and not any(words in str(error) for words in WORDS):
            raise
        sentence = f"out of memory on rank {rank} {when}: {_figures(device)}; {ADVICE}"
        raise TrainingFailed(sentence) from None


def _figures(device: torch.device) -> str:
    if device.type == "cpu":
        return f"{_gigabytes(memory_peak_bytes(device))} GB resident at most"
    free, total = torch.cuda.mem_get_info(device)
    used = {
        "allocated": torch.cuda.memory_allocated(device),
        "reserved by torch": torch.cuda.memory_reserved(device),
        "free on the device": free,
        "in all": total,
    }
    return ", ".join(f"{_gigabytes(count)} GB {what}" for what, count in used.items())


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f}"
