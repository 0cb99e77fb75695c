"""The Run Deck's page: aorta_run_deck.html, drawn from the deck's document and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from urllib.parse import quote

from markupsafe import Markup

from pytest_aorta.ranks import place_of
from pytest_aorta.reporting import figures, figures_bars, figures_grid
from pytest_aorta.reporting.deck import ABSENT
from pytest_aorta.reporting.deck_document import (
    DeckChartMetric,
    DeckDocument,
    DeckFailure,
    DeckHeatmap,
    DeckSeries,
    DeckSpec,
    DeckStage,
    DeckSteps,
    DeckTimeSplit,
    Status,
)
from pytest_aorta.reporting.deck_gates import write_quantity
from pytest_aorta.reporting.figures import NO_LEGEND, Figure, Legend, Line
from pytest_aorta.reporting.html_rows import TEMPLATES, render
from pytest_aorta.reporting.margin import margin

DECK = "Run Deck"
"""The label under which reports name a deck's page."""
NAME = "aorta_run_deck"
PAGE, DATA = f"{NAME}.html", f"{NAME}.json"
MAX_FAILURES = 20
MAX_KERNEL_LINES = 40
MAX_NOTES = 12
MAX_VALUES = 8
MAX_HOSTS = 8
MAX_TABLE_RANKS = 128
MAX_SORTED_BARS = 64
MAX_OPEN_BARS = 16
LEAST_DISTRIBUTION = 512

BADGES: dict[Status, str] = {"pass": "PASS", "fail": "FAIL", "record": "RECORD", "na": "N/A"}
_STAGE_COLOURS = {"passed": figures.GREEN, "failed": figures.RED, "interrupted": figures.ORANGE}
_VERDICT_COLOURS = {"pass": figures.GREEN, "fail": figures.RED}
# What is the same thing has one colour in every chart.
_SERIES_COLOURS = {"Compute": figures.GREEN, "Comm time": figures.ORANGE, "Comm overlap": figures.PURPLE}
_SPLIT_COLOURS = {
    "computation": figures.GREEN,
    "exposed communication": figures.ORANGE,
    "exposed copies": figures.PURPLE,
    "idle": figures.GREY,
}
_QUANTILES = (("least", 0.0), ("5 %", 0.05), ("median", 0.5), ("95 %", 0.95), ("greatest", 1.0))


@dataclass(frozen=True, slots=True)
class DeckPlace:
    """Where a deck is to stand, and what it links; `labels` are the stages' labels by test name."""

    page: Path
    labels: Mapping[str, str]
    html: Path | None = None
    log: Path | None = None

    @property
    def data(self) -> Path:
        """Its JSON document."""
        return self.page.with_suffix(".json")

    @property
    def beside(self) -> tuple[Path, Path]:
        """The files that stand beside the page: its JSON document and its style sheet."""
        return self.data, self.page.with_suffix(".css")


@dataclass(frozen=True, slots=True)
class _Chart:
    """A figure with its heading, its legend, and the same numbers as a table; None is drawn where words say it all."""

    heading: str
    figure: Figure | None
    legend: Legend = NO_LEGEND
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    folded: bool = False


def render_deck(deck: DeckDocument, *, name: str = NAME) -> str:
    """Draw the page: complete without scripts, its style sheet inside and once more beside it as `<name>.css`."""
    sweep = deck.datasets.training_sweep
    return (
        render(
            "deck.jinja",
            deck=deck,
            badges=BADGES,
            absent=ABSENT,
            dashed=_cell,
            panels={panel.id: panel.title for panel in deck.panels},
            tone=_tone(deck),
            css=Markup(deck_stylesheet()),  # noqa: S704 our own file
            css_name=quote(f"{name}.css"),
            data_name=f"{name}.json",
            stages=_stage_bars(deck.stages),
            gates=[(spec, write_quantity(spec.actual, spec.unit, spec.name), _limit(spec), _gate_bar(spec))
                   for cell in deck.cells for one in cell.metrics if (spec := one.spec) is not None],
            broken=_broken(deck),
            not_judged=[one for one in deck.summary.not_judged if one not in deck.summary.sentence],
            has_reasons=any(one.spec.reason for cell in deck.cells for one in cell.metrics if one.spec is not None),
            failures=_failures(deck.summary.failures[:MAX_FAILURES]),
            highlights=_highlights(deck),
            rank_charts=_rank_charts(deck),
            grids=_grids(deck),
            spread=_spread(deck),
            split=_split(sweep.time_split, deck),
            steps=_steps(sweep.steps, deck) if sweep.steps is not None else None,
            results=[[_cell_text(header, value) for header, value in zip(deck.results_table.headers, row, strict=True)]
                     for row in deck.results_table.rows],
            max_failures=MAX_FAILURES,
            max_kernel_lines=MAX_KERNEL_LINES,
            max_notes=MAX_NOTES,
            max_values=MAX_VALUES,
            max_hosts=MAX_HOSTS,
        )
        + "\n"
    )  # fmt: skip


def deck_stylesheet() -> str:
    """Give the style sheet of the page."""
    return (TEMPLATES / "deck.css").read_text(encoding="utf-8")


def deck_links(folder: str) -> str:
    """Give the fragment of the pytest-html report that links the deck in a folder beside it."""
    return render("deck_links.jinja", page=f"{folder}/{PAGE}", data=f"{folder}/{DATA}")


def _tone(deck: DeckDocument) -> str:
    """Give the banner's colour: green only when stages passed and something was judged."""
    if deck.summary.verdict != "passed":
        return "bad" if deck.summary.verdict == "failed" else "unsure"
    return {"pass": "good", "fail": "bad", "record": "plain", "na": "plain"}[deck.overall_status]


def _stage_bars(stages: Sequence[DeckStage]) -> list[tuple[DeckStage, Figure | None]]:
    """Give each stage its bar on the time of all; none where it took no time that can be seen."""
    total = math.fsum(stage.seconds or 0.0 for stage in stages)
    drawn: list[tuple[DeckStage, Figure | None]] = []
    start = 0.0
    for stage in stages:
        bar = None
        if stage.seconds is not None and round(stage.seconds, 1) > 0:
            words = f"{stage.label}: {stage.seconds:.1f} s"
            colour = _STAGE_COLOURS.get(stage.outcome, figures.GREY)
            bar = figures_bars.stage_bar(start, stage.seconds, total, colour, words)
        start += stage.seconds or 0.0
        drawn.append((stage, bar))
    return drawn


def _broken(deck: DeckDocument) -> list[tuple[DeckSpec, str, str, str]]:
    """Give each broken gate with its value, its limit, and by how much it is broken."""
    specs = [one.spec for cell in deck.cells for one in cell.metrics if one.spec is not None]
    return [
        (
            spec,
            write_quantity(spec.actual, spec.unit, spec.name),
            _limit(spec),
            margin(spec.kind, spec.actual, spec.value, spec.tolerance),
        )
        for spec in specs
        if spec.verdict == "fail"
    ]


def _failures(failures: Sequence[DeckFailure]) -> list[tuple[DeckFailure, int]]:
    """Give each failure with the number of rows that its next step stands for; 0 where it stands above already."""
    spans: list[tuple[DeckFailure, int]] = []
    for _, group in groupby(failures, key=lambda one: (one.stage, one.next_step)):
        members = list(group)
        spans += [(one, len(members) if index == 0 else 0) for index, one in enumerate(members)]
    return spans


def _gate_bar(spec: DeckSpec) -> Figure:
    colour = _VERDICT_COLOURS.get(spec.verdict, figures.BLUE)
    return figures_bars.gate_bar(spec.kind, spec.actual, spec.value, spec.tolerance, colour=colour)


def _limit(spec: DeckSpec) -> str:
    sign = {"max": "≤ ", "min": "≥ ", "within": ""}[spec.kind]
    spread = f" ± {write_quantity(spec.tolerance, spec.unit, spec.name)}" if spec.tolerance is not None else ""
    return f"{sign}{write_quantity(spec.value, spec.unit, spec.name)}{spread}"


def _highlights(deck: DeckDocument) -> list[tuple[str, str]]:
    if not deck.cells:
        return []
    actuals, prefix = deck.cells[0].actuals, deck.deck_profile.metric_prefix
    shown = {
        "Avg iteration": ("avg_iteration_time_ms", "ms"),
        "Compute ratio": ("avg_compute_ratio", ""),
        "Overlap ratio": ("avg_overlap_ratio", ""),
        "Time variance": ("time_variance_ratio", ""),
        "Comm time": ("avg_comm_time_ms", "ms"),
    }
    found = {label: (actuals.get(prefix + name), unit) for label, (name, unit) in shown.items()}
    return [(label, ABSENT if value is None else write_quantity(value, unit)) for label, (value, unit) in found.items()]


def _cell_text(header: str, value: str | float) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}" if header in {"Nodes", "Ranks"} else str(value)
    return f"{value:,.2f}" if header.endswith("(ms)") else f"{value:,.4f}"


def _rank_charts(deck: DeckDocument) -> list[_Chart]:
    charts = deck.datasets.training_sweep.metric_charts
    by_chart: dict[str, list[tuple[DeckChartMetric, DeckSeries]]] = {}
    for metric, series in zip(charts.metrics, charts.series, strict=True):
        by_chart.setdefault(metric.chart, []).append((metric, series))
    return [_rank_chart(name, members, deck) for name, members in by_chart.items()]


def _rank_chart(name: str, members: Sequence[tuple[DeckChartMetric, DeckSeries]], deck: DeckDocument) -> _Chart:
    lines: list[Line] = []
    x: tuple[float, ...] = ()
    for metric, series in members:
        x, line = figures.binned(series.x, metric.label, _SERIES_COLOURS.get(metric.label, figures.BLUE), series.y)
        lines.append(line)
    ranks, unit = members[0][1].x, members[0][0].unit
    many = len(ranks) > figures.MAX_POINTS
    size = math.ceil(len(ranks) / len(x)) if x else 1
    label = f"{name} of {len(ranks)} ranks: {', '.join(metric.label for metric, _ in members)}"
    if len(ranks) <= MAX_TABLE_RANKS:
        headers = ("Rank", "Host", *(f"{metric.label} ({metric.unit})" for metric, _ in members))
        rows = tuple(
            (str(rank), _host(rank, deck), *(_cell(series.y[at]) for _, series in members))
            for at, rank in enumerate(ranks)
        )
    else:
        headers = ("Over ranks", *(f"{metric.label} ({metric.unit})" for metric, _ in members))
        rows = tuple(
            (words, *(_cell(_quantile(_known(series.y), share)) for _, series in members))
            for words, share in _QUANTILES
        )
    note = (
        f"A point is {size} ranks: the line is their median, the band reaches from least to greatest." if many else ""
    )
    if not any(value for _, series in members for value in series.y):
        return _Chart(name, None, note=f"0 {unit} on every rank.")
    return _Chart(name, figures.line_chart(label, x, lines, x_label="rank", unit=unit), NO_LEGEND, headers, rows, note)


def _grids(deck: DeckDocument) -> list[_Chart]:
    return [_grid(one, deck) for one in deck.datasets.training_sweep.metric_charts.heatmaps]


def _grid(one: DeckHeatmap, deck: DeckDocument) -> _Chart:
    """Draw a grid in the configured order of hosts; a rank that was not parsed has an empty cell.

    Where nobody knows which host has which rank, each rank stands for itself.
    """
    is_delay = one.key == "caused_delay_ms"
    bands = figures_grid.SHARE if is_delay else figures_grid.DEVIATION
    known = dict(zip(one.ranks, zip(one.values, one.shares, strict=True), strict=True))
    ranks: Sequence[int] = range(len(deck.hosts) * deck.ranks_per_host) if deck.ranks_per_host else one.ranks
    names = deck.hosts if deck.ranks_per_host else tuple(f"rank {rank}" for rank in one.ranks)
    shares = [known[rank][1] if rank in known else None for rank in ranks]
    titles = []
    if len(ranks) <= figures_grid.MAX_TITLED_CELLS:
        titles = [_cell_title(rank, known.get(rank), one, deck, signed=not is_delay) for rank in ranks]
    seen = {next(band.label for band in bands if share <= band.below) for share in _known(shares)}
    heading = f"{one.label}, against {one.compared_with}"
    if len(seen) == 1 and None not in shares:
        return _Chart(heading, None, note=f"All {len(ranks):,} ranks: {seen.pop()}.")
    figure = figures_grid.grid(
        f"{one.label} of {len(one.ranks)} ranks against {one.compared_with}",
        shares, titles, rows=deck.ranks_per_host or 1, bands=bands, hosts=names,
    )  # fmt: skip
    shown = [(band.colour, band.label) for band in bands if band.label in seen]
    if None in shares:
        shown.append((figures_grid.MISSING, "not measured"))
    outside = len(known.keys() - set(ranks))
    note = f"Ranks that belong to no configured host are not drawn: {outside}." if outside else ""
    return _Chart(heading, figure, Legend.of(shown), note=note)


def _cell_title(
    rank: int, known: tuple[float | None, float | None] | None, one: DeckHeatmap, deck: DeckDocument, *, signed: bool
) -> str:
    where = f"rank {rank}, {_host(rank, deck)}"
    if known is None or known[0] is None or known[1] is None:
        return f"{where}: not measured"
    share = f"{known[1] * 100:+.1f} %" if signed else f"{known[1] * 100:.1f} %"
    return f"{where}: {known[0]:,.2f} {one.unit} ({share})"


def _spread(deck: DeckDocument) -> _Chart | None:
    """Draw the ranks sorted up to 64, their distribution above 512; between them the grid says it all."""
    series = next((s for s in deck.datasets.training_sweep.metric_charts.series if s.key == "iteration_ms"), None)
    if series is None:
        return None
    known = [(value, rank) for rank, value in zip(series.x, series.y, strict=True) if value is not None]
    if len(known) > LEAST_DISTRIBUTION:
        values = [value for value, _ in known]
        return _Chart("Iteration time, distribution over ranks",
                      figures_bars.histogram(f"Iteration time of {len(values)} ranks", values, unit="ms"))  # fmt: skip
    if not known or len(known) > MAX_SORTED_BARS:
        return None
    middle = median(value for value, _ in known)
    rows = [
        (f"rank {rank} · {_host(rank, deck)}", float(value), figures.ORANGE if value > middle * 1.03 else figures.BLUE)
        for value, rank in sorted(known, key=lambda pair: (-pair[0], pair[1]))
    ]
    figure = figures_bars.bars(f"Iteration time of {len(rows)} ranks, slowest first", rows, unit="ms")
    return _Chart("Iteration time, slowest rank first", figure, folded=len(rows) > MAX_OPEN_BARS)


def _split(split: Sequence[DeckTimeSplit], deck: DeckDocument) -> _Chart | None:
    if not split:
        return None
    rows = [
        ("mean of all ranks" if one.rank is None else f"rank {one.rank} · {_host(one.rank, deck)}", one.parts_ms)
        for one in split
    ]
    kinds = tuple(dict.fromkeys(kind for one in split for kind in one.parts_ms))
    is_chosen = split[0].rank is None
    draw = figures_bars.stacked_bars if is_chosen else figures_bars.stacked_columns
    note = "The mean of all ranks, then those that stand out." if is_chosen else ""
    return _Chart(
        "Where the time goes",
        draw("Time of each rank by kind", rows, _SPLIT_COLOURS),
        Legend.of((_SPLIT_COLOURS[kind], kind) for kind in kinds),
        ("Rank", *(f"{kind} (ms)" for kind in kinds)),
        tuple((name, *(_cell(parts.get(kind)) for kind in kinds)) for name, parts in rows),
        note,
    )


def _steps(steps: DeckSteps, deck: DeckDocument) -> _Chart:
    line = Line("Median of the ranks", figures.BLUE, steps.median_ms, steps.min_ms, steps.max_ms)
    figure = figures.line_chart(
        f"Step time over {len(steps.steps)} steps of {steps.num_ranks} ranks",
        steps.steps, (Line("Slowest rank", figures.ORANGE, steps.max_ms), line), x_label="step", unit="ms",
    )  # fmt: skip
    slowest = sorted(zip(steps.max_ms, steps.steps, steps.slowest_rank, steps.median_ms, strict=True), reverse=True)[
        :10
    ]
    of_hosts = f"{steps.num_hosts} of {len(deck.hosts)} hosts" if steps.num_hosts < len(deck.hosts) else "all hosts"
    note = f"Of {steps.num_ranks:,} ranks on {of_hosts}, from the step logs."
    if steps.profiled_steps:
        note += f" Profiled: steps {_ranges(steps.profiled_steps)}."
    return _Chart(
        "Step time", figure, NO_LEGEND, ("Step", "Slowest (ms)", "Rank", "Median (ms)"),
        tuple((str(step), _cell(most), str(rank), _cell(middle)) for most, step, rank, middle in slowest), note,
    )  # fmt: skip


def _ranges(numbers: Sequence[int]) -> str:
    """Write whole numbers as ranges: `3 to 5, 9`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in parts[:MAX_VALUES])


def _host(rank: int, deck: DeckDocument) -> str:
    host, local = place_of(rank, deck.hosts, deck.ranks_per_host)
    return ABSENT if host is None else host if local is None else f"{host} #{local}"


def _cell(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.2f}"


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _quantile(values: Sequence[float], share: float) -> float | None:
    return sorted(values)[round(share * (len(values) - 1))] if values else None
