"""A checksum of the weights that does not depend on how they are sharded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

CHUNK = 1 << 24


def checksum_of_weights(parameters: Iterable[tuple[str, Tensor]]) -> str:
    """Give 16 hexadecimal digits over names, shapes and exact bits."""
    said = sorted(f"{name}{tuple(tensor.shape)}={_sum_of_bits(tensor)};" for name, tensor in parameters)
    return hashlib.blake2b("".join(said).encode(), digest_size=8).hexdigest()


def _sum_of_bits(tensor: Tensor) -> int:
    """Add up the bits of each element, weighted by its place; integers wrap, so the order of adding does not matter."""
    bits = tensor.float().contiguous().view(torch.int32).flatten()
    total = 0
    for start in range(0, bits.numel(), CHUNK):
        part = bits[start : start + CHUNK].to(torch.int64)
        weights = torch.arange(start, start + part.numel(), device=part.device) * 2 + 1
        total += int((part * weights).sum())
    return total % (1 << 64)
