"""The documented basic scan: sums of durations by name, of everything."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.trace.metrics import aggregate, quantities, shares
from pytest_aorta.trace.ranks import summarize
from pytest_aorta.trace.sources.basic import Part, part_of, scan_file, summarize_file
from pytest_aorta.trace.summary import RankSummary
from tests.trace import synthetic
from tests.trace.synthetic import COMMUNICATION, copy, kernel, launch, memset, operator, step

TRACES = Path(__file__).parents[4] / "shared" / "traces"
EXPECTED = TRACES / "expected.json"


def expected() -> dict[str, Any]:
    entries = json.loads(EXPECTED.read_text())["traces"] if EXPECTED.is_file() else {}
    return {name: entry["cvs_basic"] for name, entry in entries.items() if entry.get("cvs_basic")}


def summary(path: Path, *events: Any, **metadata: int) -> RankSummary:
    synthetic.write(path, synthetic.document(events, **metadata))
    (found,) = summarize_file(path, path.name)
    return found


@pytest.mark.skipif(not EXPECTED.is_file(), reason="the corpus of traces (../shared/traces) is not here")
@pytest.mark.parametrize("name", expected())
def test_a_real_trace_gives_the_published_scans_sums(name: str) -> None:
    want = expected()[name]
    _, scan = scan_file(TRACES / name)
    found = (scan.total_ns, *(scan.sums_ns[part] for part in (Part.COMPUTE, Part.COMMUNICATION, Part.MEMORY)))
    fields = ("total_time_us", "compute_time_us", "communication_time_us", "memory_time_us")
    assert [time_ns / 1000 for time_ns in found] == pytest.approx([want[field] or 0 for field in fields], abs=0.001)


def test_an_event_that_ends_after_all_time_adds_nothing(tmp_path: Path) -> None:
    late = kernel(5_000_000_000_000_000, 5_000_000_000_000_000)
    found = summary(tmp_path / "t.json", kernel(0, 20), late)
    assert (found.total_time_us, found.end_ns) == (20, 5_000_000_000_000_000_000)


def test_everything_adds_up_nested_or_not(tmp_path: Path) -> None:
    found = summary(
        tmp_path / "t.json",
        step(0, 0, 100),
        operator(1, 50, "aten::mm"),
        launch(2, 3, 1),  # cudaLaunchKernel: its name has "kernel" in it
        kernel(10, 20, correlation=1),
        kernel(15, 30, COMMUNICATION, device=1),
        copy(40, 5),
        memset(46, 2),
        kernel(50, 0),
        rank=3,
        world_size=8,
        base_ns=1000,
    )
    assert (found.source, found.label, found.rank, found.device) == ("basic", "Basic raw-trace scan", 3, None)
    assert found.total_time_us == 100 + 50 + 3 + 20 + 30 + 5 + 2
    assert (found.computation_time_us, found.total_comm_time_us) == (3 + 20, 30)
    assert (found.start_ns, found.end_ns) == (1000, 1000 + 100_000)
    assert (found.num_gpu_events, found.num_comm_kernels, found.num_profiled_steps, found.world_size) == (5, 1, 1, 8)
    assert (found.exposed_comm_time_us, found.busy_time_us, found.overlap_time_us, found.step_times_ms) == (
        *(None, None, None),
        (),
    )
    assert shares(found).comm_ratio == 30 / 210


@pytest.mark.parametrize(
    ("category", "name", "part"),
    [
        ("kernel", "ncclKernel", Part.COMMUNICATION),
        ("cpu_op", "c10d::AllReduce_", Part.COMMUNICATION),
        ("", "Broadcast of a memcpy", Part.COMMUNICATION),
        ("kernel", "Memset (Device)", Part.MEMORY),
        ("cuda_runtime", "hipMemcpyAsync", Part.MEMORY),
        ("Kernel", "gemm", Part.COMPUTE),
        ("GPU", "gemm", Part.COMPUTE),
        ("cuda_runtime", "cudaLaunchKernel", Part.COMPUTE),
        ("gpu_user_annotation", "gemm", Part.OTHER),
        ("cpu_op", "aten::all_reduce", Part.OTHER),
    ],
)
def test_the_first_rule_that_fits_decides(category: str, name: str, part: Part) -> None:
    assert part_of(category, name) is part


def test_without_durations_the_total_is_the_span(tmp_path: Path) -> None:
    found = summary(tmp_path / "t.json", kernel(5, 0), kernel(25, 0))
    assert (found.total_time_us, found.computation_time_us) == (20, 0)


def test_damage_is_counted_and_unusable_durations_add_nothing(tmp_path: Path) -> None:
    events = [
        kernel(0, 7),
        {**kernel(10, 1), "dur": "soon"},
        {**kernel(20, 1), "dur": -5},
        {**kernel(30, 1), "dur": None},
    ]
    text = json.dumps(synthetic.document(events))
    path = tmp_path / "t.json"
    path.write_text(text.replace('"dur": null', '"dur": inf')[: text.rindex("}]") - 9])
    (found,) = summarize_file(path, "t.json")
    assert found.total_time_us == 7
    assert (found.events_lost, found.lost_ratio, found.is_cut) == (3, 0.75, True)
    assert any("cut" in warning for warning in found.warnings)


def test_epoch_timestamps_with_a_fraction_count_once(tmp_path: Path) -> None:
    start_us = 1712195495505583.25
    events = [operator(start_us, 0.5, "a"), kernel(start_us, 10), kernel(start_us + 20, 1.25)]
    found = summary(tmp_path / "t.json", *events)
    assert found.total_time_us == 11.75
    mixed = [kernel(1712195495505583.0, 7), operator(start_us, 0.5, "a"), operator(start_us, 1, "b")]
    found = summary(tmp_path / "mixed.json", *mixed)
    assert (found.total_time_us, found.num_gpu_events) == (8.5, 1)


def test_what_the_scan_does_not_give_is_not_measured_and_says_why(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "rank0" / "trace.json", synthetic.document([kernel(0, 10), kernel(5, 5, COMMUNICATION)]))
    found = summarize(tmp_path, parser="basic")
    assert aggregate(found.ranks).label == "Basic raw-trace scan"
    metrics = quantities(found.ranks)
    assert metrics["avg_compute_ratio"].value == 10 / 15
    assert metrics["true_overlap_ratio"].value is None
    assert "adds up" in metrics["true_overlap_ratio"].why
