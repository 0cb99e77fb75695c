"""Traces side by side: ranks, windows, duplicates, broken files, processes."""

import multiprocessing
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.trace.ranks import summarize
from tests.trace import synthetic
from tests.trace.synthetic import COMMUNICATION, copy, kernel, launch, step


def write(path: Path, *events: Any, **metadata: int) -> Path:
    return synthetic.write(path, synthetic.document(events, **metadata))


def ranks_of(root: Path, **options: Any) -> list[int | None]:
    return [summary.rank for summary in summarize(root, **options).ranks]


def test_ranks_come_from_the_file_then_from_the_path_in_their_order(tmp_path: Path) -> None:
    write(tmp_path / "rank0" / "trace.json", kernel(0, 1), rank=11)
    write(tmp_path / "rank_2" / "trace.json.gz", kernel(0, 1))
    write(tmp_path / "worker10" / "trace.json", kernel(0, 1))
    found = summarize(tmp_path)
    assert [(summary.rank, summary.file) for summary in found.ranks] == [
        (2, "rank_2/trace.json.gz"),
        (10, "worker10/trace.json"),
        (11, "rank0/trace.json"),
    ]
    assert found.errors == ()


def test_folders_above_the_searched_one_name_no_rank(tmp_path: Path) -> None:
    root = tmp_path / "rank7"
    write(root / "trace.json", kernel(0, 1))
    assert ranks_of(root) == [None]


def test_several_files_of_unknown_rank_are_refused_and_the_others_are_kept(tmp_path: Path) -> None:
    for name in ("a", "b", "rank1"):
        write(tmp_path / name / "trace.json", kernel(0, 1))
    found = summarize(tmp_path)
    assert [summary.rank for summary in found.ranks] == [1]
    assert [error.file for error in found.errors] == ["a/trace.json", "b/trace.json"]
    assert "its rank is unknown" in found.errors[0].error


def test_of_several_windows_the_one_that_lost_most_counts(tmp_path: Path) -> None:
    for start, name in ((0, "a"), (1000, "b")):
        lost = [kernel(start, -1)] if start else []
        write(tmp_path / "rank0" / f"{name}.json", *(kernel(start + at, 1) for at in range(4)), *lost)
    (found,) = summarize(tmp_path).ranks
    assert (found.events_lost, found.lost_ratio) == (1, 0.2)


def test_all_names_of_kernels_are_given_when_they_are_asked_for(tmp_path: Path) -> None:
    for start, name in ((0, "a"), (1000, "b")):
        write(tmp_path / "rank0" / f"{name}.json", *(kernel(start + at, 1, f"k{at}") for at in range(20)))
    (found,) = summarize(tmp_path, with_kernels=True).ranks
    assert {(row.name, row.num_events) for row in found.kernels} == {(f"k{at}", 2) for at in range(20)}
    assert summarize(tmp_path).ranks[0].kernels == ()


def test_windows_of_one_profile_are_put_together(tmp_path: Path) -> None:
    first = [step(1, 0, 10), launch(0, 1, 1), kernel(0, 10, correlation=1), kernel(5, 10, COMMUNICATION), kernel(20, 5)]
    second = [step(9, 0, 10), step(10, 10, 10), launch(0, 1, 1), launch(10, 1, 2), kernel(0, 10, correlation=1)]
    write(
        tmp_path / "rank0" / "trace_a.json",
        *second,
        kernel(12, 8, correlation=2),
        copy(20, 0.5),
        rank=0,
        base_ns=100_000,
    )
    write(tmp_path / "rank0" / "trace_b.json", *first, rank=0, world_size=2)
    found = summarize(tmp_path)
    (whole,) = found.ranks
    assert found.errors == ()
    assert whole.files == ("rank0/trace_b.json", "rank0/trace_a.json")
    assert whole.total_time_us == 25 + 20.5
    assert whole.busy_time_us == 20 + 18.5
    assert whole.idle_time_us == 5 + 2
    assert whole.true_overlap_ratio == 0.5
    assert (whole.num_gpu_events, whole.num_profiled_steps, whole.step_times_ms) == (6, 3, (0.01,))
    assert [(row.name, row.total_us, row.num_events) for row in whole.top_kernels[:1]] == [("gemm", 33, 4)]
    assert whole.world_size == 2


@pytest.mark.parametrize(
    ("other", "said"),
    [((kernel(9.999, 1),), "each covers a part of the same time"), ((step(1, 50, 1),), "only one has GPU events")],
)
def test_a_second_trace_of_a_rank_that_is_no_later_window_is_refused(tmp_path: Path, other: Any, said: str) -> None:
    write(tmp_path / "x" / "trace_1.json", kernel(0, 10), rank=0)
    write(tmp_path / "x" / "trace_2.json", *other, rank=0)
    write(tmp_path / "z" / "trace.json", kernel(0, 10), rank=1)
    found = summarize(tmp_path)
    assert [summary.rank for summary in found.ranks] == [1]
    assert [error.file for error in found.errors] == ["x/trace_1.json", "x/trace_2.json"]
    assert all(said in error.error and error.error.startswith(error.file) for error in found.errors)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{}/out/torch_profiler/rank0/t.json", "{}/out/torch_profiler"),
        ("{}/trace_rank0.json", "{}"),
        ("{}/traces/rank0/trace.json", "{}/traces"),
    ],
)
def test_traces_of_several_runs_are_not_one_profile(tmp_path: Path, one: str, other: str) -> None:
    for run in (1, 2, 3):
        write(tmp_path / one.format(f"run{run}"), kernel(100 * run, 10), rank=0)
    found = summarize(tmp_path)
    assert (found.ranks, len(found.errors)) == ((), 3)
    told = f"rank 0 has traces in 3 folders, among them {other.format('run1')} and {other.format('run2')}: "
    assert all(told in error.error for error in found.errors)
    assert all(error.error.endswith("name the folder of one run") for error in found.errors)


@pytest.mark.parametrize(
    "name",
    ["torch_profiler/{}/rank0/t.json", "rank0/trace_{}.json", "iteration_{}/rank0_trace.json", "rank0/step{}/t.json"],
)
def test_windows_of_one_run_may_lie_in_folders_of_their_own(tmp_path: Path, name: str) -> None:
    for window in (1, 2, 3):
        write(tmp_path / "out" / name.format(window), kernel(100 * window, 10), rank=0)
    found = summarize(tmp_path)
    assert found.errors == ()
    assert [len(rank.files) for rank in found.ranks] == [3]


def test_two_processes_that_claim_one_rank_on_two_devices_are_refused(tmp_path: Path) -> None:
    for device in (0, 1):
        write(tmp_path / f"node_{device}" / "rank0" / "trace.json", kernel(0, 10, device=device))
    found = summarize(tmp_path)
    assert (found.ranks, len(found.errors)) == ((), 2)


def run_of_three(root: Path) -> None:
    for rank in range(3):
        write(
            root / f"rank{rank}" / "trace.json", kernel(0, 10 + rank), kernel(5, 1, COMMUNICATION, device=1), rank=rank
        )
    (root / "rank9").mkdir()
    (root / "rank9" / "trace.json").write_text("<html>")


@pytest.mark.parametrize("jobs", [None, 1, 2])
def test_one_broken_file_stops_no_other(tmp_path: Path, jobs: int | None) -> None:
    run_of_three(tmp_path)
    calls: list[tuple[int, int]] = []
    found = summarize(tmp_path, jobs=jobs, on_progress=lambda done, total: calls.append((done, total)))
    assert [(summary.rank, summary.device) for summary in found.ranks] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert [error.file for error in found.errors] == ["rank9/trace.json"]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_order_of_files_changes_nothing(tmp_path: Path) -> None:
    run_of_three(tmp_path)
    files = sorted(tmp_path.glob("*/trace.json"))
    shuffled = random.Random(1).sample(files, len(files))  # noqa: S311
    assert shuffled != files
    assert summarize(tmp_path, shuffled) == summarize(tmp_path, files)


def test_a_process_that_is_killed_costs_its_file_only(tmp_path: Path) -> None:
    good = write(tmp_path / "rank0" / "trace.json", kernel(0, 10))
    deadly = tmp_path / "rank1.json"
    os.mkfifo(deadly)

    def kill_readers() -> None:
        for _ in range(2):  # in the pool, then alone
            with deadly.open("wb"):
                for child in multiprocessing.active_children():
                    child.kill()
                    child.join()

    killer = threading.Thread(target=kill_readers, daemon=True)
    killer.start()
    found = summarize(tmp_path, [good, deadly], jobs=2)
    killer.join()
    assert [summary.rank for summary in found.ranks] == [0]
    assert [error.error for error in found.errors] == [
        "rank1.json: the process that read it was ended, maybe for lack of memory"
    ]


def test_splitting_a_file_between_events_only_drops_the_gap_at_the_cut(tmp_path: Path) -> None:
    events = [kernel(10 * i, 6 + i % 3, (COMMUNICATION, "gemm")[i % 2]) for i in range(10)]
    events += [copy(10 * i + 1, 2) for i in range(10)]
    write(tmp_path / "whole" / "rank0" / "trace.json", *events)
    cut = [[event for event in events if (event["ts"] < 50) is early] for early in (True, False)]
    for part, content in enumerate(cut):
        write(tmp_path / "split" / "rank0" / f"trace_{part}.json", *content)
    (whole,), (split,) = summarize(tmp_path / "whole").ranks, summarize(tmp_path / "split").ranks
    gap_us = 50 - (40 + 7)
    assert (split.total_time_us, split.idle_time_us) == (96 - gap_us, (whole.idle_time_us or 0) - gap_us)
    same = ("busy_time_us", "computation_time_us", "total_comm_time_us", "exposed_memcpy_time_us", "overlap_time_us")
    assert [getattr(split, name) for name in same] == [getattr(whole, name) for name in same]
    assert (split.top_kernels, split.copies, split.num_gpu_events) == (whole.top_kernels, whole.copies, 20)
