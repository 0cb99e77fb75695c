from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.model import build, flops_per_token, layers_of, loss_of
from aorta_train.options import Model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

pytestmark = pytest.mark.torch

SMALL = Model(
    vocab_size=10,
    embedding_dim=6,
    num_dense_features=3,
    dense_dim=4,
    model_dim=8,
    num_heads=2,
    num_layers=2,
    dropout=0.0,
    mlp_hidden_dim=5,
)
CPU = torch.device("cpu")


def test_every_position_gets_a_logit_and_every_parameter_a_gradient() -> None:
    model = build(SMALL, 1, CPU)
    logits = model(torch.randn(2, 7, 3, 4), torch.randint(10, (2, 7, 5)))
    assert logits.shape == (2, 7, 1)
    loss: Any = loss_of(logits, torch.ones(2, 7), torch.ones(2, 7))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert len(layers_of(model)) == 2


@pytest.mark.parametrize(
    ("knob", "parameter", "shape"),
    [
        ("vocab_size", "embedding.weight", (16, 6)),
        ("embedding_dim", "sparse_projection.weight", (8, 16)),
        ("num_dense_features", "dense_projection.weight", (8, 16 * 4)),
        ("dense_dim", "dense_projection.weight", (8, 3 * 16)),
        ("model_dim", "layers.1.attention.query_key_value.weight", (3 * 16, 16)),
        ("mlp_hidden_dim", "layers.0.mlp_in.weight", (16, 8)),
        ("num_layers", "layers.15.mlp_out.bias", (8,)),
    ],
)
def test_each_size_shapes_the_model(knob: str, parameter: str, shape: tuple[int, ...]) -> None:
    model = build(dataclasses.replace(SMALL, **{knob: 16}), 1, torch.device("meta"))
    assert tuple(model.get_parameter(parameter).shape) == shape


def test_heads_attend_apart() -> None:
    inputs = torch.randn(2, 7, 3, 4), torch.randint(10, (2, 7, 5))
    one, many = (build(dataclasses.replace(SMALL, num_heads=number), 1, CPU) for number in (1, 4))
    assert all(torch.equal(left, right) for left, right in zip(one.parameters(), many.parameters(), strict=True))
    assert not torch.allclose(one(*inputs), many(*inputs))


def test_loss_is_the_weighted_mean() -> None:
    logits = torch.tensor([[[0.0], [100.0]]])
    loss = loss_of(logits, torch.tensor([[1.0, 1.0]]), torch.tensor([[3.0, 5.0]]))
    assert float(loss) == pytest.approx(3.0 * 0.693147 / 2, rel=1e-5)


def test_the_seed_alone_decides_the_first_weights() -> None:
    first = build(SMALL, 1, CPU)
    torch.manual_seed(99)
    again, other = build(SMALL, 1, CPU), build(SMALL, 2, CPU)
    pairs = list(zip(first.parameters(), again.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(left, right) for left, right, _ in pairs)
    assert not all(torch.equal(left, right) for left, _, right in pairs)


def test_layers_start_with_different_weights() -> None:
    left, right = (dict(layer.named_parameters()) for layer in layers_of(build(SMALL, 1, CPU)))
    assert not torch.equal(left["attention.output.weight"], right["attention.output.weight"])


def test_a_model_on_meta_has_no_values() -> None:
    assert all(parameter.is_meta for parameter in build(SMALL, 1, torch.device("meta")).parameters())


def test_dropout_acts_in_training_only() -> None:
    model = build(dataclasses.replace(SMALL, dropout=0.5), 1, CPU)
    dense, categorical = torch.randn(1, 4, 3, 4), torch.randint(10, (1, 4, 5))
    assert not torch.equal(model(dense, categorical), model(dense, categorical))
    model.eval()
    assert torch.equal(model(dense, categorical), model(dense, categorical))


def test_categorical_features_of_a_position_are_averaged() -> None:
    model = build(SMALL, 1, CPU)
    categorical = torch.tensor([[[1, 1, 4], [0, 9, 9]]])
    pooled = model.embedding.weight[categorical].mean(dim=2)
    torch.testing.assert_close(
        model.embed(torch.zeros(1, 2, 3, 4), categorical), model.dense_projection.bias + model.sparse_projection(pooled)
    )


def test_operations_are_counted_by_hand() -> None:
    attention = 2 * (3 * 8 * 8 + 8 * 8) + 2 * 2 * 7 * 8
    mlp = 2 * (8 * 5 + 5 * 8)
    dense = 2 * (3 * 4 * 8)
    outside = 2 * (6 * 8 + 8 * 8 + 8 * 1)
    assert flops_per_token(SMALL, 7) == 3 * (2 * (attention + mlp) + outside) + 2 * dense


def test_operations_are_those_that_torch_counts() -> None:
    model = build(SMALL, 1, CPU)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = model(torch.randn(2, 7, 3, 4), torch.randint(10, (2, 7, 5)))
        loss: Any = loss_of(logits, torch.ones(2, 7), torch.ones(2, 7))
        loss.backward()
    assert counter.get_total_flops() == 2 * 7 * flops_per_token(SMALL, 7)


PRODUCTS = ("aten::addmm", "aten::mm")
PRODUCTS_OF_A_LAYER = 4


def products_and_gradients(num_chunks: int) -> tuple[int, torch.Tensor, dict[str, Any]]:
    model = build(SMALL, 1, CPU, num_chunks)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(2, 7, 3, 4, generator=generator)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        logits = model(dense, torch.zeros(2, 7, 5, dtype=torch.int64))
        loss: Any = loss_of(logits, torch.ones(2, 7), torch.ones(2, 7))
        loss.backward()
    counts = Counter(event.name for event in profile.events())
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return sum(counts[name] for name in PRODUCTS), logits.detach(), gradients


@pytest.mark.parametrize("num_chunks", [2, 5, 14])
def test_products_of_layers_are_launched_in_pieces_with_the_same_results(num_chunks: int) -> None:
    whole, logits, gradients = products_and_gradients(1)
    pieces, chunked_logits, chunked_gradients = products_and_gradients(num_chunks)
    in_layers = SMALL.num_layers * PRODUCTS_OF_A_LAYER * 3  # forward, and two in the backward pass
    assert pieces - whole == in_layers * (num_chunks - 1)
    torch.testing.assert_close(chunked_logits, logits)
    assert gradients.keys() == chunked_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(chunked_gradients[name], gradient)
