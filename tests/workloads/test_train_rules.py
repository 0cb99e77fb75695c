from __future__ import annotations

from pathlib import Path

import pytest
from aorta_train.loading import load
from aorta_train.options import Options
from aorta_train.refusal import Refusal
from aorta_train.rules import faults_in_job, faults_on_device, num_steps


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty.yaml"
    path.write_text("{}")
    return path


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["distributed.mode=fsdp2", "fsdp.use_orig_params=true"],
            "fsdp.use_orig_params: does nothing in distributed.mode fsdp2",
        ),
        (["distributed.mode=ddp", "fsdp.param_init_device=meta"], "it belongs to fsdp and fsdp2"),
        (["distributed.mode=fsdp", "distributed.bucket_cap_mb=5"], "distributed.bucket_cap_mb: does nothing in"),
        (["fsdp.reshard_after_forward=true"], "fsdp.reshard_after_forward: does nothing in distributed.mode fsdp "),
        (["model.num_heads=7"], "model.model_dim: is 512, expected a multiple of model.num_heads (7)"),
        (["model.dense_dim=64"], "model.dense_dim: is 64, expected dataset.dense_dim (128)"),
        (["dataset.num_dense_features=3"], "model.num_dense_features: is 8, expected dataset.num_dense_features (3)"),
        (["dataset.vocab_size=50001"], "dataset.vocab_size: is 50001, expected at most model.vocab_size (50000)"),
        (["scheduler.total_steps=100"], "scheduler.warmup_steps: 200 is above scheduler.total_steps 100"),
        (
            ["compile.enabled=true", "compile.backend=eager", "compile.mode=default"],
            "compile.mode: does nothing with backend eager",
        ),
        (["compile.enabled=true", "compile.mode=default", "compile.options.x=1"], "takes a mode or options, not both"),
        (["compile.enabled=true", "fsdp.use_orig_params=false"], "compiled layers need true under fsdp"),
        (["profiling.enabled=true", "profiling.chrome_trace=false"], "no trace would be written"),
        (["profiling.trace_filename=../x.json"], "expected a file name that ends with .json"),
        (["profiling.trace_filename=x.txt"], "expected a file name that ends with .json"),
        (
            ["distributed.mode=ddp", "distributed.static_graph=true", "training.gradient_accumulation=2"],
            "distributed.static_graph: is true, but DDP cannot hold the gradients of a batch back then",
        ),
        (["optimizer.name=shampoo"], "optimizer.name: shampoo"),
        (
            ["tuning.gemm_chunks=9", "training.batch_size=2", "dataset.sequence_length=4"],
            "tuning.gemm_chunks: is 9, but a batch has 8 positions",
        ),
        (
            ["benchmark.measure_peak=true", "benchmark.peak_tflops=800"],
            "peak_tflops: is given and measure_peak",
        ),
        (
            ["profiling.enabled=true", "training.max_steps=7", "profiling.repeat=2"],
            "profiling: (wait 1 + warmup 1 + active 2) x repeat 2 needs 8 steps, but the run has 7",
        ),
    ],
)
def test_knobs_that_do_not_fit_together_are_refused(empty: Path, overrides: list[str], sentence: str) -> None:
    with pytest.raises(Refusal) as refusal:
        load(empty, overrides)
    assert sentence in str(refusal.value)
    assert len(refusal.value.faults) == 1


def test_the_schedule_may_fill_the_run_exactly(empty: Path) -> None:
    load(empty, ["profiling.enabled=true", "training.max_steps=8", "profiling.repeat=2"])


GPU_KNOBS = [
    "fsdp.backward_prefetch=none",
    "fsdp.forward_prefetch=false",
    "fsdp.limit_all_gathers=true",
    "dataloader.pin_memory=true",
    "streams.comm_priority=high",
    "streams.comm_priority=normal",
    "tuning.max_sms=64",
    "tuning.async_copy_mb=8",
    "profiling.stream_timing=light",
    "profiling.stream_timing=full",
]


@pytest.mark.parametrize("override", GPU_KNOBS)
def test_knobs_of_gpu_streams_are_refused_on_cpu(empty: Path, override: str) -> None:
    options = load(empty, [override])
    name = override.split("=", maxsplit=1)[0]
    assert faults_on_device(options, "cpu") == [
        f"{name}: does nothing on cpu (it acts on cuda and rocm); leave it out or null"
    ]
    assert faults_on_device(options, "cuda") == []


def test_asking_for_no_stream_timing_is_welcome_everywhere(empty: Path) -> None:
    options = load(empty, ["profiling.stream_timing=off"])
    assert faults_on_device(options, "cpu") == faults_on_device(options, "cuda") == []


@pytest.mark.parametrize("override", ["fsdp.forward_prefetch_depth=2", "fsdp.backward_prefetch_depth=2"])
def test_prefetch_depths_are_refused_on_cpu(empty: Path, override: str) -> None:
    options = load(empty, ["distributed.mode=fsdp2", override])
    assert len(faults_on_device(options, "cpu")) == 1
    assert faults_on_device(options, "rocm") == []


def test_nothing_is_sent_before_sharding_from_meta_on_cpu(empty: Path) -> None:
    options = load(empty, ["fsdp.param_init_device=meta", "fsdp.sync_module_states=true"])
    assert "there is nothing to send on cpu" in faults_on_device(options, "cpu")[0]
    assert faults_on_device(options, "cuda") == []


def test_forcing_the_chrome_trace_belongs_to_rocm(empty: Path) -> None:
    options = load(empty, ["profiling.force_chrome_trace=true"])
    assert "acts on rocm" in faults_on_device(options, "cuda")[0]
    assert faults_on_device(options, "rocm") == []


def job_faults(path: Path, overrides: list[str], world_size: int, local_world_size: int) -> list[str]:
    return faults_in_job(load(path, overrides), world_size, local_world_size)


def test_hybrid_sharding_needs_nodes_and_ranks_on_them(empty: Path) -> None:
    overrides = ["fsdp.sharding_strategy=hybrid_shard"]
    assert "needs two nodes or more" in job_faults(empty, overrides, 4, 4)[0]
    assert "needs two ranks or more on a node" in job_faults(empty, overrides, 4, 1)[0]
    assert "3 ranks are no multiple of the 2 here" in job_faults(empty, overrides, 3, 2)[0]
    assert job_faults(empty, overrides, 4, 2) == []


def test_too_few_samples_for_one_step_are_refused(empty: Path) -> None:
    assert job_faults(empty, ["dataset.num_samples=31", "training.gradient_accumulation=2"], 2, 2) == [
        "dataset.num_samples: is 31, but one step of 2 ranks takes 32"
    ]


def test_explicit_epochs_that_give_fewer_steps_are_refused(empty: Path) -> None:
    faults = job_faults(empty, ["training.epochs=1", "training.max_steps=700"], 2, 2)
    numbers = "training.epochs 1 with dataset.num_samples 10000 give 625 on 2 ranks"
    assert faults == [f"training.max_steps: is 700, but {numbers}; leave training.epochs out or raise it"]


def test_a_schedule_is_held_against_the_steps_of_the_epochs(empty: Path) -> None:
    overrides = ["dataset.num_samples=48", "profiling.enabled=true"]
    assert "needs 4 steps, but the run has 3" in job_faults(empty, overrides, 2, 2)[0]
    assert job_faults(empty, overrides, 1, 1) == []


def test_a_fault_after_the_last_step_is_refused(empty: Path) -> None:
    overrides = ["training.max_steps=5", "profiling.enabled=false", "fault_injection.kind=nan"]
    assert job_faults(empty, [*overrides, "fault_injection.step=5"], 2, 2) == []
    faults = job_faults(empty, [*overrides, "fault_injection.step=6"], 2, 2)
    assert faults == ["fault_injection.step: is 6, but the run has 5 steps"]


def test_a_fault_on_a_rank_that_is_not_there_is_refused(empty: Path) -> None:
    assert "the job has 2 ranks" in job_faults(empty, ["fault_injection.kind=raise", "fault_injection.rank=2"], 2, 2)[0]


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        ([], 625),
        (["training.epochs=2"], 1250),
        (["training.max_steps=700"], 700),
        (["training.max_steps=7", "training.epochs=1"], 7),
    ],
)
def test_steps_of_the_run(empty: Path, overrides: list[str], steps: int) -> None:
    options: Options = load(empty, overrides)
    assert num_steps(options, 2) == steps
