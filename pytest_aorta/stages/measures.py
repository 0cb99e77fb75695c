"""The metrics of a run: what metrics.json holds, each with its unit and its source."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from pytest_aorta.config.cluster import Cluster
from pytest_aorta.config.document import PathFault
from pytest_aorta.config.model import RunConfig
from pytest_aorta.metric import Metric, RankValue
from pytest_aorta.trace.lateness import Lateness
from pytest_aorta.trace.lateness_metrics import lateness_quantities
from pytest_aorta.trace.metrics import quantities
from pytest_aorta.trace.step_log import StepLog, performance
from pytest_aorta.trace.summary import RankSummary

WHOLE_TRACE = ("avg_iteration_time_ms", "std_iteration_time_ms", "min_iteration_time_ms", "max_iteration_time_ms")

MAX_HINTS = 20


def collect_metrics(
    ranks: Sequence[RankSummary],
    logs: Sequence[StepLog],
    kernel_log_notes: int | None,
    lateness: Lateness | None = None,
) -> dict[str, Metric]:
    """Give every metric of a run by its name in metrics.json."""
    notes = Metric(
        value=_number(kernel_log_notes),
        unit="",
        source="kernel logs of all hosts since launch",
        why="the kernel log was not scanned" if kernel_log_notes is None else "",
    )
    return {**_of_traces(ranks), **_of_lateness(lateness), **_of_step_logs(logs), "kernel_log_notes": notes}


def unknown_metrics(config: RunConfig, _cluster: Cluster | None = None) -> Iterator[PathFault]:
    """Give the gates on metrics that no run has: such a gate would be found out only after the run."""
    known = tuple(collect_metrics((), (), None))
    for index, gate in enumerate(config.gates):
        if gate.metric not in known:
            near = difflib.get_close_matches(gate.metric[:80], known, n=1) if index < MAX_HINTS else []
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            yield PathFault(("gates", index, "metric"), f"no metric is called {gate.metric!r}; {hint}")


def _of_traces(ranks: Sequence[RankSummary]) -> dict[str, Metric]:
    source = " + ".join(sorted({rank.label for rank in ranks}))
    counts = {rank.num_profiled_steps for rank in ranks if rank.source != "excel"}
    num_steps = str(counts.pop()) if len(counts) == 1 else "a differing number of" if counts else "an unknown number of"
    whole = f"{source}; whole trace, {num_steps} profiled steps"
    return {
        name: Metric(
            value=_number(found.value),
            unit=found.unit,
            source=whole if name in WHOLE_TRACE else source,
            per_rank=_per_rank(found.per_rank),
            why=found.why,
        )
        for name, found in quantities(ranks).items()
    }


def _of_lateness(lateness: Lateness | None) -> dict[str, Metric]:
    num_steps = 0.0 if lateness is None else lateness.num_steps
    return {
        name: Metric(
            value=_number(found.value),
            unit=found.unit,
            source=f"collectives matched between ranks; {num_steps:g} profiled steps",
            per_rank=_per_rank(found.per_rank),
            why=found.why,
        )
        for name, found in lateness_quantities(lateness).items()
    }


def _of_step_logs(logs: Sequence[StepLog]) -> dict[str, Metric]:
    found = performance(logs)
    where = "which of them were profiled is not told" if found.profiled_unknown else "outside the profiler's window"
    source = f"step log; {found.num_steady_steps} steady steps, {where}"

    def metric(value: float | None, unit: str, per_rank: Iterable[tuple[int | None, float | None]] = ()) -> Metric:
        why = (found.why or "the workload does not count them") if value is None else ""
        return Metric(value=value, unit=unit, source=source, per_rank=_per_rank(per_rank), why=why)

    return {
        "step_time_ms_median": metric(found.step_time_ms_median, "ms", found.rank_step_time_ms_median),
        "step_time_ms_p95": metric(found.step_time_ms_p95, "ms"),
        "step_time_ms_max": metric(found.step_time_ms_max, "ms"),
        "samples_per_second": metric(found.samples_per_second, "samples/s"),
        "tokens_per_second_per_gpu": metric(found.tokens_per_second_per_gpu, "tokens/s"),
    }


def _per_rank(values: Iterable[tuple[int | None, float | None]]) -> tuple[RankValue, ...]:
    return tuple(RankValue(rank=-1 if rank is None else rank, value=_number(value)) for rank, value in values)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
