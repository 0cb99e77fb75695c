"""The global norm of gradients of which each rank holds a share.

One launch over all gradients in place of one each: with hundreds of parameters the host is otherwise slower than the
device (torch's own clipping of sharded gradients takes two launches a parameter).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def local_gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Give this rank's share of every gradient, as plain tensors that hold something."""
    gradients: list[Any] = [parameter.grad for parameter in parameters if parameter.grad is not None]
    local = [gradient.to_local() if hasattr(gradient, "to_local") else gradient for gradient in gradients]
    return [gradient for gradient in local if gradient.numel()]


@torch.no_grad()
def clip_shards(parameters: Iterable[nn.Parameter], max_norm: float, group: Any, device: torch.device) -> Tensor:
    """Scale this rank's shares down to the global norm `max_norm`; gives the norm before, the same on all of `group`.

    The collective is issued to run on the group's own stream, never on the one that computes.
    """
    gradients = local_gradients(parameters)
    norms = torch._foreach_norm(gradients) if gradients else [torch.zeros((), device=device)]  # noqa: SLF001
    square = torch.linalg.vector_norm(torch.stack(list(norms))).square()
    work: Any = dist.all_reduce(square, group=group, async_op=True)
    work.wait()
    norm: Tensor = square.sqrt()
    if gradients:
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
