"""Tuning knobs and what a step needs of a GPU, on one device."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the workload needs torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "workloads"))

import torch
from aorta_train.async_copy import AsyncCopy, copy_beside_layers
from aorta_train.compute_units import cap_compute_units
from aorta_train.data import step_data
from aorta_train.job import Job
from aorta_train.loading import load
from aorta_train.memory import memory_needed
from aorta_train.model import build, loss_of
from aorta_train.optim import make_optimizer
from aorta_train.options import Model, Optimizer
from aorta_train.peak import measured_tflops
from aorta_train.refusal import Refusal, TrainingFailed
from torch.profiler import ProfilerActivity

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # torch warns that its cap of compute units is experimental
]

GPU = torch.device("cuda", 0)
MODEL = Model(
    vocab_size=100,
    embedding_dim=64,
    num_dense_features=4,
    dense_dim=32,
    model_dim=256,
    num_heads=4,
    num_layers=3,
    dropout=0.0,
    mlp_hidden_dim=512,
)


def events_of(action: Callable[[], object], folder: Path) -> list[dict[str, Any]]:
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profile:
        torch.cuda._sleep(1000)  # type: ignore[no-untyped-call]
        action()
        torch.cuda.synchronize()
    path = folder / "trace.json"
    profile.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy")]


def batch() -> tuple[Any, Any]:
    generator = torch.Generator(device=GPU).manual_seed(0)
    dense = torch.randn(4, 32, 4, 32, device=GPU, generator=generator)
    return dense, torch.zeros(4, 32, 3, dtype=torch.int64, device=GPU)


@pytest.mark.parametrize("compiled", [False, True])
def test_products_in_pieces_give_the_same_loss_and_gradients(compiled: bool) -> None:
    seen = []
    for num_chunks in (1, 4):
        model = build(MODEL, 1, GPU, num_chunks)
        for layer in model.layers:
            if compiled:
                layer.forward = torch.compile(layer.forward)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(*batch())
        loss: Any = loss_of(logits, torch.ones(4, 32, device=GPU), torch.ones(4, 32, device=GPU))
        loss.backward()
        seen.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    for whole, pieces in zip(*seen, strict=True):
        torch.testing.assert_close(pieces, whole, rtol=5e-2, atol=5e-3)


@pytest.fixture
def uncapped() -> Iterator[None]:
    yield
    torch._C._set_sm_carveout_experimental(None)
    torch.backends.cuda.preferred_blas_library("default")


def blocks_of_product(folder: Path) -> int:
    left, right = (torch.randn(4096, 4096, device=GPU, dtype=torch.bfloat16) for _ in range(2))
    torch.mm(left, right)
    events = events_of(lambda: torch.mm(left, right), folder)
    kernels = [event for event in events if "grid" in event["args"] and "spin_kernel" not in event["name"]]
    return int(max(math.prod(event["args"]["grid"]) for event in kernels))


@pytest.mark.skipif(torch.version.hip is not None, reason="ROCm takes the cap from the environment")
def test_a_product_occupies_no_more_units_than_allowed(uncapped: None, tmp_path: Path) -> None:
    num_units = torch.cuda.get_device_properties(GPU).multi_processor_count
    cap_compute_units(num_units, "cuda", GPU)
    free = blocks_of_product(tmp_path)
    cap_compute_units(num_units // 2, "cuda", GPU)
    assert blocks_of_product(tmp_path) <= num_units // 2 < free


def test_more_units_than_there_are_are_refused() -> None:
    with pytest.raises(Refusal, match=r"tuning\.max_sms: is 100000, but the device has \d+ compute units"):
        cap_compute_units(100000, "cuda", GPU)


def test_a_copy_waits_for_its_producer_and_its_consumer_for_it() -> None:
    copy = AsyncCopy(256, GPU)
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # type: ignore[no-untyped-call]
    copy._source.fill_(7)
    copy.launch()
    copy.wait()
    seen = copy._target.clone()
    torch.cuda.synchronize()
    assert int(seen.min()) == int(seen.max()) == 7


def test_each_layer_launches_one_copy_beside_the_default_stream(tmp_path: Path) -> None:
    model = build(MODEL, 1, GPU)
    copy_beside_layers(model, 8, GPU)
    given = batch()
    model(*given)
    events = events_of(lambda: model(*given), tmp_path)
    copies = [event["args"]["stream"] for event in events if event["args"].get("bytes") == 8_000_000]
    default = {event["args"]["stream"] for event in events if "spin_kernel" in event["name"]}
    assert len(copies) == MODEL.num_layers
    assert len(set(copies)) == 1
    assert not set(copies) & default


@pytest.mark.parametrize("pinned", [True, False])
def test_batches_are_page_locked_when_asked(pinned: bool) -> None:
    config = Path(__file__).parents[2] / "workloads" / "config" / "tiny_cpu.yaml"
    options = load(config, ["distributed.device=gpu", f"dataloader.pin_memory={str(pinned).lower()}"])
    step = next(step_data(options, Job(0, 1, 0, 1, launched=False), on_gpu=True))
    assert {tensor.is_pinned() for tensor in step.batches[0].values()} == {pinned}


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_the_peak_is_measured(name: str) -> None:
    assert measured_tflops(getattr(torch, name), GPU) > 0


def test_want_of_memory_is_a_sentence_with_figures() -> None:
    with pytest.raises(TrainingFailed) as failure, memory_needed("in step 2", 0, GPU):
        torch.empty(1 << 50, dtype=torch.uint8, device=GPU)
    for words in ("out of memory on rank 0 in step 2", "GB allocated", "GB reserved by torch", "GB free on the device"):
        assert words in str(failure.value)


def test_the_fused_optimizer_takes_the_same_step() -> None:
    seen = []
    for device in (torch.device("cpu"), GPU):
        generator = torch.Generator().manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(5, 7, generator=generator).to(device)) for _ in range(3)]
        for parameter in parameters:
            parameter.grad = torch.randn(5, 7, generator=generator).to(device)
        optimizer = make_optimizer(parameters, Optimizer(lr=0.1), device)
        optimizer.step()
        seen.append([parameter.detach().cpu() for parameter in parameters])
        assert bool(optimizer.defaults["fused"]) == (device.type != "cpu")
    for left, right in zip(*seen, strict=True):
        torch.testing.assert_close(left, right)
