"""Low precision: which type, and the scaling of the loss that fp16 needs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from aorta_train.options import Training
from aorta_train.shards import local_gradients

TYPES = {"none": None, "bf16": torch.bfloat16, "fp16": torch.float16}
NAMES = {"none": "fp32", "bf16": "bf16", "fp16": "fp16"}


def low_precision(training: Training) -> torch.dtype | None:
    """Give the type of matrix products, or nothing when they stay in float32."""
    return TYPES[training.mixed_precision]


class LossScaler:
    """Scales the loss so that fp16 gradients do not vanish, and skips the step when they overflow.

    Whether they overflowed is read from the global norm of the unscaled gradients, so all ranks, sharded or not, decide
    alike; a scaler that looks at its own shard would let ranks part.
    """

    def __init__(self, scale: float = 2.0**16, growth_interval: int = 2000) -> None:
        self.scale = scale
        self._growth_interval = growth_interval
        self._num_good = 0

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients by the scale, before they are clipped."""
        gradients = local_gradients(parameters)
        if gradients:
            torch._foreach_mul_(gradients, 1.0 / self.scale)

    def accepts(self, global_norm: Tensor) -> bool:
        """Say whether the step may be taken, and adapt the scale."""
        if not bool(torch.isfinite(global_norm)):
            self.scale = max(1.0, self.scale / 2)
            self._num_good = 0
            return False
        self._num_good += 1
        if self._num_good == self._growth_interval:
            self.scale *= 2
            self._num_good = 0
        return True
