"""Private keys of every form that ssh reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_aorta.fleet.ssh_identity import is_locked, private_key


def made(path: Path, kind: str, form: str, passphrase: str = "") -> str:
    argv = ["ssh-keygen", "-q", "-t", kind, "-m", form, "-N", passphrase, "-f", str(path)]
    subprocess.run(argv, check=True)
    return str(path)


@pytest.mark.parametrize("form", ["PKCS8", "PEM", "RFC4716"])
@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_key_is_read_in_every_form(tmp_path: Path, kind: str, form: str) -> None:
    path = made(tmp_path / "key", kind, form)
    key = private_key(path, None)
    assert key is not None
    assert key.get_base64() == Path(f"{path}.pub").read_text().split()[1]
    assert not is_locked(path, None)


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    path = Path(made(tmp_path / "key", "rsa", "PKCS8"))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert private_key(str(path), None) is not None
    assert not is_locked(str(path), None)


@pytest.mark.parametrize("form", ["PKCS8", "PEM", "RFC4716"])
@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_a_locked_key_is_opened_by_its_passphrase_only(tmp_path: Path, kind: str, form: str) -> None:
    path = made(tmp_path / "key", kind, form, "right horse")
    key = private_key(path, "right horse")
    assert key is not None
    assert key.get_base64() == Path(f"{path}.pub").read_text().split()[1]
    assert [private_key(path, each) for each in (None, "wrong")] == [None, None]
    assert [is_locked(path, each) for each in ("right horse", "wrong", None)] == [False, True, True]


def test_what_only_looks_like_a_key_is_none(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("-----BEGIN PRIVATE KEY-----\nbm8ga2V5\n-----END PRIVATE KEY-----\n")
    with pytest.raises(OSError, match=r"holds no private key of a known kind; correct priv_key_file"):
        is_locked(str(path), None)
