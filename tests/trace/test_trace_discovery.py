"""Which files are traces, and which rank a path names."""

import os
import re
from pathlib import Path, PurePosixPath

import pytest

from pytest_aorta.trace.discovery import discover, find_traces, rank_in, tree_of


def found(root: Path, *names: str) -> list[str]:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [path.relative_to(root).as_posix() for path in find_traces(root)]


def left_out(root: Path) -> dict[str, str]:
    """Give the first words of why each file was left out."""
    return {
        path.path.relative_to(root).as_posix(): re.split("[,;]| in ", path.why)[0] for path in discover(root).left_out
    }


def test_what_the_profiler_wrote_is_preferred(tmp_path: Path) -> None:
    below = ["out/torch_profiler/rank0/a.json", "out/torch_profiler/rank1/b.JSON.gz"]
    assert found(tmp_path, *below, "trace.json", "run.json", "out/torch_profiler/rank0/readme.txt") == below


def test_files_named_like_traces_come_next(tmp_path: Path) -> None:
    named = ["a/x.pt.trace.json.gz", "b/trace_7.json", "trace.json.gz"]
    assert found(tmp_path, *named, "config.json", "notes.txt") == named


def test_any_json_is_the_last_resort(tmp_path: Path) -> None:
    assert found(tmp_path, "rank0.json", "rank1.json.gz", "x.txt") == ["rank0.json", "rank1.json.gz"]


def test_a_profile_exported_under_two_names_is_taken_once(tmp_path: Path) -> None:
    names = [
        "torch_profiler/rank0/h_1.2.pt.trace.json",
        "torch_profiler/rank0/trace.json",
        "torch_profiler/rank1/trace.json",
    ]
    assert found(tmp_path, *names) == [names[0], names[2]]


def test_no_link_is_followed_and_some_folders_are_passed_over(tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert found(root, "rank0/trace.json", ".git/trace.json", ".cvs-aorta/trace.json") == ["rank0/trace.json"]
    outside = tmp_path / "outside" / "trace.json"
    outside.parent.mkdir()
    outside.touch()
    (root / "trace_link.json").symlink_to(outside)
    (root / "folder").symlink_to(outside.parent)
    assert found(root) == ["rank0/trace.json"]
    assert left_out(root) == {"folder": "a link", "trace_link.json": "a link"}


def test_collected_copies_count_when_there_is_nothing_else(tmp_path: Path) -> None:
    copy = "combined_traces/node_0/out/torch_profiler/rank0/trace.json"
    assert found(tmp_path, copy) == [copy]
    assert found(tmp_path, "out/torch_profiler/rank0/trace.json") == ["out/torch_profiler/rank0/trace.json"]


def test_a_file_is_its_own_answer(tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    assert find_traces(tmp_path / "x.txt") == [tmp_path / "x.txt"]


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank0/trace.json", 0),
        ("torch_profiler/rank_12/x.json", 12),
        ("worker3_step_12.169.pt.trace.json.gz", 3),
        ("cpu_only_rank34.pt.trace.json.gz", 34),
        ("rank0/rank1.json", 1),
        ("rank7/worker2.json", 2),
        ("worker9-rank4.json", 4),
        ("frank5/trace.json", None),
        ("rank/trace.json", None),
        ("trace.json", None),
    ],
)
def test_rank_in_a_path(path: str, rank: int | None) -> None:
    assert rank_in(PurePosixPath(path)) == rank


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["trace_rank0.json", "rank1.json"], {"rank1.json": "not named like a trace (*.pt.trace.json"}),
        (["rank0.pt.trace.json", "rank1.json"], {"rank1.json": "not named like a trace (*.pt.trace.json"}),
        (
            ["torch_profiler/rank0/t.json", "other/rank1/trace.json"],
            {"other/rank1/trace.json": "outside of torch_profiler"},
        ),
        (
            ["torch_profiler/a.pt.trace.json", "torch_profiler/b.json"],
            {"torch_profiler/b.json": "beside an exported profile (*.pt.trace.json)"},
        ),
        (
            ["torch_profiler/a.json", "combined_traces/torch_profiler/b.json"],
            {"combined_traces/torch_profiler/b.json": "a copy"},
        ),
        (["rank0.json", "rank1.json", "notes.txt"], {}),
        (["torch_profiler/a.json", "run.json", "metrics.json", "facts/node-0.json", "judgements/1/verdict.json"], {}),
        (["torch_profiler/a.json", "run.json", "evidence/node1/devices-before.json"], {}),
        (["combined_traces/node_0/torch_profiler/a.json", "run.json", "facts/node-0.json"], {}),
        (["run.json", "rank1.json"], {}),
    ],
)
def test_every_json_file_that_is_left_out_is_told(tmp_path: Path, names: list[str], expected: dict[str, str]) -> None:
    traces = found(tmp_path, *names)
    assert traces == [names[0]] if expected else traces
    assert left_out(tmp_path) == expected


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace_1.json")
    assert found(tmp_path, "trace_2.json") == ["trace_2.json"]
    assert left_out(tmp_path) == {"trace_1.json": "no regular file"}


def test_a_folder_that_cannot_be_entered_is_told(tmp_path: Path) -> None:
    assert found(tmp_path, "rank0/trace.json") == ["rank0/trace.json"]
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):  # a path longer than the system takes
        os.mkdir("x" * 250, dir_fd=here)
        here, above = os.open("x" * 250, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    (unreadable,) = discover(tmp_path).unreadable
    assert unreadable.why == "cannot be looked into (File name too long)"
    assert found(tmp_path) == ["rank0/trace.json"]


@pytest.mark.parametrize(
    ("path", "tree"),
    [
        ("run1/torch_profiler/rank0/trace.json", "run1/torch_profiler"),
        ("torch_profiler/run1/torch_profiler/trace.json", "torch_profiler/run1/torch_profiler"),
        ("run1/out/rank0/trace.json", "run1/out"),
        ("run1/out/iteration_100/rank0_trace.json", "run1/out"),
        ("run1/rank_0/step5/trace.json", "run1"),
        ("run1/trace.json", "run1"),
        ("trace.json", "."),
    ],
)
def test_tree_of_a_path(path: str, tree: str) -> None:
    assert tree_of(PurePosixPath(path)) == PurePosixPath(tree)
