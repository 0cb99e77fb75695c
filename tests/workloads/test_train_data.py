from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.data import NUM_WINDOWS, FeatureTable, RankingSamples, leave_signals_to_the_rank, step_data
from aorta_train.job import Job
from aorta_train.loading import load
from aorta_train.options import Dataset, Options

pytestmark = pytest.mark.torch


CPU = torch.device("cpu")


def job_of(rank: int) -> Job:
    return Job(rank, 2, rank, 2, launched=True)


@pytest.fixture
def options(tiny_config: Path) -> Options:
    return load(tiny_config, ["dataset.num_samples=100", "training.batch_size=4", "training.gradient_accumulation=3"])


def fingerprints(options: Options, rank: int, num_steps: int) -> list[float]:
    steps = itertools.islice(step_data(options, job_of(rank), on_gpu=False), num_steps)
    features = FeatureTable(options.dataset, torch.float32, CPU)
    batches = [features.complete(batch) for step in steps for batch in step.batches]
    return [float(value) for batch in batches for value in batch["dense"].sum(dim=(1, 2, 3))]


def test_a_sample_has_the_documented_fields() -> None:
    options = Dataset(sequence_length=5, dense_dim=3, sparse_features=2, vocab_size=7, num_dense_features=4)
    sample = RankingSamples(options)[0]
    assert {name: tuple(value.shape) for name, value in sample.items()} == {
        "first": (),
        "categorical": (5, 2),
        "target": (5,),
        "importance": (5,),
    }
    assert set(sample["target"].tolist()) <= {0.0, 1.0}
    assert 0 <= int(sample["categorical"].min()) <= int(sample["categorical"].max()) < 7


def test_a_sample_is_made_from_its_own_seed() -> None:
    left, right = RankingSamples(Dataset(seed=10))[3], RankingSamples(Dataset(seed=11))[2]
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert left["first"] != RankingSamples(Dataset(seed=10))[4]["first"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_is_completed_by_the_windows_of_its_samples(dtype: torch.dtype) -> None:
    options = Dataset(sequence_length=5, dense_dim=3, num_dense_features=4)
    samples = [RankingSamples(options)[index] for index in (7, 2)]
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    features = FeatureTable(options, dtype, CPU)
    whole = features.complete(batch)
    assert sorted(whole) == ["categorical", "dense", "importance", "target"]
    assert whole["dense"].shape == (2, 5, 4, 3)
    assert whole["dense"].dtype == dtype
    for sample, dense in zip(samples, whole["dense"], strict=True):
        assert torch.equal(dense, features.window(int(sample["first"])))


def test_the_last_window_lies_within_the_table() -> None:
    features = FeatureTable(Dataset(), torch.float32, CPU)
    last = torch.tensor([NUM_WINDOWS - 1])
    assert torch.equal(features.complete({"first": last})["dense"][0], features.window(NUM_WINDOWS - 1))


def test_the_target_can_be_learnt_from_the_dense_features() -> None:
    options = Dataset()
    samples = [RankingSamples(options)[index] for index in range(20)]
    features = FeatureTable(options, torch.float32, CPU)
    sums = [features.window(int(s["first"]))[:, 0, : options.dense_dim // 2 + 1].sum(dim=1) for s in samples]
    agree = [((total > 0).float() == sample["target"]).float() for total, sample in zip(sums, samples, strict=True)]
    assert torch.cat(agree).mean() > 0.8


def test_dense_values_are_normal() -> None:
    features = FeatureTable(Dataset(), torch.float32, CPU)
    values = torch.stack([features.window(int(RankingSamples(Dataset())[index]["first"])) for index in range(4)])
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
    assert not torch.equal(steps[0].batches[0]["first"], steps[4].batches[0]["first"])


def test_processes_that_make_samples_leave_signals_to_the_rank() -> None:
    earlier = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        leave_signals_to_the_rank(0)
        assert {signal.getsignal(number) for number in earlier} == {signal.SIG_IGN}
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
