"""Fleets behind SSH for tests: a home of the test's own, short patience, keys, and what a run left on a host."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.ssh import Access, SshTransport
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until

STATE_DIR = "~/.aorta/state"


@pytest.fixture(autouse=True)
def home(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose ssh configuration is the lab's; the test may change it."""
    folder = tmp_path / "home"
    shutil.copytree(lab.home, folder)
    config = folder / ".ssh" / "config"
    config.write_text(config.read_text().replace("ConnectTimeout 5", "ConnectTimeout 2"))
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder


@pytest.fixture
def host(lab: Lab) -> Host:
    return lab.hosts[0]


def access(lab: Lab, **settings: Any) -> Access:
    return Access(**{"username": "root", "key_file": str(lab.key), **settings})


def transport(lab: Lab, address: str, **settings: Any) -> SshTransport:
    return SshTransport(address, access(lab, **settings), connect_timeout_s=2, answer_timeout_s=5)


@contextlib.contextmanager
def opened(lab: Lab, *hosts: str, lease_seconds: float = 60, **settings: Any) -> Iterator[Fleet]:
    """Open a fleet and close it in any case."""
    names = hosts or tuple(host.name for host in lab.hosts)
    fleet = Fleet({name: transport(lab, name, **settings) for name in names}, lease_seconds=lease_seconds)
    fleet.open(dict.fromkeys(names, STATE_DIR))
    try:
        yield fleet
    finally:
        fleet.close()


def left_behind(host: Host) -> list[str]:
    """What of a run is still on a host: processes and folders."""
    words = [" ".join(process.argv) for process in host.processes()]
    folders = [path.name for path in host.path("/root").glob(".aorta/*")]
    return [text for text in words if "aorta-node" in text or "sshd: root" in text] + folders


def wait_clean(host: Host) -> None:
    """Wait until nothing of a run is left; sshd's own process ends a moment after the connection."""
    wait_until(lambda: not left_behind(host), f"{host.name} to be as before, not {left_behind(host)}", 10)


def runs(host: Host, *argv: str) -> bool:
    return argv in {process.argv for process in host.processes()}


def refused(lab: Lab, address: str, **settings: Any) -> str:
    """The sentence for a host that cannot be reached."""
    with pytest.raises(OSError) as caught:  # noqa: PT011  # all of it is compared
        transport(lab, address, **settings).start(60, STATE_DIR)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


def client_address(lab: Lab, address: str, **settings: Any) -> str:
    """Where a host sees us come from."""
    with opened(lab, address, **settings) as fleet:
        run = Ask("run", {"argv": ["sh", "-c", "echo $SSH_CONNECTION"]})
        return str(fleet.perform(run).or_raise()[address]["stdout"].split()[0])
