"""Synthetic ranking data: the same sample i on every machine, other samples on every rank."""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from aorta_train.job import Job
from aorta_train.options import Dataset as DatasetOptions
from aorta_train.options import Options

Sample = dict[str, Tensor]

NUM_WINDOWS = 1 << 22


class FeatureTable:
    """Dense features, (T, F, E) a sample: a window of a table of normal values, the same one everywhere.

    Drawing them anew for each sample, or bringing them to a GPU, would take longer than its step.
    """

    def __init__(self, options: DatasetOptions, dtype: torch.dtype, device: torch.device) -> None:
        self._shape = (options.sequence_length, options.num_dense_features, options.dense_dim)
        num_values = NUM_WINDOWS + math.prod(self._shape)
        drawn = torch.randn(num_values, generator=torch.Generator().manual_seed(0))
        self._values = drawn.to(device, dtype)

    def window(self, first: int) -> Tensor:
        """Give the dense features (T, F, E) that begin at a value, as a view of the table."""
        return self._values[first : first + math.prod(self._shape)].view(self._shape)

    def complete(self, batch: Sample) -> Sample:
        """Put `dense`, (B, T, F, E), into a batch that tells `first`, (B,), where its windows begin."""
        windows = self._values.as_strided((NUM_WINDOWS, math.prod(self._shape)), (1, 1))
        dense = windows.index_select(0, batch["first"]).view(-1, *self._shape)
        return {"dense": dense, **{name: values for name, values in batch.items() if name != "first"}}


class RankingSamples(Dataset[Sample]):
    """Sample i: first () int64, where its dense features begin, categorical (T, S) int64, target and importance (T,).

    A target is 0 or 1, an importance lies in 0.5..1.5.
    """

    def __init__(self, options: DatasetOptions) -> None:
        self.options = options
        self._table = FeatureTable(options, torch.float32, torch.device("cpu"))

    def __len__(self) -> int:
        """Count the samples."""
        return self.options.num_samples

    def __getitem__(self, index: int) -> Sample:
        """Make one sample from its own seed; the target follows from the features, so that it can be learnt."""
        options = self.options
        generator = torch.Generator().manual_seed(options.seed + index)
        positions = options.sequence_length
        first = torch.randint(NUM_WINDOWS, (), generator=generator)
        dense = self._table.window(int(first))
        categorical = torch.randint(options.vocab_size, (positions, options.sparse_features), generator=generator)
        noise = torch.randn(positions, generator=generator)
        target = (dense[:, 0, : options.dense_dim // 2 + 1].sum(dim=1) + noise > 0).float()
        importance = torch.rand(positions, generator=generator) + 0.5
        return {"first": first, "categorical": categorical, "target": target, "importance": importance}


@dataclass(frozen=True)
class StepData:
    """The batches of one optimizer step."""

    epoch: int
    step: int
    batches: list[Sample]


def step_data(options: Options, job: Job, on_gpu: bool) -> Iterator[StepData]:
    """Give the batches of this rank without end, epoch after epoch; steps count from 1 in each."""
    samples = RankingSamples(options.dataset)
    sampler: DistributedSampler[Any] = DistributedSampler(
        samples, num_replicas=job.world_size, rank=job.rank, shuffle=True, seed=options.dataset.seed, drop_last=True
    )
    num_workers = options.dataloader.num_workers
    loader = DataLoader(
        samples,
        batch_size=options.training.batch_size,
        sampler=sampler,
        drop_last=True,
        num_workers=num_workers,
        pin_memory=on_gpu and options.dataloader.pin_memory,
        persistent_workers=num_workers > 0,
        worker_init_fn=leave_signals_to_the_rank,
    )
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        batches = iter(loader)
        for step in itertools.count(1):
            group = list(itertools.islice(batches, options.training.gradient_accumulation))
            if len(group) < options.training.gradient_accumulation:
                break
            yield StepData(epoch, step, group)


def leave_signals_to_the_rank(worker: int) -> None:
    """Let a process that makes samples outlive a SIGTERM to the whole group: the rank needs it to finish its step."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def to_device(batch: Sample, device: torch.device) -> Sample:
    """Copy a batch to the device, without waiting where its memory is page-locked."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
