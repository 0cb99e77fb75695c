"""What is sent to a host's Python, run by this one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet import ssh_remote
from pytest_aorta.fleet.program import INTERPRETER_FLAGS

SHA256 = hashlib.sha256(b"whole").hexdigest()


def ask(*words: str) -> dict[str, Any]:
    text = Path(ssh_remote.__file__).read_text("utf-8")
    done = subprocess.run(
        [sys.executable, *INTERPRETER_FLAGS, "-c", text, *words], capture_output=True, text=True, check=True
    )
    _, mark, answer = done.stdout.rpartition("\n" + ssh_remote.MARK)
    assert mark
    assert not done.stderr
    return dict(json.loads(answer))


def test_a_state_folder_is_made_private_and_marked_as_ours(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "state"
    found = ask("probe", str(folder), ".marker", "program")
    assert found == {"home": str(Path.home()), "python": sys.executable, "folder": str(folder), "sha256": ""}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [".marker"]
    (folder / "program").write_bytes(b"whole")
    assert ask("probe", str(folder), ".marker", "program")["sha256"] == SHA256


def test_a_folder_that_held_something_before_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    tmp_path.chmod(0o755)
    ask("probe", str(tmp_path), ".marker", "program")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    assert ask("probe", str(folder), ".marker", "program")["error"] == "belongs to user 65534, expected 0"
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_folder_is_not_made_in_one_whose_owner_may_exchange_it(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    os.chown(tmp_path, 65534, 65534)
    seen = ask("probe", str(tmp_path / "state"), ".marker", "program")
    assert seen["error"].startswith(
        "belongs to user 65534, who may exchange the program that root runs there, expected root"
    )
    assert seen["path"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_made_where_everybody_may_exchange_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert "everybody may write there" in ask("probe", str(tmp_path / "state"), ".marker", "program")["error"]
    assert list(tmp_path.iterdir()) == []


def test_what_was_made_for_a_program_that_never_ran_is_discarded(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    ask("probe", str(folder), ".marker", "program")
    (folder / ".aorta-1.part").touch()
    (folder / "groups.json").touch()
    assert not ask("discard", str(folder), ".marker", "program")["discarded"]
    (folder / "groups.json").unlink()
    assert ask("discard", str(folder), ".marker", "program")["discarded"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    partial, target = tmp_path / "partial", tmp_path / "target"
    partial.write_bytes(b"whol")
    assert ask("seal", str(partial), str(target), "640", "5", SHA256)["sealed"] is False
    assert not target.exists()
    partial.write_bytes(b"whole")
    assert ask("seal", str(partial), str(target), "640", "5", SHA256) == {"sealed": True}
    assert target.read_bytes() == b"whole"
    assert target.stat().st_mode & 0o777 == 0o640


def test_what_is_no_regular_file_is_an_error_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("absent")
    os.mkfifo(tmp_path / "pipe")
    assert ask("describe", str(tmp_path / "link"))["errno"] == 40
    assert ask("describe", str(tmp_path / "pipe"))["error"] == "no regular file"
    assert ask("describe", str(tmp_path / "absent"))["error"] == "No such file or directory"


def test_room_is_counted(tmp_path: Path) -> None:
    found = ask("room", str(tmp_path))
    assert found["free_bytes"] > 0
    assert found["read_only"] is False
