"""Traces of real GPUs against what an independent reader and TraceLens say of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.trace.reading import read
from pytest_aorta.trace.summary import RankSummary, summaries_of

TRACES = Path(__file__).parents[3] / "shared" / "traces"
EXPECTED = TRACES / "expected.json"
pytestmark = pytest.mark.skipif(not EXPECTED.is_file(), reason="the corpus of traces (../shared/traces) is not here")

TIMES = {
    "total_time": "total_time_us",
    "computation_time": "computation_time_us",
    "total_comm_time": "total_comm_time_us",
    "exposed_comm_time": "exposed_comm_time_us",
    "exposed_memcpy_time": "exposed_memcpy_time_us",
    "busy_time": "busy_time_us",
    "idle_time": "idle_time_us",
    "total_memcpy_time": "total_memcpy_time_us",
}
COUNTS = {
    "gpu_events": "num_gpu_events",
    "comm_kernels": "num_comm_kernels",
    "lost": "events_lost",
    "rank": "rank",
    "steps": "num_profiled_steps",
}
INEXACT_AS_FLOAT = "public/epoch_us_fraction.pt.trace.json.gz"


def entries() -> dict[str, Any]:
    return dict(json.loads(EXPECTED.read_text())["traces"]) if EXPECTED.is_file() else {}


def summary_of(name: str) -> RankSummary:
    trace = read(TRACES / name)
    (found,) = summaries_of(trace, file=name, rank=trace.metadata.rank)
    assert found.warnings == ()
    return found


@pytest.mark.parametrize("name", entries())
def test_a_real_trace_gives_what_is_expected(name: str) -> None:
    expected = entries()[name]
    found = summary_of(name)
    for theirs, ours in (TIMES | COUNTS).items():
        if theirs in expected["prototype"]:
            assert getattr(found, ours) == expected["prototype"][theirs], ours
    tracelens = expected.get("tracelens_raw", {})
    if "error" not in tracelens and name != INEXACT_AS_FLOAT:
        for theirs, ours in TIMES.items():
            assert getattr(found, ours) == pytest.approx(tracelens[theirs], abs=0.1), ours


@pytest.mark.parametrize("rank", [0, 1])
def test_step_times_of_both_ranks_are_equal_when_one_is_late(rank: int) -> None:
    found = summary_of(f"h200_late_rank1_host/rank{rank}/trace.json.gz")
    assert [round(step_ms) for step_ms in found.step_times_ms] == [68, 68]


def test_host_wait_is_seen_where_the_host_was_slow() -> None:
    fast, slow = (summary_of(f"h200_fsdp2/rank{rank}/trace.json.gz") for rank in (0, 1))
    assert fast.host_wait_time_us == 0
    assert slow.host_wait_time_us == pytest.approx(271_000, abs=500)
