from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.checksum import checksum_of_weights
from aorta_train.optim import make_optimizer, rate_factor, set_rate
from aorta_train.options import Optimizer, Scheduler
from aorta_train.precision import LossScaler

pytestmark = pytest.mark.torch


def test_the_rate_rises_and_falls_linearly() -> None:
    schedule = Scheduler(warmup_steps=4, total_steps=8)
    assert [rate_factor(step, schedule) for step in range(1, 11)] == [
        0.25,
        0.5,
        0.75,
        1.0,
        1.0,
        0.75,
        0.5,
        0.25,
        0.0,
        0.0,
    ]


def test_without_total_steps_the_rate_stays() -> None:
    schedule = Scheduler(warmup_steps=2, total_steps=0)
    assert [rate_factor(step, schedule) for step in (1, 2, 3, 1000)] == [0.5, 1.0, 1.0, 1.0]


def test_without_warmup_the_first_step_is_at_the_peak() -> None:
    assert rate_factor(1, Scheduler(warmup_steps=0, total_steps=10)) == 1.0


def test_the_optimizer_takes_every_option() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = make_optimizer(
        [parameter], Optimizer(lr=0.5, weight_decay=0.25, betas=(0.1, 0.2), eps=1e-3), torch.device("cpu")
    )
    set_rate(optimizer, 0.125)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], tuple(group["betas"]), group["eps"]) == (0.125, 0.25, (0.1, 0.2), 1e-3)


def test_the_scale_falls_on_overflow_and_rises_after_good_steps() -> None:
    scaler = LossScaler(scale=8.0, growth_interval=2)
    assert not scaler.accepts(torch.tensor(float("inf")))
    assert scaler.scale == 4.0
    assert scaler.accepts(torch.tensor(1.0))
    assert scaler.accepts(torch.tensor(1.0))
    assert scaler.scale == 8.0


def test_gradients_are_unscaled_before_clipping() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([8.0, 16.0])
    LossScaler(scale=8.0).unscale([parameter, torch.nn.Parameter(torch.ones(1))])
    assert parameter.grad.tolist() == [1.0, 2.0]


def test_the_checksum_sees_one_bit_one_place_and_one_name() -> None:
    weights = torch.arange(6, dtype=torch.float32)
    flipped = weights.clone()
    flipped.view(torch.int32)[3] ^= 1
    swapped = weights[[1, 0, 2, 3, 4, 5]]
    seen = [
        checksum_of_weights([("a", weights)]),
        checksum_of_weights([("a", flipped)]),
        checksum_of_weights([("a", swapped)]),
        checksum_of_weights([("b", weights)]),
        checksum_of_weights([("a", weights.view(2, 3))]),
    ]
    assert len(set(seen)) == len(seen)
    assert checksum_of_weights([("a", weights.clone())]) == seen[0]
    assert all(len(text) == 16 for text in seen)


def test_the_checksum_does_not_depend_on_the_order_in_which_a_mode_gives_its_weights() -> None:
    weights = {name: torch.randn(3) for name in ("a", "b", "c")}
    assert checksum_of_weights(weights.items()) == checksum_of_weights(reversed(list(weights.items())))
