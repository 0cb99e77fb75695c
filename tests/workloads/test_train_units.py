"""Layers put together into units keep the names and the order of their parameters."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.model import build
from aorta_train.options import Model
from aorta_train.units import name_in_model, put_together

pytestmark = pytest.mark.torch
SMALL = Model(
    vocab_size=10, embedding_dim=4, num_dense_features=2, dense_dim=3, model_dim=8, num_heads=2, num_layers=5,
    mlp_hidden_dim=16,
)  # fmt: skip


@pytest.mark.parametrize(("layers_per_unit", "num_units"), [(1, 5), (2, 3), (5, 1), (9, 1)])
def test_every_parameter_keeps_its_name(layers_per_unit: int, num_units: int) -> None:
    whole, model = (build(SMALL, 1, torch.device("cpu")) for _ in range(2))
    units = put_together(model, layers_per_unit)
    assert list(model.layers) == units
    assert len(units) == num_units
    names = [name_in_model(name, layers_per_unit) for name, _ in model.named_parameters()]
    assert names == [name for name, _ in whole.named_parameters()]


def test_a_model_in_units_computes_the_same() -> None:
    whole, model = (build(SMALL, 1, torch.device("cpu")).eval() for _ in range(2))
    put_together(model, 2)
    given = torch.randn(3, 4, 2, 3), torch.randint(10, (3, 4, 5))
    assert torch.equal(whole(*given), model(*given))
