from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_aorta.fleet.ask import Answer

NOBODY = 65534

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
