"""Products: what stages hand on, small frozen documents kept in run.json."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from pytest_aorta.checks import Check

Accelerator = Literal["rocm", "cuda", "cpu"]
Status = Literal["pending", "running", "completed", "failed", "timeout"]


class Product(BaseModel):
    """What a stage gives; `checks` are what it measured, `notes` are warnings for its row, `failure` is what the
    stage says when checks failed (else the checks' own reasons are joined).

    A product that is not `stored` describes something live (a container, a port) and cannot be taken up by a later
    session.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    stored: ClassVar[bool] = False

    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""

    @property
    def usable(self) -> bool:
        """Tell whether a later stage can work with it."""
        return True


class LogWindow(BaseModel):
    """Where a host's kernel log is read from: seconds since boot, of the boot with this id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    boot_id: str
    since_uptime_s: float


class Containers(Product):
    """Where the workload will run on each host, and the folder that is ours there."""

    engine: str
    by_host: dict[str, str]
    work_dirs: dict[str, str]
    accelerator: Accelerator
    log_windows: dict[str, LogWindow]


class WorkloadTree(Product):
    """The workload's files on each host: the folder it runs in, and what it is (`commit` or `sha256`)."""

    source: Literal["bundled", "checkout", "foreign"]
    root: dict[str, str]
    identity: str


class Fabric(Product):
    """RDMA devices of each host, as checked; empty where a configuration does without."""

    devices: dict[str, tuple[str, ...]] = {}


class Rccl(Product):
    """The RCCL build: `library` and `commit` as the build script printed them, None when nothing was built."""

    stored: ClassVar[bool] = True

    built: bool = False
    library: str | None = None
    commit: str | None = None


class Execution(Product):
    """One launch of the workload: exit codes by host (None: still running when it was given up).

    `launched_at_s` and `ended_at_s` are seconds since the epoch on the machine that runs pytest; `workload` is what was
    run, as WorkloadTree identifies it. `ranks_seen` were running, on `rank_hosts`, by their environment. `unlisted`
    says of hosts why it is not known which files they had before the launch.
    """

    stored: ClassVar[bool] = True

    started: bool
    status: Status
    exit_codes: dict[str, int | None] = {}
    error_message: str = ""
    duration_seconds: float = 0.0
    launched_at_s: float = 0.0
    ended_at_s: float = 0.0
    roots: dict[str, str]
    work_dirs: dict[str, str]
    floors_ns: dict[str, int]
    unlisted: dict[str, str] = {}
    accelerator: Accelerator
    ranks_seen: tuple[int, ...] = ()
    rank_hosts: tuple[str, ...] = ()
    nccl_channels: int | None = None
    kernel_log_notes: int | None = None
    workload: str = ""


class Artifacts(Product):
    """What was brought back; paths are relative to the run folder."""

    stored: ClassVar[bool] = True

    layout: Literal["combined", "single"]
    torch_traces: str | None
    trees: dict[str, tuple[str, ...]] = {}
    logs: dict[str, str] = {}
    errors: dict[str, str] = {}
    accelerator: Accelerator
    completed: bool = True
    kernel_log_notes: int | None = None

    @property
    def usable(self) -> bool:
        """Tell whether there is any trace tree to parse."""
        return self.torch_traces is not None


class Analysis(Product):
    """Tables of the optional analysis, relative to the run folder."""

    files: tuple[str, ...] = ()


class RankRow(BaseModel):
    """One rank of the result, as in the report's `per_rank_summary`; times in µs, None where not measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int
    device: str | None
    source: str
    total_time_us: float | None
    compute_ratio: float | None
    comm_ratio: float | None
    overlap_ratio: float | None


class Straggler(BaseModel):
    """The rank that the others wait for (None: its trace names none), and what to do about it in words."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int | None
    kind: str
    caused_delay_ms_per_step: float
    text: str


class Result(Product):
    """The parsed result; every metric with its unit and source stands in metrics.json.

    `missing_ranks`: those without a trace, of many the first.
    """

    stored: ClassVar[bool] = True

    source: str
    num_profiled_steps: int | None
    ranks: tuple[RankRow, ...]
    missing_ranks: tuple[int, ...] = ()
    num_missing_ranks: int = 0
    straggler: Straggler | None = None


class Verdicts(Product):
    """Every gate's check; `enforced` tells whether they could fail the run."""

    stored: ClassVar[bool] = True

    enforced: bool


class Report(Product):
    """The documents written, relative to the run folder."""

    files: tuple[str, ...]


class Removed(Product):
    """What teardown took away, in words."""

    what: tuple[str, ...]


def stored_types() -> dict[str, type[Product]]:
    """Give the product types that a later session can take up, by name."""
    return {kind.__name__: kind for kind in Product.__subclasses__() if kind.stored}


def revive(name: str, document: dict[str, Any]) -> Product:
    """Make a stored product from its document in run.json.

    Raises:
        KeyError: no stored product has that name.
        pydantic.ValidationError: the document is not that product.
    """
    return stored_types()[name].model_validate(document)
