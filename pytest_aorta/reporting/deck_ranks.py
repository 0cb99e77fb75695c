"""The ranks of a deck: series, grids, where the time went, and which ranks stand out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from pytest_aorta.metric import Metric
from pytest_aorta.ranks import place_of
from pytest_aorta.reporting.deck_document import (
    DeckChartMetric,
    DeckCharts,
    DeckHeatmap,
    DeckRank,
    DeckSeries,
    DeckTimeSplit,
)

NUM_WORST = 10
MAX_DRAWN_RANKS = 64
LEAST_RANKS = 2
GROUP = "Per rank"
TIME_CHART, SHARE_CHART, OVERLAP_CHART = "Time (ms)", "Share of iteration (%)", "Comm overlap (%)"
_DIGITS = 6

_ITERATION, _COMPUTE, _COMM, _OVERLAP = (
    "avg_iteration_time_ms",
    "avg_compute_ratio",
    "avg_comm_ratio",
    "avg_overlap_ratio",
)
# Kind of time -> the metric that holds it, in µs; together they make a rank's whole trace.
_PARTS: Mapping[str, str] = {
    "computation": "computation_time_us",
    "exposed communication": "exposed_comm_time_us",
    "exposed copies": "exposed_memcpy_time_us",
    "idle": "idle_time_us",
}
_STEP_REFERENCES = ("profiled_step_time_ms_median", "step_time_ms_median")

ByRank = Mapping[int, float | None]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Every rank that was parsed, in order, with what each contributed to the metrics."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    ranks_per_host: int
    metrics: Mapping[str, Metric]

    @classmethod
    def of(cls, metrics: Mapping[str, Metric], hosts: tuple[str, ...], ranks_per_host: int) -> Ranks:
        """Take the ranks from the metrics; a trace whose rank is not known is none."""
        known = {one.rank for metric in metrics.values() for one in metric.per_rank if one.rank >= 0}
        return cls(tuple(sorted(known)), hosts, ranks_per_host, metrics)

    def place(self, rank: int) -> tuple[str | None, int | None]:
        """Give a rank's host and local rank, None where it is outside the configured machinery."""
        return place_of(rank, self.hosts, self.ranks_per_host)

    def charts(self) -> DeckCharts:
        """Give the six lines by rank and the grids; nothing for a single rank."""
        if len(self.ranks) < LEAST_RANKS:
            return DeckCharts()
        iteration = by_rank(self.metrics, _ITERATION)
        lines: list[tuple[str, str, str, ByRank]] = [
            ("iteration_ms", "Iteration", TIME_CHART, iteration),
            ("compute_ms", "Compute", TIME_CHART, times_ms(self.metrics, _COMPUTE)),
            ("comm_ms", "Comm time", TIME_CHART, times_ms(self.metrics, _COMM)),
            ("compute_share", "Compute", SHARE_CHART, _percent(by_rank(self.metrics, _COMPUTE))),
            ("comm_share", "Comm time", SHARE_CHART, _percent(by_rank(self.metrics, _COMM))),
            ("comm_overlap", "Comm overlap", OVERLAP_CHART, _percent(by_rank(self.metrics, _OVERLAP))),
        ]
        drawn = [line for line in lines if any(value is not None for value in line[3].values())]
        return DeckCharts(
            metrics=tuple(
                DeckChartMetric(key=key, label=label, unit="ms" if chart == TIME_CHART else "%", chart=chart)
                for key, label, chart, _ in drawn
            ),
            heatmaps=tuple(self._heatmaps()),
            series=tuple(
                DeckSeries(key=key, group=GROUP, x_label="rank", x=self.ranks, y=self._in_order(values))
                for key, _, _, values in drawn
            ),
        )

    def time_split(self) -> tuple[DeckTimeSplit, ...]:
        """Give where the time went: of every rank, above 64 ranks the mean of all and the ranks that stand out."""
        columns = {kind: by_rank(self.metrics, name) for kind, name in _PARTS.items()}
        columns = {kind: values for kind, values in columns.items() if any(v is not None for v in values.values())}
        if not columns or len(self.ranks) < LEAST_RANKS:
            return ()
        shown = self.ranks if len(self.ranks) <= MAX_DRAWN_RANKS else tuple(rank.rank for rank in self.worst())
        rows = [DeckTimeSplit(rank=rank, parts_ms=_parts_ms(columns, rank)) for rank in shown]
        if len(self.ranks) > MAX_DRAWN_RANKS:
            means = {kind: _mean_ms(values.values()) for kind, values in columns.items()}
            rows.insert(0, DeckTimeSplit(rank=None, parts_ms=means))
        return tuple(rows)

    def worst(self) -> tuple[DeckRank, ...]:
        """Give the ranks that stand out: those the others wait for most, else the slowest."""
        if len(self.ranks) < LEAST_RANKS:
            return ()
        iteration, caused = by_rank(self.metrics, _ITERATION), by_rank(self.metrics, "caused_delay_ms_per_step")
        step, wait = by_rank(self.metrics, "step_time_ms_median"), by_rank(self.metrics, "exposed_wait_ms")
        middle = _median(iteration.values())

        def badness(rank: int) -> tuple[float, float, float, int]:
            return (-(caused.get(rank) or 0.0), -(iteration.get(rank) or 0.0), -(step.get(rank) or 0.0), rank)

        found = []
        for rank in sorted(self.ranks, key=badness)[:NUM_WORST]:
            host, local = self.place(rank)
            time = iteration.get(rank)
            found.append(
                DeckRank(
                    rank=rank,
                    host=host,
                    local_rank=local,
                    iteration_ms=_short(time),
                    over_median_ms=_short(time - middle) if time is not None and middle is not None else None,
                    step_ms=_short(step.get(rank)),
                    wait_ms=_short(wait.get(rank)),
                    caused_delay_ms=_short(caused.get(rank)),
                )
            )
        return tuple(found)

    def _heatmaps(self) -> list[DeckHeatmap]:
        compute_us = by_rank(self.metrics, "computation_time_us")
        of_median = {
            ("iteration_ms", "Iteration time"): by_rank(self.metrics, _ITERATION),
            ("computation_ms", "Computation"): {r: None if v is None else v / 1000 for r, v in compute_us.items()},
            ("step_ms", "Step time (median)"): by_rank(self.metrics, "step_time_ms_median"),
        }
        maps = []
        for (key, label), values in of_median.items():
            middle = _median(values.values())
            if middle:
                shares = {r: None if v is None else (v - middle) / middle for r, v in values.items()}
                maps.append(self._heatmap(key, label, "the median rank", values, shares))
        caused = by_rank(self.metrics, "caused_delay_ms_per_step")
        references = (self.metrics.get(name) for name in _STEP_REFERENCES)
        step_ms = next((metric.value for metric in references if metric is not None and metric.value), None)
        if step_ms is not None and any(value is not None for value in caused.values()):
            shares = {r: None if v is None else v / step_ms for r, v in caused.items()}
            maps.append(self._heatmap("caused_delay_ms", "Delay caused, a step", "a whole step", caused, shares))
        return maps

    def _heatmap(self, key: str, label: str, compared_with: str, values: ByRank, shares: ByRank) -> DeckHeatmap:
        return DeckHeatmap(
            key=key,
            label=label,
            unit="ms",
            compared_with=compared_with,
            ranks=self.ranks,
            values=self._in_order(values),
            shares=self._in_order(shares),
        )

    def _in_order(self, values: ByRank) -> tuple[float | None, ...]:
        return tuple(_short(values.get(rank)) for rank in self.ranks)


NO_RANKS = Ranks((), (), 1, {})


def by_rank(metrics: Mapping[str, Metric], name: str) -> ByRank:
    """Give what each rank contributed to a metric; a number that is none counts as not measured."""
    metric = metrics.get(name)
    per_rank = metric.per_rank if metric is not None else ()
    return {one.rank: one.value if one.value is not None and math.isfinite(one.value) else None for one in per_rank}


def times_ms(metrics: Mapping[str, Metric], share: str) -> ByRank:
    """Give the time that a ratio is a share of the iteration, rank by rank, in ms.

    Taken from the ratio because it is the one whose meaning of communication the source decided.
    """
    iteration, ratios = by_rank(metrics, _ITERATION), by_rank(metrics, share)
    return {rank: _product(iteration.get(rank), ratio) for rank, ratio in ratios.items()}


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def _percent(values: ByRank) -> ByRank:
    return {rank: None if value is None else value * 100 for rank, value in values.items()}


def _parts_ms(columns: Mapping[str, ByRank], rank: int) -> dict[str, float]:
    found = {kind: values.get(rank) for kind, values in columns.items()}
    return {kind: round(value / 1000, _DIGITS) for kind, value in found.items() if value is not None}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean_ms(values: Iterable[float | None]) -> float:
    known = _known(values)
    return round(fmean(known) / 1000, _DIGITS) if known else 0.0


def _median(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return median(known) if known else None


def _short(value: float | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)
