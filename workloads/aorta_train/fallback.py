"""A compiled layer that may not be compilable; a module of its own, because it needs the compiler imported."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import Tensor
from torch._dynamo.exc import TorchDynamoException

log = logging.getLogger("aorta.compile")

Forward = Callable[[Tensor], Tensor]


class EagerFallback:
    """A compiled forward that turns to the eager one for good when it cannot be compiled."""

    def __init__(self, compiled: Forward, eager: Forward) -> None:
        self._compiled = compiled
        self._eager = eager
        self.fell_back = False

    def __call__(self, activations: Tensor) -> Tensor:
        """Run the layer; compilation happens in the first call, so that is where it fails."""
        if not self.fell_back:
            try:
                return self._compiled(activations)
            except TorchDynamoException as error:
                log.warning("a layer runs eagerly, it cannot be compiled: %s", str(error).strip().splitlines()[0])
                self.fell_back = True
        return self._eager(activations)
