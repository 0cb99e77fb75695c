"""What is done to the model's layers before any mode shares them, from the inside to the outside."""

from __future__ import annotations

import torch

from aorta_train.async_copy import copy_beside_layers
from aorta_train.compiling import compile_layers
from aorta_train.cutting import cut
from aorta_train.model import RankingTransformer
from aorta_train.options import Options
from aorta_train.timing import StepTimer, StreamTimer


def prepare_layers(model: RankingTransformer, options: Options, device: torch.device, timer: StepTimer) -> None:
    """Compile the layers, let copies run beside them, and mark their borders, as far as that is asked for."""
    compile_layers(model, options.compile)
    copy_beside_layers(model, options.tuning.async_copy_mb, device)
    if isinstance(timer, StreamTimer):
        cut(model, timer)
