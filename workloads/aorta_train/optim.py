"""The optimizer and the learning rate over the steps."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from aorta_train.options import Optimizer, Scheduler


def make_optimizer(
    parameters: Iterable[nn.Parameter], options: Optimizer, device: torch.device
) -> torch.optim.Optimizer:
    """Make AdamW: on a GPU fused, a few launches for all parameters together; elsewhere as torch chooses."""
    return torch.optim.AdamW(
        parameters,
        lr=options.lr,
        betas=options.betas,
        eps=options.eps,
        weight_decay=options.weight_decay,
        fused=True if device.type != "cpu" else None,
    )


def rate_factor(step: int, options: Scheduler) -> float:
    """Give the share of the peak rate at `step` (counted from 1): linear up to 1, then linear down to 0."""
    if step <= options.warmup_steps:
        return step / options.warmup_steps
    if not options.total_steps:
        return 1.0
    decay_steps = options.total_steps - options.warmup_steps
    return max(0.0, (options.total_steps - step + 1) / decay_steps) if decay_steps else 0.0


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate
