"""The files that a cluster names for ssh are looked at before any host is contacted."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from pytest_aorta.fleet.ssh_inputs import unusable_files
from pytest_aorta.fleet.ssh_settings import Access
from tests.fleet.ssh_keys_of_devices import make_security_key


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


def told(key_file: str | None = None, known_hosts: str | None = None) -> dict[str, str]:
    return dict(unusable_files(Access("me", key_file=key_file, known_hosts=known_hosts)))


def test_good_files(tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("")
    key = make_key(tmp_path / "key")
    assert told(key_file=str(key), known_hosts=str(known)) == {}
    assert told(key_file=str(make_key(tmp_path / "locked", "word"))) == {}
    assert told() == {}


@pytest.mark.parametrize("what", ["absent", "a folder", "a pipe", "a public key", "junk", "open to others"])
def test_a_key_that_opens_nothing(tmp_path: Path, what: str) -> None:
    path = make_key(tmp_path / "key")
    if what == "absent":
        path.unlink()
    elif what == "a folder":
        path = tmp_path
    elif what == "a pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    elif what == "a public key":
        path = tmp_path / "key.pub"
    elif what == "junk":
        path.write_text("junk")
    else:
        path.chmod(0o640)
    expected = {
        "absent": f"seen {path}, no such file, expected a private key; ",
        "a folder": f"seen {path}, a folder, expected a private key; ",
        "a pipe": f"seen {path}, no regular file, expected a private key; ",
        "a public key": f"seen {path}, a public key, expected the private one; name {tmp_path}/key",
        "junk": f"seen {path}, which holds no private key of a known kind, expected ",
        "open to others": f"seen {path} with mode 0640, open to others, which ssh refuses; do `chmod 600 {path}`",
    }
    assert told(key_file=str(path))["priv_key_file"].startswith(expected[what])


def test_a_security_key_is_for_the_agent(tmp_path: Path) -> None:
    path = make_security_key(tmp_path / "key")
    subprocess.run(["ssh-keygen", "-l", "-f", str(path)], check=True, capture_output=True)  # it is one
    expected = f"seen {path}, a security key, expected .*; put it into the agent by `ssh-add {path}`, and leave "
    assert re.match(expected, told(key_file=str(path))["priv_key_file"])


def test_a_home_that_nobody_knows() -> None:
    why = "~nobody-of-that-name/x: where that home is is not known"
    assert told(key_file="~nobody-of-that-name/x")["priv_key_file"].startswith(why)
    assert told(known_hosts="~nobody-of-that-name/x")["known_hosts"].startswith(why)


def test_known_hosts_that_cannot_be_read(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert told(known_hosts=absent)["known_hosts"].startswith(
        f"seen {absent}, no such file, expected a known-hosts file"
    )
    assert dict(unusable_files(Access("me", known_hosts=absent, policy="accept-new"))) == {}
    assert told(known_hosts=str(tmp_path))["known_hosts"].startswith(f"seen {tmp_path}, a folder, expected ")


def test_files_that_the_system_does_not_open() -> None:
    path = f"/{'x' * 300}"
    why = f"seen {path}, which cannot be read (file name too long), expected a "
    assert told(key_file=path)["priv_key_file"].startswith(f"{why}private key; ")
    assert told(known_hosts=path)["known_hosts"].startswith(f"{why}known-hosts file; ")
