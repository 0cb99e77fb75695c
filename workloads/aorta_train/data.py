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
from aorta_train.precision import low_precision

Sample = dict[str, Tensor]

NUM_WINDOWS = 1 << 22


class RankingSamples(Dataset[Sample]):
    """Sample i: dense (T, F, E) of `dtype`, categorical (T, S) int64, target (T,) 0 or 1, importance (T,) in 0.5..1.5.

    The dense values are a window of a fixed table of normal ones: drawing them anew for each sample would take longer
    than a GPU takes for the step.
    """

    def __init__(self, options: DatasetOptions, dtype: torch.dtype = torch.float32) -> None:
        self.options = options
        self._shape = (options.sequence_length, options.num_dense_features, options.dense_dim)
        self._table = torch.randn(NUM_WINDOWS + math.prod(self._shape), generator=torch.Generator().manual_seed(0))
        self._cast_table = self._table.to(dtype)

    def __len__(self) -> int:
        """Count the samples."""
        return self.options.num_samples

    def __getitem__(self, index: int) -> Sample:
        """Make one sample from its own seed; the target follows from the features, so that it can be learnt."""
        options = self.options
        generator = torch.Generator().manual_seed(options.seed + index)
        positions = options.sequence_length
        first = int(torch.randint(NUM_WINDOWS, (), generator=generator))
        window = slice(first, first + math.prod(self._shape))
        dense = self._table[window].view(self._shape)
        categorical = torch.randint(options.vocab_size, (positions, options.sparse_features), generator=generator)
        noise = torch.randn(positions, generator=generator)
        target = (dense[:, 0, : options.dense_dim // 2 + 1].sum(dim=1) + noise > 0).float()
        importance = torch.rand(positions, generator=generator) + 0.5
        given = self._cast_table[window].view(self._shape)
        return {"dense": given, "categorical": categorical, "target": target, "importance": importance}


@dataclass(frozen=True)
class StepData:
    """The batches of one optimizer step."""

    epoch: int
    step: int
    batches: list[Sample]


def step_data(options: Options, job: Job, on_gpu: bool) -> Iterator[StepData]:
    """Give the batches of this rank without end, epoch after epoch; steps count from 1 in each.

    Dense features come in the type of the matrix products, which the model would cast them to: half the bytes to move.
    """
    samples = RankingSamples(options.dataset, low_precision(options.training) or torch.float32)
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
