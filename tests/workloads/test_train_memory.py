from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.memory import memory_needed, memory_peak_bytes
from aorta_train.refusal import TrainingFailed

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def test_want_of_memory_becomes_a_sentence() -> None:
    with pytest.raises(TrainingFailed) as failure, memory_needed("in step 7", 3, CPU):
        torch.empty(1 << 50, dtype=torch.uint8)
    sentence = str(failure.value)
    assert sentence.startswith("out of memory on rank 3 in step 7: ")
    assert "GB resident at most; lower training.batch_size" in sentence
    assert failure.value.__cause__ is None


def test_the_error_of_a_gpu_is_one_too() -> None:
    with pytest.raises(TrainingFailed), memory_needed("in step 1", 0, CPU):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes do not fit"), memory_needed("in step 1", 0, CPU):
        raise RuntimeError("shapes do not fit")


def test_the_peak_counts_bytes() -> None:
    before = memory_peak_bytes(CPU)
    held = torch.ones(200_000_000, dtype=torch.uint8)
    assert memory_peak_bytes(CPU) >= max(before, held.nbytes)
