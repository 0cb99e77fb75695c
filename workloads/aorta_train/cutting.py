"""Cutting the computation of a step at the borders of the model's parts, where it may wait for parameters.

A part's forward begins after its parameters have arrived: FSDP and fully_shard wait before they call it. In the
backward pass the part begins with the node of its output, whose hooks wait for parameters before the node's own
prehooks run, and ends with a node put before its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, autograd

from aorta_train.model import RankingTransformer, layers_of
from aorta_train.timing import StreamTimer


class _EndOfBackward(autograd.Function):
    """Gives its input on, and calls `reached` when the gradient comes back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, reached: Callable[[], None]) -> Tensor:
        """Pass."""
        ctx.reached = reached
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Pass, and tell."""
        ctx.reached()
        return gradients[0], None


class Part:
    """The forward of a part of the model, marked on both sides and both ways."""

    def __init__(self, forward: Callable[..., Tensor], name: str, timer: StreamTimer) -> None:
        self.inner = forward
        self._name = name
        self._timer = timer

    def __call__(self, first: Tensor, *others: Tensor) -> Tensor:
        """Run the part."""
        self._timer.open(f"forward.{self._name}")
        marked: Tensor = _EndOfBackward.apply(first, self._timer.close)  # type: ignore[no-untyped-call]
        output = self.inner(marked, *others)
        node: Any = output.grad_fn
        if node is not None:
            node.register_prehook(lambda *_: self._timer.open(f"backward.{self._name}"))
        if self._name != "head":  # the loss belongs to the head, and the end of the phase closes both
            self._timer.close()
        return output


def cut(model: RankingTransformer, timer: StreamTimer) -> None:
    """Mark the parts of a model; to be called after compilation, so that no compiler sees the marks."""
    parts: dict[str, Any] = {f"layer{index}": layer for index, layer in enumerate(layers_of(model))}
    for name, layer in parts.items():
        layer.forward = Part(layer.forward, name, timer)
    whole: Any = model
    whole.embed = Part(model.embed, "stem", timer)
    whole.score = Part(model.score, "head", timer)
