"""A home of the test's own, with an ssh configuration and keys."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_aorta.fleet.ssh_settings import Hop


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    return tmp_path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return make_key(tmp_path / "key")


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


def configure(home: Path, text: str) -> None:
    (home / ".ssh" / "config").write_text(text)


def keys(hop: Hop) -> list[str]:
    """The private files that a host is offered."""
    return [identity.path for identity in hop.login.identities if not identity.flaw]


def places(hops: list[Hop]) -> list[str]:
    return [hop.place for hop in hops]
