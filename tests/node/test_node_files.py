"""Files: work folders, searches, hashes; links are never followed."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet.ask import Answer
from pytest_aorta.node.files import PRINT_BYTES, describe, find, go_on, prepare, read_tail, remove, tree_digest
from pytest_aorta.node.requests import CommandError

AskNode = Callable[..., Answer]

NOBODY = 65534


@pytest.fixture
def user_folder() -> Iterator[Path]:
    """A folder of a user who is not root; the test is that user meanwhile."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        if is_root:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            if is_root:
                os.seteuid(0)
            else:
                remaining = [path for path in Path(folder).rglob("*") if path.is_dir()]
                for path in (Path(folder), *remaining):
                    path.chmod(0o700)


def write(path: Path, text: str = "x", mtime_ns: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if mtime_ns is not None:
        os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def search(root: Path, **changed: Any) -> Answer:
    wanted: dict[str, Any] = {
        "folders": ["torch_profiler"],
        "names": [],
        "since_ns": 0,
        "exclude_dirs": [],
        "known": None,
        "check": go_on,
        **changed,
    }
    return find(str(root), **wanted)


def paths(answer: Answer) -> list[str]:
    return [file["path"] for file in answer["files"]]


def test_a_work_folder_is_private_and_removable(ask: AskNode, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "work"
    answer = ask("prepare", path=str(folder))
    assert answer["path"] == str(folder)
    assert answer["writable"]
    assert answer["free_bytes"] > 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    write(folder / "deep" / "file")
    assert ask("remove", path=str(folder)) == {"removed": True}
    assert not folder.exists()
    assert ask("remove", path=str(folder)) == {"removed": False}


def test_a_folder_that_others_use_is_never_removed(tmp_path: Path) -> None:
    write(tmp_path / "data" / "precious")
    prepare(str(tmp_path / "data"))
    with pytest.raises(CommandError, match=r"holds no \.aorta-work, so this program did not make it"):
        remove(str(tmp_path / "data"))
    assert (tmp_path / "data" / "precious").exists()


def test_the_state_folder_inside_makes_no_stranger(tmp_path: Path) -> None:
    state = tmp_path / "work" / "node" / "state"
    prepare(str(state))
    prepare(str(tmp_path / "work"), own=str(state))
    assert remove(str(tmp_path / "work")) == {"removed": True}


def test_preparing_twice_keeps_it_ours(tmp_path: Path) -> None:
    prepare(str(tmp_path / "work"))
    write(tmp_path / "work" / "file")
    prepare(str(tmp_path / "work"))
    assert remove(str(tmp_path / "work")) == {"removed": True}


def test_root_home_and_links_are_refused(tmp_path: Path) -> None:
    prepare(str(tmp_path / "work"))
    (tmp_path / "link").symlink_to(tmp_path / "work")
    for path in ("/", os.path.expanduser("~"), str(tmp_path / "link")):  # noqa: PTH111  # as the program does
        with pytest.raises(CommandError, match="is no work folder"):
            remove(path)


def test_home_is_refused_by_whatever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "real" / "home"
    prepare(str(home))
    (home.parent / ".aorta-work").touch()
    (tmp_path / "link").symlink_to("real")
    ways = [home, tmp_path / "link" / "home", home.parent, tmp_path / "link" / "home" / ".."]
    for named in (home, tmp_path / "link" / "home"):
        monkeypatch.setenv("HOME", str(named))
        for path in ways:
            with pytest.raises(CommandError, match="is no work folder"):
                remove(str(path))
    assert home.exists()
    prepare(str(home / "work"))
    assert remove(str(home / "work")) == {"removed": True}


def test_a_folder_is_not_made_where_everybody_may_exchange_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(CommandError, match=r"everybody may write in .*; make it `chmod o-w`, or set another work_dir"):
        prepare(str(tmp_path / "work"))
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o1777)
    prepare(str(tmp_path / "work"))


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    write(tmp_path / "file")
    with pytest.raises(CommandError, match=r"the folder .*/file/work cannot be written: Not a directory"):
        prepare(str(tmp_path / "file" / "work"))


def test_folders_that_are_protected_from_their_own_user_are_removed(user_folder: Path) -> None:
    """So do Go with its module cache, and Bazel."""
    work = user_folder / "work"
    prepare(str(work))
    write(work / "mod" / "deep" / "go.mod")
    write(work / "closed" / "file")
    (work / "link").symlink_to(user_folder)
    for name, mode in (("mod/deep", 0o555), ("mod", 0o555), ("closed", 0)):
        (work / name).chmod(mode)
    user_folder.chmod(0o755)

    assert remove(str(work)) == {"removed": True}
    assert not work.exists()
    assert stat.S_IMODE(user_folder.stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write as root")
def test_what_is_roots_in_a_work_folder_is_named(user_folder: Path) -> None:
    work = user_folder / "work"
    prepare(str(work))
    os.seteuid(0)
    write(work / "results" / "trace")
    os.seteuid(NOBODY)
    whose = f"; {work}/results belongs to root, as what a container wrote as root does: remove it by hand as root"
    with pytest.raises(CommandError, match=rf"cannot be removed: Permission denied \(.*\){whose}$"):
        remove(str(work))


def test_what_cannot_be_removed_though_all_of_it_is_ours_is_not_said_to_be_roots(user_folder: Path) -> None:
    prepare(str(user_folder / "work"))
    user_folder.chmod(0o555)
    with pytest.raises(CommandError, match=r"cannot be removed: Permission denied \([^()]*\)$"):
        remove(str(user_folder / "work"))
    user_folder.chmod(0o755)


def test_what_lies_at_a_path(tmp_path: Path) -> None:
    write(tmp_path / "file", "hello")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "loose").symlink_to(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    names = ("file", "link", "folder", "loose", "pipe", "absent", ".")
    found = describe([str(tmp_path / name) for name in names], True, go_on)["files"]
    assert [found[str(tmp_path / name)]["kind"] for name in names] == [
        "file",
        "file",
        "dir",
        "absent",
        "other",
        "absent",
        "dir",
    ]
    for name in ("file", "link"):
        assert found[str(tmp_path / name)]["size"] == 5
        assert found[str(tmp_path / name)]["sha256"] == hashlib.sha256(b"hello").hexdigest()


def test_files_under_a_folder_of_the_name_at_any_depth(tmp_path: Path) -> None:
    for name in ("a/torch_profiler/rank0/x.json", "torch_profiler/y.json", "b/z.json", "torch_profiler_old/n.json"):
        write(tmp_path / name)
    write(tmp_path / "c" / "torch_profiler")  # a file of that name is no folder
    assert paths(search(tmp_path)) == ["a/torch_profiler/rank0/x.json", "torch_profiler/y.json"]


def test_files_by_pattern(tmp_path: Path) -> None:
    for name in ("a/rank_00_metrics.jsonl", "a/rank_00_other.jsonl", "rank_01_metrics.jsonl"):
        write(tmp_path / name)
    found = search(tmp_path, folders=[], names=["rank_*_metrics.jsonl"])
    assert paths(found) == ["a/rank_00_metrics.jsonl", "rank_01_metrics.jsonl"]


def test_stale_files_are_counted_and_left_out(tmp_path: Path) -> None:
    write(tmp_path / "torch_profiler" / "old", mtime_ns=10)
    write(tmp_path / "torch_profiler" / "floor", "sized", mtime_ns=100)
    write(tmp_path / "torch_profiler" / "known", mtime_ns=200)
    write(tmp_path / "torch_profiler" / "rewritten", mtime_ns=201)
    known = {"torch_profiler/known": 200, "torch_profiler/rewritten": 200}
    found = search(tmp_path, since_ns=100, known=known)
    assert paths(found) == ["torch_profiler/floor", "torch_profiler/rewritten"]
    assert found["files"][0] == {"path": "torch_profiler/floor", "size": 5, "mtime_ns": 100}
    assert found["stale"] == 2


def test_prints_tell_files_apart_by_their_ends_whatever_their_times(tmp_path: Path) -> None:
    large = "a" * 2 * PRINT_BYTES + "b" * PRINT_BYTES
    write(tmp_path / "torch_profiler" / "first", large, mtime_ns=1)
    write(tmp_path / "torch_profiler" / "same", large, mtime_ns=2)
    write(tmp_path / "torch_profiler" / "begins_otherwise", "A" + large[1:])
    write(tmp_path / "torch_profiler" / "ends_otherwise", large[:-1] + "B")
    write(tmp_path / "torch_profiler" / "small", "a")
    write(tmp_path / "torch_profiler" / "empty", "")

    seen = {file["path"].partition("/")[2]: file["print"] for file in search(tmp_path, with_print=True)["files"]}

    assert seen["first"] == seen["same"] == hashlib.sha256(b"a" * PRINT_BYTES + b"b" * PRINT_BYTES).hexdigest()
    assert len(set(seen.values())) == 5
    assert seen["small"] == hashlib.sha256(b"a").hexdigest()
    assert seen["empty"] == ""
    assert "print" not in search(tmp_path)["files"][0]


def test_links_and_excluded_folders_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path / "outside" / "x")
    write(tmp_path / "root" / ".git" / "torch_profiler" / "x")
    (tmp_path / "root" / "torch_profiler").symlink_to(tmp_path / "outside")
    write(tmp_path / "root" / "real" / "torch_profiler" / "y")
    (tmp_path / "root" / "real" / "torch_profiler" / "link").symlink_to(tmp_path / "outside" / "x")
    assert paths(search(tmp_path / "root", exclude_dirs=[".git"])) == ["real/torch_profiler/y"]


def test_what_lies_too_deep_is_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "torch_profiler" / "trace")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=descriptor)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)

    found = search(tmp_path)

    assert (paths(found), found["too_deep"]) == (["torch_profiler/trace"], 1)


def test_what_may_not_be_looked_into_is_an_error_or_is_left_out_and_named(user_folder: Path) -> None:
    write(user_folder / "a" / "torch_profiler" / "trace")
    for name, mode in (("closed", 0), ("half", 0o444)):
        write(user_folder / name / "torch_profiler" / "trace")
        (user_folder / name / "x").touch()
        (user_folder / name).chmod(mode)
    with pytest.raises(PermissionError):
        search(user_folder)

    found = search(user_folder, names=["x"], skip_closed=True)

    assert paths(found) == ["a/torch_profiler/trace"]
    assert found["closed"] == ["closed", "half/torch_profiler", "half/x"]


def test_a_search_goes_no_deeper_than_it_is_asked_to(ask: AskNode, tmp_path: Path) -> None:
    for name in ("x", "a/x", "a/b/x"):
        write(tmp_path / name)
    for depth, seen in ((None, ["a/b/x", "a/x", "x"]), (1, ["x"]), (2, ["a/x", "x"])):
        assert paths(ask("find", root=str(tmp_path), names=["x"], depth=depth)) == seen


def test_a_root_that_is_absent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        search(tmp_path / "absent")


def test_the_hash_of_a_tree(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x", "one")
    write(tmp_path / "b", "two").chmod(0o755)
    one, two = (hashlib.sha256(text).hexdigest().encode() for text in (b"one", b"two"))
    wanted = hashlib.sha256(b"a/x\x003\x00" + one + b"\n" + b"b\x003\x00" + two + b"\x00x\n").hexdigest()
    assert tree_digest(str(tmp_path)) == (wanted, 2)
    write(tmp_path / "__pycache__" / "x.pyc")
    write(tmp_path / "a" / "y.pyc")
    (tmp_path / "link").symlink_to("b")
    assert tree_digest(str(tmp_path), ["__pycache__", "*.pyc"]) == (wanted, 2)


@pytest.mark.parametrize("change", ["content", "name", "mode", "more"])
def test_each_change_changes_the_hash(tmp_path: Path, change: str) -> None:
    file = write(tmp_path / "x", "one")
    before, _ = tree_digest(str(tmp_path))
    if change == "content":
        file.write_text("two")
    elif change == "name":
        file.rename(tmp_path / "y")
    elif change == "mode":
        file.chmod(0o755)
    else:
        write(tmp_path / "y", "")
    assert tree_digest(str(tmp_path))[0] != before


def test_the_command_and_the_function_agree(ask: AskNode, tmp_path: Path) -> None:
    write(tmp_path / "tree" / "x")
    sha256, count = tree_digest(str(tmp_path / "tree"))
    assert ask("hash_tree", root=str(tmp_path / "tree")) == {"sha256": sha256, "count": count}


def test_the_end_of_a_file(tmp_path: Path) -> None:
    write(tmp_path / "file", "0123456789")
    assert read_tail(str(tmp_path / "file"), 4) == {"text": "6789", "size": 10}
    assert read_tail(str(tmp_path / "file"), 100) == {"text": "0123456789", "size": 10}


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    write(tmp_path / "file", "x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        with pytest.raises(OSError, match="regular file"):
            read_tail(str(tmp_path / name), 1)
