"""Every knob of the workload, one frozen dataclass a section, a sentence under each knob.

Defaults are the documented ones. A knob absent from the file, or null, has its default and counts as not set; one that
is set where it does nothing (another mode, another device) is refused by `rules.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from aorta_train.knob import GPUS, knob, mapping_knob

SHARDED = ("fsdp", "fsdp2")


@dataclass(frozen=True)
class Logging:
    """What goes to stderr."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = knob("INFO")
    """The least severe message that is shown; ranks other than 0 show warnings and errors only."""


@dataclass(frozen=True)
class Training:
    """How long and how hard the ranks train."""

    epochs: int = knob(1, at_least=1)
    """Passes over the data; with `max_steps` set and this not, as many passes as the steps need."""
    max_steps: int | None = knob(None, at_least=1)
    """Optimizer steps of the run; null: all steps that the epochs give."""
    batch_size: int = knob(8, at_least=1)
    """Samples a rank works on at once."""
    gradient_accumulation: int = knob(1, at_least=1)
    """Batches whose gradients are added up for one step; gradients travel with the last one only."""
    grad_clip_norm: float = knob(1.0, at_least=0)
    """Largest global norm of the gradients, over all ranks; 0 neither clips nor measures."""
    mixed_precision: Literal["none", "bf16", "fp16"] = knob("bf16")
    """Type of the matrix products and of gathered parameters; fp16 scales the loss."""
    log_interval: int = knob(10, at_least=1)
    """Steps between two progress lines in the log of rank 0."""
    output_dir: str = knob("artifacts")
    """Folder of traces and step lines, relative to the working folder."""
    seed: int = knob(1234, at_least=0)
    """Seed of the weights (the same on every rank) and of dropout (another on every rank)."""
    stop_grace_seconds: float = knob(8.0, above=0, at_most=86_400)
    """A rank in which no step ends for so long after SIGTERM or SIGINT is given up, with all stacks on stderr."""
    inject_allreduce_copies: bool = knob(False)
    """Adds all-reduces and blocking copies after each step, to provoke hangs and poor overlap."""
    allreduce_stress_level: int = knob(1, at_least=1, at_most=10)
    """How many rounds of them, when `inject_allreduce_copies` is true."""


@dataclass(frozen=True)
class Optimizer:
    """The optimizer."""

    name: Literal["adamw", "shampoo"] = knob("adamw")
    """AdamW of torch; shampoo is documented, but refused in this version."""
    lr: float = knob(2e-4, above=0)
    """Peak learning rate."""
    weight_decay: float = knob(1e-2, at_least=0)
    """Decoupled weight decay."""
    betas: tuple[float, float] = knob((0.9, 0.98), at_least=0, below=1)
    """Decay of the first and second moment."""
    eps: float = knob(1e-8, above=0)
    """Added to the root of the second moment."""


@dataclass(frozen=True)
class Scheduler:
    """The learning rate over the steps."""

    warmup_steps: int = knob(200, at_least=0)
    """Steps of linear warm-up."""
    total_steps: int = knob(2000, at_least=0)
    """Steps until the rate has come down to 0, where it stays; 0 keeps it constant after the warm-up."""


@dataclass(frozen=True)
class Dataset:
    """Synthetic ranking data; sample i is made from `seed + i`."""

    num_samples: int = knob(10000, at_least=1)
    """Samples of one epoch over all ranks."""
    sequence_length: int = knob(32, at_least=1)
    """Positions (tokens) of a sample."""
    dense_dim: int = knob(128, at_least=1)
    """Width of one dense feature; must equal `model.dense_dim`."""
    sparse_features: int = knob(16, at_least=1)
    """Categorical features of a position."""
    vocab_size: int = knob(50000, at_least=2)
    """Values of a categorical feature; at most `model.vocab_size`."""
    num_dense_features: int = knob(8, at_least=1)
    """Dense features of a position; must equal `model.num_dense_features`."""
    seed: int = knob(13, at_least=0)
    """Seed of the samples and of their order."""


@dataclass(frozen=True)
class Model:
    """The ranking transformer."""

    vocab_size: int = knob(50000, at_least=2)
    """Rows of the embedding table."""
    embedding_dim: int = knob(128, at_least=1)
    """Width of an embedding."""
    num_dense_features: int = knob(8, at_least=1)
    """Dense features of a position."""
    dense_dim: int = knob(128, at_least=1)
    """Width of one dense feature."""
    model_dim: int = knob(512, at_least=1)
    """Width of the transformer; a multiple of `num_heads`."""
    num_heads: int = knob(8, at_least=1)
    """Attention heads."""
    num_layers: int = knob(6, at_least=1, at_most=10_000)
    """Transformer layers; each is compiled by itself, and `fsdp.layers_per_unit` of them are sharded as one."""
    dropout: float = knob(0.1, at_least=0, below=1)
    """Share of activations dropped in training."""
    mlp_hidden_dim: int = knob(1024, at_least=1)
    """Width inside a layer's MLP."""


@dataclass(frozen=True)
class Fsdp:
    """Sharding; `mode: fsdp` is FullyShardedDataParallel, `mode: fsdp2` is fully_shard."""

    sharding_strategy: Literal["full_shard", "shard_grad_op", "no_shard", "hybrid_shard"] = knob(
        "full_shard", modes=("fsdp",)
    )
    """What is sharded, and over which ranks; hybrid_shard shards inside a node and needs two nodes."""
    backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST", "none"] = knob(
        "BACKWARD_PRE", modes=("fsdp",), devices=GPUS
    )
    """Whether the next unit's parameters are gathered before or after the current gradients, or on demand."""
    forward_prefetch: bool = knob(True, modes=("fsdp",), devices=GPUS)
    """Gathers the next unit's parameters before the current unit computes."""
    limit_all_gathers: bool = knob(True, modes=("fsdp",), devices=GPUS)
    """Keeps at most two all-gathers in flight."""
    use_orig_params: bool = knob(True, modes=("fsdp",))
    """The optimizer sees the model's own parameters, not one flat parameter a unit."""
    sync_module_states: bool = knob(True, modes=("fsdp",))
    """Rank 0 sends its parameters to all before sharding (on CPU done by the trainer, where torch cannot)."""
    layers_per_unit: int = knob(1, at_least=1, modes=SHARDED, neutral=1)
    """Layers that are gathered and reduced together: fewer collectives, larger ones, and less work for the host."""
    param_init_device: Literal["cpu", "meta", "device"] = knob("cpu", modes=SHARDED)
    """Where parameters are made: in host memory, nowhere until they are sharded, or on the device."""
    reshard_after_forward: bool = knob(True, modes=("fsdp2",))
    """Frees gathered parameters after the forward pass and gathers them again for the backward pass."""
    forward_prefetch_depth: int = knob(0, at_least=0, modes=("fsdp2",), devices=GPUS)
    """Units gathered ahead in the forward pass; 0 leaves it to torch."""
    backward_prefetch_depth: int = knob(0, at_least=0, modes=("fsdp2",), devices=GPUS)
    """Units gathered ahead in the backward pass; 0 leaves it to torch (one unit)."""


@dataclass(frozen=True)
class Distributed:
    """How the ranks work together."""

    mode: Literal["fsdp", "fsdp2", "ddp"] = knob("fsdp")
    """FullyShardedDataParallel, fully_shard, or DistributedDataParallel."""
    device: Literal["auto", "cpu", "gpu"] = knob("auto")
    """auto: the GPUs if torch sees any, else the CPU (gloo)."""
    timeout_seconds: int = knob(600, at_least=1, at_most=1_000_000)
    """A collective that takes longer ends the job."""
    gradient_as_bucket_view: bool = knob(True, modes=("ddp",))
    """Gradients live in the buckets that travel, which saves a copy."""
    static_graph: bool = knob(False, modes=("ddp",))
    """Tells DDP that every step uses the same parameters in the same order."""
    bucket_cap_mb: float = knob(25, above=0, at_most=1_000_000, modes=("ddp",))
    """Size of a gradient bucket in MB."""
    find_unused_parameters: bool = knob(False, modes=("ddp",))
    """Looks for parameters without gradient in every step."""


@dataclass(frozen=True)
class Compile:
    """torch.compile, applied to each layer."""

    enabled: bool = knob(False)
    """Compiles the layers."""
    backend: str = knob("inductor")
    """A backend name of torch.compile."""
    mode: str = knob("max-autotune")
    """A mode of the inductor backend; other backends and `options` go without."""
    fullgraph: bool = knob(False)
    """A graph break is an error."""
    dynamic: bool = knob(False)
    """Compiles for any shape at once."""
    options: dict[str, Any] = mapping_knob(dict)  # noqa: RUF009  (a field, as knob makes one)
    """Options of the inductor backend."""
    fallback: bool = knob(False)
    """A layer that cannot be compiled runs eagerly, and the last step line says so; otherwise it is an error."""


@dataclass(frozen=True)
class Dataloader:
    """How samples reach a rank."""

    num_workers: int = knob(4, at_least=0)
    """Processes that make samples; 0 makes them in the rank itself."""
    pin_memory: bool = knob(True, devices=GPUS)
    """Puts batches in page-locked memory, so that they travel to the GPU while it computes."""


@dataclass(frozen=True)
class Profiling:
    """The torch profiler."""

    enabled: bool = knob(False)
    """Records and exports traces."""
    wait: int = knob(1, at_least=0)
    """Steps before a cycle's warm-up."""
    warmup: int = knob(1, at_least=0)
    """Steps in which the profiler runs and its record is thrown away."""
    active: int = knob(2, at_least=1)
    """Steps recorded in a cycle."""
    repeat: int = knob(1, at_least=1)
    """Cycles; each is a file of its own."""
    record_shapes: bool = knob(True)
    """Records the shapes of operator inputs."""
    profile_memory: bool = knob(True)
    """Records allocations."""
    with_stack: bool = knob(False)
    """Records Python source lines."""
    with_flops: bool = knob(False)
    """Estimates the operations of matrix products and convolutions."""
    tensorboard: bool = knob(False)
    """Writes `<host>_<pid>.<time>.pt.trace.json`."""
    chrome_trace: bool = knob(True)
    """Writes `trace_filename`; on ROCm the same trace gets the tensorboard name unless `force_chrome_trace` is true."""
    force_chrome_trace: bool = knob(False, devices=("rocm",))
    """Writes `trace_filename` on ROCm too."""
    trace_filename: str = knob("trace.json")
    """Name of the chrome trace; with several cycles `_step<N>` is added."""
    gzip: bool = knob(False)
    """Compresses the files and adds `.gz`."""
    stream_timing: Literal["off", "light", "full"] = knob("off", devices=GPUS, neutral="off")
    """Adds `profile` to the step lines: light times the phases of a step, full its computation and its collectives."""


@dataclass(frozen=True)
class Benchmark:
    """What the speed is held against."""

    measure_peak: bool = knob(False)
    """Times matrix products of the run's type before the training, and holds the model's operations against them."""
    peak_tflops: float | None = knob(None, at_least=0.001, at_most=1_000_000)
    """The device's known peak, in place of a measured one."""


@dataclass(frozen=True)
class Streams:
    """Where collectives run."""

    comm_priority: Literal["high", "normal"] | None = knob(None, devices=GPUS)
    """Priority of the streams of collectives, whatever TORCH_NCCL_HIGH_PRIORITY says; null leaves it to torch."""


@dataclass(frozen=True)
class Tuning:
    """Experiments whose effect shows in a trace."""

    gemm_chunks: int = knob(1, at_least=1, at_most=64)
    """Launches into which each matrix product of a layer is split, by positions; the results stay, up to rounding."""
    max_sms: int | None = knob(None, at_least=1, devices=GPUS)
    """Compute units that a matrix product occupies at most (ROCm: where it is a stream-K kernel)."""
    async_copy_mb: int | None = knob(None, at_least=1, devices=GPUS)
    """Size in MB of a device copy that each layer launches on another stream, awaited when the next layer is done."""


@dataclass(frozen=True)
class FaultInjection:
    """Makes one rank fail on purpose, to validate the harness that watches the run; never for a measurement."""

    kind: Literal["none", "raise", "exit", "hang", "kill", "nan", "oom"] = knob("none")
    """Raises an error, exits, sleeps for ever, is killed (SIGKILL), gets a loss that is no number, or no memory."""
    rank: int = knob(0, at_least=0)
    """The rank that fails."""
    step: int = knob(1, at_least=1)
    """The step (counted from 1) at whose beginning it fails."""
    exit_code: int = knob(13, at_least=1, at_most=255)
    """Exit code of kind exit."""


@dataclass(frozen=True)
class Options:
    """The whole configuration of a run."""

    logging: Logging = field(default_factory=Logging)
    training: Training = field(default_factory=Training)
    optimizer: Optimizer = field(default_factory=Optimizer)
    scheduler: Scheduler = field(default_factory=Scheduler)
    dataset: Dataset = field(default_factory=Dataset)
    model: Model = field(default_factory=Model)
    fsdp: Fsdp = field(default_factory=Fsdp)
    distributed: Distributed = field(default_factory=Distributed)
    compile: Compile = field(default_factory=Compile)
    dataloader: Dataloader = field(default_factory=Dataloader)
    profiling: Profiling = field(default_factory=Profiling)
    benchmark: Benchmark = field(default_factory=Benchmark)
    streams: Streams = field(default_factory=Streams)
    tuning: Tuning = field(default_factory=Tuning)
    fault_injection: FaultInjection = field(default_factory=FaultInjection)
    explicit: frozenset[str] = frozenset()
    """Dotted names of the knobs that the file or an override set."""
