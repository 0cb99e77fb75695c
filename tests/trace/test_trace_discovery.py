"""Which files are traces, and which rank a path names."""

from pathlib import Path, PurePosixPath

import pytest

from pytest_aorta.trace.discovery import find_traces, rank_in


def found(root: Path, *names: str) -> list[str]:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [path.relative_to(root).as_posix() for path in find_traces(root)]


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
