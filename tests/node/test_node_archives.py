"""Archives: whole or not at all, and never outside the folder."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_aorta.fleet.ask import Answer
from pytest_aorta.node.archives import pack, unpack
from pytest_aorta.node.files import file_hash, tree_digest
from pytest_aorta.node.requests import CommandError

AskNode = Callable[..., Answer]


def tree(root: Path) -> Path:
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "x.json").write_text("{}" * 5000)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    return root


def archive_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    info.size = 3 if kind == tarfile.REGTYPE else 0
    return info


def test_a_tree_arrives_as_it_was(ask: AskNode, tmp_path: Path) -> None:
    source = tree(tmp_path / "source")
    (tmp_path / "target").mkdir()
    archive = str(tmp_path / "a.tar.gz")
    packed = ask("pack", root=str(source), files=["deep/er/x.json", "run.sh"], archive=archive)
    assert packed == {
        "path": archive,
        "size": Path(archive).stat().st_size,
        "sha256": file_hash(archive),
        "count": 2,
        "refused": [],
        "why": "",
    }
    into = tmp_path / "target" / "tree"
    unpacked = ask("unpack", archive=archive, sha256=packed["sha256"], into=str(into))
    assert unpacked == {"count": 2, "tree_sha256": tree_digest(str(source))[0]}
    assert tree_digest(str(into)) == tree_digest(str(source))
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == ["tree"]


def test_what_lay_there_is_replaced(tmp_path: Path) -> None:
    source = tree(tmp_path / "source")
    archive = str(tmp_path / "a.tar.gz")
    packed = pack(str(source), ["run.sh"], archive)
    into = tmp_path / "into"
    (into / "old").mkdir(parents=True)
    unpack(archive, packed["sha256"], str(into))
    assert [path.name for path in into.iterdir()] == ["run.sh"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "into", "source"]


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("/tmp/outside"),  # noqa: S108  # must not be written
        member("a/../../outside"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("hard", tarfile.LNKTYPE, "good"),
        member("device", tarfile.CHRTYPE),
        member("fifo", tarfile.FIFOTYPE),
        member("..", tarfile.DIRTYPE),
    ],
    ids=lambda info: info.name,
)
def test_unsafe_members_leave_everything_as_it_was(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    archive = archive_of(tmp_path / "a.tar.gz", member("good"), bad)
    into = tmp_path / "into"
    into.mkdir()
    (into / "kept").write_text("")
    with pytest.raises(CommandError, match="which is not safe to unpack"):
        unpack(str(archive), file_hash(str(archive)), str(into))
    assert [path.name for path in into.iterdir()] == ["kept"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "into"]


def test_a_member_that_comes_twice_is_refused(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.tar.gz", member("x"), member("x"))
    with pytest.raises(FileExistsError):
        unpack(str(archive), file_hash(str(archive)), str(tmp_path / "into"))
    assert not (tmp_path / "into").exists()


def test_another_archive_than_the_one_that_was_sent(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "a.tar.gz", member("x"))
    with pytest.raises(CommandError, match=r"has SHA-256 [0-9a-f]{64}, expected 00: send it again"):
        unpack(str(archive), "00", str(tmp_path / "into"))


@pytest.mark.parametrize("keep", [0.2, 0.9])
def test_a_damaged_archive_leaves_nothing(tmp_path: Path, keep: float) -> None:
    whole = pack(str(tree(tmp_path / "source")), ["deep/er/x.json", "run.sh"], str(tmp_path / "whole"))
    data = Path(whole["path"]).read_bytes()
    damaged = tmp_path / "damaged"
    damaged.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(CommandError, match="is damaged"):
        unpack(str(damaged), file_hash(str(damaged)), str(tmp_path / "into"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "source", "whole"]


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "link", "deep", "pipe", "out/x", ""])
def test_only_regular_files_inside_are_packed_and_the_others_are_named(tmp_path: Path, name: str) -> None:
    source = tree(tmp_path / "source")
    (source / "link").symlink_to("run.sh")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("")
    (source / "out").symlink_to("../outside")
    os.mkfifo(source / "pipe")
    packed = pack(str(source), ["run.sh", name], str(tmp_path / "a.tar.gz"))
    assert (packed["count"], packed["refused"]) == (1, [name])
    assert packed["why"] == f"{name!r} below {source} is not packed: it is no regular file inside it"
    unpack(str(tmp_path / "a.tar.gz"), packed["sha256"], str(tmp_path / "into"))
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["run.sh"]


def test_nothing_at_all_to_pack_is_an_error(tmp_path: Path) -> None:
    source = tree(tmp_path / "source")
    with pytest.raises(CommandError, match=r"'deep' below .* is not packed: it is no regular file inside it"):
        pack(str(source), ["deep", "absent"], str(tmp_path / "a.tar.gz"))
    assert os.listdir(tmp_path) == ["source"]  # noqa: PTH208


def test_a_file_that_vanished_does_not_lose_the_others(tmp_path: Path) -> None:
    packed = pack(str(tree(tmp_path / "source")), ["gone", "run.sh"], str(tmp_path / "a.tar.gz"))
    assert packed["refused"] == ["gone"]
    assert packed["why"].endswith("No such file or directory")


@pytest.mark.parametrize("name", ["a\\b", "new\nline", 'quo"te', "t\u00e4st", "bad\udcff", "-x", " "])
def test_odd_names_travel(tmp_path: Path, name: str) -> None:
    source = tree(tmp_path / "source")
    (source / name).write_text("odd")
    packed = pack(str(source), ["run.sh", name], str(tmp_path / "a.tar.gz"))
    unpack(packed["path"], packed["sha256"], str(tmp_path / "into"))
    assert packed["refused"] == []
    assert (tmp_path / "into" / name).read_text() == "odd"


def test_a_file_with_two_names_is_packed_once_and_one_with_a_name_elsewhere_never(tmp_path: Path) -> None:
    source = tree(tmp_path / "source")
    os.link(source / "run.sh", source / "again.sh")
    (tmp_path / "foreign").write_text("not the workload's")
    os.link(tmp_path / "foreign", source / "taken")
    packed = pack(str(source), ["run.sh", "again.sh", "taken"], str(tmp_path / "a.tar.gz"))
    unpack(packed["path"], packed["sha256"], str(tmp_path / "into"))
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["run.sh"]
    assert packed["refused"] == ["again.sh", "taken"]
    assert packed["why"] == f"'again.sh' below {source} is not packed: it is the same file as 'run.sh'"
    with pytest.raises(CommandError, match=r"'taken' below .* is not packed: it is a hard link to a file elsewhere"):
        pack(str(source), ["taken"], str(tmp_path / "b.tar.gz"))


def test_a_work_folder_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    source = tree(tmp_path / "source")
    with pytest.raises(CommandError, match=r"the folder .*/work is gone, so nothing is packed into it"):
        pack(str(source), ["run.sh"], str(tmp_path / "work" / "a.tar.gz"))
    packed = pack(str(source), ["run.sh"], str(tmp_path / "a.tar.gz"))
    with pytest.raises(CommandError, match=r"the folder .*/work is gone, so nothing is unpacked into it"):
        unpack(packed["path"], packed["sha256"], str(tmp_path / "work" / "tree"))
    assert not (tmp_path / "work").exists()


def test_a_link_where_the_archive_is_written_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.tar.gz.part").symlink_to("precious")
    pack(str(tree(tmp_path / "source")), ["run.sh"], str(tmp_path / "a.tar.gz"))
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_pack_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    source = tree(tmp_path / "source")

    def give_up() -> None:
        raise CommandError("timeout", "too late")

    with pytest.raises(CommandError, match="too late"):
        pack(str(source), ["run.sh"], str(tmp_path / "a.tar.gz"), give_up)
    assert os.listdir(tmp_path) == ["source"]  # noqa: PTH208
