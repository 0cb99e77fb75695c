from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_aorta.fleet.ask import Answer

NOBODY = 65534
OVERLAY = """
set -e
mount -t tmpfs layers upper
mkdir upper/files upper/work
mount -t overlay -o lowerdir=lower,upperdir=upper/files,workdir=upper/work tree tree
mount -t tmpfs other tree/other
mount --bind lower/below tree/bound
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_what_is_ours_is_given_and_nothing_else(tmp_path: Path, ask: Callable[..., Answer]) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    for name in ("a", "deep/b", "other"):
        (tree / name).write_text("x")
    os.chown(tree / "other", 1234, 1234)
    outside = tmp_path / "outside"
    outside.write_text("x")
    (tree / "link").symlink_to(outside)
    (tree / "folder-link").symlink_to(tmp_path)

    answer = ask("give", paths=[str(tree)], uid=NOBODY, gid=NOBODY)

    given = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if os.lstat(path).st_uid == NOBODY}
    assert given == {"a", "deep", "deep/b", "link", "folder-link"}
    assert os.lstat(tree).st_uid == NOBODY
    assert answer == {"given": 6}
    assert os.lstat(tree / "other").st_uid == 1234
    assert os.lstat(outside).st_uid == 0
    assert ask("give", paths=[str(tree)], uid=0, gid=0) == {"given": 0}  # nothing is ours any more


def test_files_of_an_overlay_are_given_and_what_is_mounted_in_it_is_not(
    tmp_path: Path, ask: Callable[..., Answer]
) -> None:
    """Nodes without disks have an overlay as their root; its files have another device number than its folders."""
    for name in ("lower/other", "upper", "tree"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("below", "bound"):
        (tmp_path / "lower" / name).write_text("x")
    mounted = subprocess.run(["sh", "-c", OVERLAY], cwd=tmp_path, capture_output=True, text=True, check=False)
    tree = tmp_path / "tree"
    try:
        if mounted.returncode:
            pytest.skip(f"an overlay cannot be mounted here: {mounted.stderr.strip()}")
        (tree / "above").write_text("x")
        (tree / "other/inside").write_text("x")

        ask("give", paths=[str(tree)], uid=NOBODY, gid=NOBODY)

        given = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if os.lstat(path).st_uid == NOBODY}
        assert given == {"above", "below"}
    finally:
        for name in ("tree/bound", "tree/other", "tree", "upper"):
            subprocess.run(["umount", str(tmp_path / name)], capture_output=True, check=False)
