"""DeckDocument: the Run Deck as data, aorta_run_deck.json; the page is drawn from nothing else."""

from __future__ import annotations

from typing import Literal

from pytest_aorta.reporting.document import Document, HintPart
from pytest_aorta.reporting.model import Outcome, RunVerdict, StageVerdict

Status = Literal["pass", "fail", "record", "na"]
GateVerdict = Literal["pass", "fail", "record", "not evaluated"]
ThresholdsState = Literal["enforced", "record-only", "not evaluated"]
Number = float | int | None


class DeckReport(Document):
    """What the page says of itself, and the names that its tables are made of."""

    title: str
    subtitle: str
    footer: str
    metric_tier_order: tuple[str, ...]
    headline_metric: str
    session_lifecycle_labels: dict[str, str]


class DeckProvenance(Document):
    """Where the deck comes from; what is not known is null."""

    run_id: str
    pytest_html_path: str | None
    pytest_html_href: str | None
    log_file_path: str | None
    log_file_href: str | None
    cluster_file: str | None
    config_file: str | None
    judged_by: str | None
    git_commit: str | None
    cvs_version: str


class DeckSpec(Document):
    """The limit of a metric, and how it was judged."""

    name: str
    kind: Literal["max", "min", "within"]
    value: float
    tolerance: float | None
    unit: str
    actual: float | None
    verdict: GateVerdict
    reason: str


class DeckMetric(Document):
    """One metric of a cell; `spec` is null where no limit is configured."""

    metric: str
    status: Status
    spec: DeckSpec | None


class DeckCell(Document):
    """The one result of a run. Ratios are fractions; what was not measured is left out of `actuals`."""

    cell_id: str
    actuals: dict[str, float | int]
    tiers: dict[str, Status]
    metrics: tuple[DeckMetric, ...]


class DeckMatrixRow(Document):
    """A cell's status in each tier."""

    cell_id: str
    values: dict[str, Status]


class DeckMatrix(Document):
    """Cells by tiers."""

    tiers: tuple[str, ...]
    rows: tuple[DeckMatrixRow, ...]


class DeckTable(Document):
    """A table as it is shown; a dash stands for what is absent."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str | float | int, ...], ...]


class DeckChartMetric(Document):
    """What a series shows."""

    key: str
    label: str
    unit: str
    chart: str


class DeckSeries(Document):
    """A line by rank: `y[i]` is that of rank `x[i]`, in the unit of its metric; shares are percent."""

    key: str
    group: str
    x_label: str
    x: tuple[int, ...]
    y: tuple[Number, ...]


class DeckHeatmap(Document):
    """A value for each rank, in rank order, with the share by which it is coloured."""

    key: str
    label: str
    unit: str
    compared_with: str
    ranks: tuple[int, ...]
    values: tuple[Number, ...]
    shares: tuple[Number, ...]


class DeckCharts(Document):
    """Everything that is drawn by rank."""

    metrics: tuple[DeckChartMetric, ...] = ()
    heatmaps: tuple[DeckHeatmap, ...] = ()
    series: tuple[DeckSeries, ...] = ()


class DeckTimeSplit(Document):
    """Where the time of a rank went, in ms by kind; `rank` is null for the mean of all."""

    rank: int | None
    parts_ms: dict[str, float]


class DeckSteps(Document):
    """Step times over steps: least, median and greatest of the ranks that were read, in ms."""

    steps: tuple[int, ...]
    min_ms: tuple[float, ...]
    median_ms: tuple[float, ...]
    max_ms: tuple[float, ...]
    slowest_rank: tuple[int, ...]
    profiled_steps: tuple[int, ...]
    num_ranks: int
    num_hosts: int


class DeckSweep(Document):
    """The one dataset."""

    cells: tuple[DeckCell, ...]
    metric_charts: DeckCharts
    time_split: tuple[DeckTimeSplit, ...]
    steps: DeckSteps | None


class DeckDatasets(Document):
    """The datasets by name."""

    training_sweep: DeckSweep


class DeckPanel(Document):
    """A section of the page; `id` is its anchor."""

    id: str
    title: str


class DeckProfile(Document):
    """Which kind of deck it is."""

    name: Literal["aorta"]
    metric_prefix: str


class DeckStage(Document):
    """A stage with its outcome; `verdict` tells a bad measurement from none."""

    name: str
    label: str
    outcome: Outcome
    verdict: StageVerdict
    seconds: float | None
    reason: str


class DeckFailure(Document):
    """One thing that went wrong: where, what, and what to do next."""

    stage: str
    what: str
    host: str | None
    rank: int | None
    reason: str
    next_step: str


class DeckRank(Document):
    """A rank that stands out."""

    rank: int
    host: str | None
    local_rank: int | None
    iteration_ms: float | None
    over_median_ms: float | None
    step_ms: float | None
    wait_ms: float | None
    caused_delay_ms: float | None


class DeckStraggler(Document):
    """The rank that the others wait for."""

    rank: int
    host: str | None
    text: str


class DeckSummary(Document):
    """The run in short: its verdict (of all stages, which `overall_status` is not), causes, and what stands out."""

    verdict: RunVerdict
    sentence: str
    first_cause: str
    next_step: str
    num_hosts: int
    num_ranks: int
    num_gates: int
    num_gates_failed: int
    hint: HintPart | None
    not_judged: tuple[str, ...]
    failures: tuple[DeckFailure, ...]
    straggler: DeckStraggler | None
    worst_ranks: tuple[DeckRank, ...]


class DeckKernelLine(Document):
    """What the kernel log of a host was judged to say."""

    host: str | None
    state: Literal["failed", "warned", "not_judged"]
    text: str
    next_step: str


class DeckValue(Document):
    """A value that some hosts have."""

    value: str
    hosts: tuple[str, ...]


class DeckEnvironmentRow(Document):
    """A fact of the hosts, the most common value first; more than one value is a difference."""

    name: str
    values: tuple[DeckValue, ...]


class DeckDocument(Document):
    """aorta_run_deck.json: a run in one document, schema version 1."""

    schema_version: Literal[1] = 1
    suite_id: Literal["aorta"] = "aorta"
    generated_at: str
    cvs_version: str
    overall_status: Status
    thresholds_state: ThresholdsState
    report: DeckReport
    run_card_display: tuple[tuple[str, str, bool], ...]
    run_card_notes: tuple[str, ...]
    provenance: DeckProvenance
    lifecycle: dict[str, float]
    stages: tuple[DeckStage, ...]
    cells: tuple[DeckCell, ...]
    gate_matrix: DeckMatrix
    results_table: DeckTable
    datasets: DeckDatasets
    panels: tuple[DeckPanel, ...]
    deck_profile: DeckProfile
    summary: DeckSummary
    hosts: tuple[str, ...]
    ranks_per_host: int
    kernel_log: tuple[DeckKernelLine, ...]
    environment: tuple[tuple[str, str], ...]
    host_environment: tuple[DeckEnvironmentRow, ...]
