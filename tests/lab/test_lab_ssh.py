"""The SSH transport against real sshd: what a run does, and what goes wrong on the way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.ssh import Access, SshTransport
from tests.lab.host import Host
from tests.lab.lab import Lab

pytestmark = pytest.mark.lab(2)

STATE_DIR = "~/.aorta/state"

Opened = Callable[..., Fleet]


@pytest.fixture(autouse=True)
def home(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's ssh configuration is the lab's."""
    monkeypatch.setenv("HOME", str(lab.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return lab.home


@pytest.fixture
def opened(lab: Lab) -> Iterator[Opened]:
    fleets: list[Fleet] = []

    def open_fleet(*hosts: str, lease_seconds: float = 60, **access: Any) -> Fleet:
        names = hosts or tuple(host.name for host in lab.hosts)
        fleets.append(Fleet({name: transport(lab, name, **access) for name in names}, lease_seconds=lease_seconds))
        fleets[-1].open(dict.fromkeys(names, STATE_DIR))
        return fleets[-1]

    yield open_fleet
    for fleet in fleets:
        fleet.close()


def transport(lab: Lab, name: str, **access: Any) -> SshTransport:
    return SshTransport(
        name,
        Access(**{"username": "root", "key_file": str(lab.key), **access}),
        connect_timeout_s=2,
        answer_timeout_s=5,
    )


def left_behind(host: Host) -> list[str]:
    """What of a run is still on a host: processes and folders."""
    words = [" ".join(process.argv) for process in host.processes()]
    folders = [str(path) for path in host.path("/root").glob(".aorta/*")]
    return [text for text in words if "aorta-node" in text or "sshd: root" in text] + folders


def test_two_hosts_from_opening_to_closing(opened: Opened, lab: Lab, tmp_path: Path) -> None:
    fleet = opened()
    names = fleet.perform(Ask("run", {"argv": ["hostname"]})).or_raise()
    assert {host: answer["stdout"] for host, answer in names.items()} == {"node1": "node1\n", "node2": "node2\n"}
    source = tmp_path / "source"
    source.write_bytes(os.urandom(5_000_000))
    source.chmod(0o640)
    fleet.send(source, "/tmp/there")
    for host in lab.hosts:
        assert host.path("/tmp/there").read_bytes() == source.read_bytes()
        fleet.fetch(host.name, "/tmp/there", tmp_path / host.name)
        assert (tmp_path / host.name).read_bytes() == source.read_bytes()
        assert (tmp_path / host.name).stat().st_mode & 0o777 == 0o640
    fleet.close()
    assert [left_behind(host) for host in lab.hosts] == [[], []]
