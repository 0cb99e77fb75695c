"""Units: how many layers are sharded, gathered and reduced together; more to a unit means fewer, larger collectives."""

from __future__ import annotations

import re

from torch import nn

from aorta_train.model import RankingTransformer, layers_of

_IN_UNIT = re.compile(r"layers\.(?P<unit>\d+)\.(?P<layer>\d+)\.(?P<rest>.+)")


class Unit(nn.Sequential):
    """Some layers, one after the other."""


def put_together(model: RankingTransformer, layers_per_unit: int) -> list[nn.Module]:
    """Put the model's layers into units, the last one maybe smaller; gives what is to be sharded as one, in order."""
    layers = layers_of(model)
    if layers_per_unit == 1:
        return layers
    units = [Unit(*layers[first : first + layers_per_unit]) for first in range(0, len(layers), layers_per_unit)]
    model.layers = nn.ModuleList(units)
    return list(units)


def name_in_model(name: str, layers_per_unit: int) -> str:
    """Give the name that a parameter has in the model as it was built."""
    inside = _IN_UNIT.fullmatch(name) if layers_per_unit > 1 else None
    if inside is None:
        return name
    layer = int(inside["unit"]) * layers_per_unit + int(inside["layer"])
    return f"layers.{layer}.{inside['rest']}"
