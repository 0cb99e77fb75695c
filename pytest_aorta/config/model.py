"""The run configuration and the thresholds: every field with its default and what it means."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_aorta.config.cluster_file import ClusterFile
from pytest_aorta.config.container import Container
from pytest_aorta.config.fields import (
    BelowWorkload,
    CloneUrl,
    Command,
    Count,
    Directory,
    EnvMap,
    OverrideKey,
    Port,
    ProgramName,
    RelativePath,
    SchemaVersion,
    Seconds,
    Section,
    Text,
    UrlOrEmpty,
    WorkDir,
    ZeroOrOne,
)
from pytest_aorta.config.host_names import HostNameOrNone

Ratio = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class Paths(Section):
    """Folders of the site, kept for files of the published suite; `{paths.x}` refers to them anywhere."""

    shared_fs: str = Field(description="Storage that every node sees.")
    models_dir: str = Field(description="Where models lie.")
    log_dir: str = Field(description="Where logs go.")
    hf_token_file: str = Field(description="File with a model hub's token.")


class Model(Section):
    """What is trained, as reports name it."""

    id: str = Field(description="Name of the workload or model.")
    remote: ZeroOrOne = Field(description="Must be 0: fetching models from elsewhere is not supported.")
    precision: str = Field(default="", description="Number format, for reports.")


class Rccl(Section):
    """The collective library that `build_script` builds."""

    clone_url: CloneUrl = Field(default="https://github.com/ROCm/rccl", description="Repository to clone.")
    branch: Text = Field(default="develop", description="Branch to build.")
    build_path: Directory = Field(default="/mnt/rccl", description="Folder of the clone, as the workload sees it.")


class Analysis(Section):
    """Optional analysis, and which parser turns traces into metrics."""

    enable_tracelens: bool = Field(default=False, description="Write kernel tables (checkout: run tracelens_script).")
    enable_gemm_analysis: bool = Field(
        default=False, description="Write matrix-product tables (checkout: run gemm_script)."
    )
    tracelens_script: RelativePath = Field(
        default="scripts/tracelens_single_config/run_tracelens_single_config.sh",
        description="Analysis script of a checkout.",
    )
    gemm_script: RelativePath = Field(
        default="scripts/gemm_analysis/run_tracelens_analysis.sh", description="Matrix-product script of a checkout."
    )
    skip_if_exists: bool = Field(default=False, description="Do not repeat an analysis that is already there.")
    parser: Literal["auto", "timeline", "tracelens", "excel", "basic"] = Field(
        default="auto",
        description="Where metrics come from; auto: Excel reports of a single node if collected, else timeline.",
    )


class MultiNode(Section):
    """How the ranks are launched."""

    master_launch_mode: Literal["auto", "script", "torchrun"] = Field(
        default="auto", description="auto: the experiment script on one node, torchrun on several."
    )
    nproc_per_node: int = Field(default=0, ge=0, le=100_000, description="Ranks on each node; 0: gpus_per_node.")
    master_port: Port = Field(default=0, description="Rendezvous port; 0: a free one of the head node.")
    master_addr: HostNameOrNone = Field(default="", description="Rendezvous address; empty: the head node's.")
    train_script: RelativePath = Field(default="train.py", description="What torchrun starts.")
    extra_torchrun_args: tuple[str, ...] = Field(
        default=(), description="Shell fragments between torchrun's and the script."
    )
    extra_train_args: tuple[str, ...] = Field(default=(), description="Shell fragments at the end of the command.")
    extra_env: EnvMap = Field(default={}, repr=False, description="Variables that win over container.env and our own.")
    collect_traces: bool = Field(default=True, description="Traces of every node; false: the head node's newest only.")


class Workload(Section):
    """Any workload in place of the trainer."""

    command: Command = Field(description="Program and arguments.")
    launcher: Literal["torchrun", "none"] = Field(
        default="none", description="torchrun: once a rank, by torchrun; none: once a node, as it is."
    )
    traces: BelowWorkload | None = Field(
        default=None, description="Glob of the traces it writes, below its working folder."
    )
    log: BelowWorkload | None = Field(default=None, description="A log file it writes, beside its output.")


class KernelLog(Section):
    """The scan of each node's kernel log."""

    enabled: bool = Field(default=True, description="Whether it is scanned.")
    required: bool = Field(default=True, description="Whether a log that cannot be read is a failure.")


class Gate(Section):
    """A limit for any metric of metrics.json."""

    metric: Text = Field(description="Name of the metric, as in metrics.json.")
    kind: Literal["max", "min", "within"] = Field(description="max: at most; min: at least; within: near the value.")
    value: float = Field(description="The limit, in the metric's unit.")
    tolerance: NotNegative | None = Field(default=None, description="For within: how far away is still near, absolute.")
    over: Literal["mean", "max", "min", "each"] = Field(
        default="mean", description="Over the ranks: their mean, largest or smallest, or a judgement for each."
    )


class Thresholds(Section):
    """The four documented limits; null is not configured."""

    max_avg_iteration_ms: NotNegative | None = Field(
        default=None, description="Mean over ranks of the trace's length, ms."
    )
    min_compute_ratio: Ratio | None = Field(default=None, description="Mean over ranks of compute over total time.")
    min_overlap_ratio: Ratio | None = Field(default=None, description="Mean over ranks of the documented overlap.")
    max_time_variance_ratio: NotNegative | None = Field(
        default=None, description="Spread of trace lengths over their mean."
    )

    def any_set(self) -> bool:
        """Tell whether at least one limit is configured."""
        return any(value is not None for _, value in self)


class ThresholdFile(Section):
    """A threshold file."""

    expected_results: Thresholds = Field(default=Thresholds(), description="The limits.")


class RunConfig(Section):
    """One validation of one cluster, as a JSON or YAML file says it."""

    schema_version: SchemaVersion = Field(description="Must be 1.")
    gpus_per_node: Count = Field(description="GPUs on each node; without GPUs, ranks on each node.")
    enforce_thresholds: bool = Field(default=True, description="Judge the metrics; false: record them only.")
    threshold_json: str = Field(
        default="", description="Threshold file; empty: the one *threshold.json beside this file."
    )
    gates: tuple[Gate, ...] = Field(default=(), description="Limits beside the four documented ones.")
    cluster: ClusterFile | str | None = Field(
        default=None, description="The nodes, here or in a file; absent: this machine."
    )
    accelerator: Literal["auto", "rocm", "cuda", "cpu"] = Field(
        default="auto",
        description="What the ranks compute on; auto: rocm with /dev/kfd, cuda with /dev/nvidia0, else cpu.",
    )
    container: Container | None = Field(default=None, description="Absent: on the host itself.")
    aorta_path: Directory | None = Field(
        default=None, description="Checkout on every node; absent: the bundled tree is sent."
    )
    container_mount_path: Directory = Field(default="/mnt", description="Where the container sees aorta_path.")
    aorta_auto_clone: bool = Field(default=False, description="Clone aorta_clone_url where the checkout is missing.")
    aorta_clone_url: UrlOrEmpty = Field(default="", description="Repository to clone.")
    base_config: RelativePath = Field(default="config/distributed.yaml", description="The workload's YAML.")
    build_script: RelativePath = Field(default="scripts/build_rccl.sh", description="Builds the collective library.")
    experiment_script: RelativePath = Field(
        default="scripts/rccl_exp.sh", description="Starts the workload in script mode."
    )
    skip_rccl_build: bool | None = Field(default=None, description="Absent: true unless accelerator is rocm.")
    training_overrides: dict[OverrideKey, Any] = Field(
        default={}, description="Dotted overrides for the workload's YAML, such as training.max_steps."
    )
    workload: Workload | None = Field(default=None, description="Any workload in place of the trainer.")
    multi_node: MultiNode = Field(default=MultiNode(), description="How the ranks are launched.")
    rccl: Rccl = Field(default=Rccl(), description="The collective library.")
    analysis: Analysis = Field(default=Analysis(), description="Optional analysis and the parser.")
    timeout_seconds: int = Field(default=3600, gt=0, le=100_000_000, description="Limit of each phase by itself.")
    failure_grace_seconds: Seconds = Field(default=30, description="How long others may go on after a rank failed.")
    stall_seconds: Seconds = Field(
        default=120,
        description="Without a step for this long the run is ended as failed, and it is said what hangs.",
    )
    lease_seconds: Seconds = Field(
        default=120, ge=5, description="A node program that hears nothing for this long cleans up."
    )
    kernel_log: KernelLog = Field(default=KernelLog(), description="The kernel-log scan.")
    evidence: dict[str, Literal["fail", "warn", "off"] | bool] = Field(
        default={}, description="Checks set to fail, warn, off."
    )
    python: ProgramName | None = Field(
        default=None,
        description="What starts torchrun; absent: the Python that runs pytest, in a container or elsewhere python3.",
    )
    work_dir: WorkDir | None = Field(
        default=None, description="Work folder on each node, absolute or below ~/; absent: below ~/.cache."
    )
    output_dir: Text = Field(default="aorta_results", description="Run folders, on the machine that runs pytest.")
    paths: Paths | None = Field(default=None, description="Folders of the site.")
    model: Model | None = Field(default=None, description="What is trained.")
