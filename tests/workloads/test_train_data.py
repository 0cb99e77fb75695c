from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.data import RankingSamples, leave_signals_to_the_rank, step_data
from aorta_train.job import Job
from aorta_train.loading import load
from aorta_train.options import Dataset, Options

pytestmark = pytest.mark.torch


def job_of(rank: int) -> Job:
    return Job(rank, 2, rank, 2, launched=True)


@pytest.fixture
def options(tiny_config: Path) -> Options:
    return load(tiny_config, ["dataset.num_samples=100", "training.batch_size=4", "training.gradient_accumulation=3"])


def fingerprints(options: Options, rank: int, num_steps: int) -> list[float]:
    steps = itertools.islice(step_data(options, job_of(rank), on_gpu=False), num_steps)
    return [float(value) for step in steps for batch in step.batches for value in batch["dense"].sum(dim=(1, 2, 3))]


def test_a_sample_has_the_documented_fields() -> None:
    options = Dataset(sequence_length=5, dense_dim=3, sparse_features=2, vocab_size=7, num_dense_features=4)
    sample = RankingSamples(options)[0]
    assert {name: tuple(value.shape) for name, value in sample.items()} == {
        "dense": (5, 4, 3),
        "categorical": (5, 2),
        "target": (5,),
        "importance": (5,),
    }
    assert set(sample["target"].tolist()) <= {0.0, 1.0}
    assert 0 <= int(sample["categorical"].min()) <= int(sample["categorical"].max()) < 7


def test_a_sample_is_made_from_its_own_seed() -> None:
    left = RankingSamples(Dataset(seed=10))[3]
    right = RankingSamples(Dataset(seed=11))[2]
    assert torch.equal(left["dense"], right["dense"])
    assert not torch.equal(left["dense"], RankingSamples(Dataset(seed=10))[4]["dense"])


def test_the_type_of_the_matrix_products_changes_the_dense_values_alone() -> None:
    full, cast = RankingSamples(Dataset())[3], RankingSamples(Dataset(), torch.bfloat16)[3]
    assert torch.equal(cast.pop("dense"), full.pop("dense").to(torch.bfloat16))
    assert all(torch.equal(cast[name], full[name]) for name in full)


def test_dense_values_are_normal() -> None:
    values = torch.stack([RankingSamples(Dataset())[index]["dense"] for index in range(4)])
    assert abs(float(values.mean())) < 0.01
    assert float(values.std()) == pytest.approx(1.0, abs=0.01)


def test_ranks_see_different_samples_and_the_same_ones_again(options: Options) -> None:
    first, second = fingerprints(options, 0, 4), fingerprints(options, 1, 4)
    assert len(first) == len(second) == 4 * 3 * 4
    assert not set(first) & set(second)
    assert first == fingerprints(options, 0, 4)


def test_a_seed_makes_other_samples_in_another_order(options: Options, tiny_config: Path) -> None:
    other = load(tiny_config, ["dataset.num_samples=100", "training.batch_size=4", "dataset.seed=99"])
    assert not set(fingerprints(options, 0, 2)) & set(fingerprints(other, 0, 2))


@pytest.mark.filterwarnings("ignore")
def test_other_processes_make_the_same_samples(options: Options, tiny_config: Path) -> None:
    overrides = ["dataset.num_samples=100", "training.batch_size=4", "training.gradient_accumulation=3"]
    with_processes = load(tiny_config, [*overrides, "dataloader.num_workers=2"])
    assert fingerprints(with_processes, 0, 2) == fingerprints(options, 0, 2)


def test_epochs_follow_each_other_in_another_order(options: Options) -> None:
    steps = list(itertools.islice(step_data(options, job_of(0), on_gpu=False), 9))
    assert [(step.epoch, step.step) for step in steps] == [(epoch, step) for epoch in range(3) for step in range(1, 5)][
        :9
    ]
    assert not torch.equal(steps[0].batches[0]["dense"], steps[4].batches[0]["dense"])


def test_processes_that_make_samples_leave_signals_to_the_rank() -> None:
    earlier = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        leave_signals_to_the_rank(0)
        assert {signal.getsignal(number) for number in earlier} == {signal.SIG_IGN}
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
