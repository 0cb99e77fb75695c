"""`tuning.async_copy_mb`: device copies beside the computation, launched after a layer, awaited a layer later."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from aorta_train.model import layers_of

MEGABYTE = 1_000_000


class AsyncCopy:
    """A copy between two lasting buffers, on a stream that waits for the producer and is waited for by the consumer."""

    def __init__(self, megabytes: int, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._source = torch.zeros(megabytes * MEGABYTE, dtype=torch.uint8, device=device)
        self._target = torch.empty_like(self._source)

    def launch(self) -> None:
        """Copy once the work enqueued so far is done."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self._target.copy_(self._source, non_blocking=True)

    def wait(self) -> None:
        """Let what is enqueued from now on wait for the copy."""
        torch.cuda.current_stream().wait_stream(self.stream)


class CopyBeside:
    """The forward of a layer, beside which the copy of the layer before runs."""

    def __init__(self, forward: Callable[[Tensor], Tensor], copy: AsyncCopy) -> None:
        self.inner = forward
        self._copy = copy

    def __call__(self, activations: Tensor) -> Tensor:
        """Compute, wait for the earlier copy, launch the next."""
        output = self.inner(activations)
        self._copy.wait()
        self._copy.launch()
        return output


def copy_beside_layers(model: nn.Module, megabytes: int | None, device: torch.device) -> None:
    """Let every layer launch a copy; the last one is awaited at the end of the forward pass.

    To be called after compilation: a compiler would have to break its graph at the streams.
    """
    if megabytes is None:
        return
    copy = AsyncCopy(megabytes, device)
    for layer in layers_of(model):
        layer.forward = CopyBeside(layer.forward, copy)
    model.register_forward_hook(lambda *_: copy.wait())
