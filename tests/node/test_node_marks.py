from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport
from pytest_aorta.stages.sharing import sharing

Asking = Callable[..., Answer]
NAME = ".aorta-mark-abc-0"


def test_a_mark_is_left_in_the_nearest_folder_that_is_there(tmp_path: Path, ask: Asking) -> None:
    wanted = tmp_path / "not" / "yet" / "there"

    assert ask("mark", path=str(wanted), name=NAME) == {"folder": str(tmp_path)}

    assert ask("marks", folder=str(tmp_path), names=[NAME, ".aorta-mark-abc-1"]) == {"seen": [NAME]}
    ask("unmark", folder=str(tmp_path), name=NAME)
    ask("unmark", folder=str(tmp_path), name=NAME)
    assert list(tmp_path.iterdir()) == [tmp_path / "state"]


@pytest.mark.parametrize("name", ["../evil", ".aorta-mark-", "/etc/passwd", ".aorta-mark-a/b", ".aorta-mark-a\n"])
def test_only_marks_are_touched(tmp_path: Path, fleet: Fleet, name: str) -> None:
    for asked in (Ask("mark", {"path": str(tmp_path), "name": name}), Ask("unmark", {"folder": "/", "name": name})):
        assert "expected .aorta-mark-" in fleet.perform(asked).failed["here"].reason


def test_hosts_that_share_are_told_from_those_that_do_not(tmp_path: Path) -> None:
    hosts = ("a", "b", "c", "d")
    fleet = Fleet({host: LocalTransport() for host in hosts})
    fleet.open({host: str(tmp_path / f"state-{host}") for host in hosts})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    try:
        paths = {"a": "one", "b": "two", "c": "one/deeper", "d": "two"}
        found = sharing(fleet, {host: str(tmp_path / path) for host, path in paths.items()})
        assert found == (("a", "c"), ("b", "d"))
        alone = sharing(fleet, {"a": "/proc/nobody/writes", "b": str(tmp_path / "two")})
        assert alone == (("a",), ("b",))
        assert sharing(fleet, {"d": "/"}) == (("d",),)
    finally:
        fleet.close()
    assert sorted(path.name for path in tmp_path.rglob(".aorta-mark*")) == []
