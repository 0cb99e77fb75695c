"""Inputs: the files that a cluster file names for ssh, looked at on this machine before any host is contacted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_aorta.fleet.ssh_identity import SecurityKey, is_locked, mode_for_others
from pytest_aorta.fleet.ssh_paths import in_home
from pytest_aorta.fleet.ssh_settings import Access

_PUBLIC = (b"ssh-", b"ecdsa-", b"sk-ssh-", b"sk-ecdsa-")


def unusable_files(access: Access) -> Iterator[tuple[str, str]]:
    """Give the field and what is wrong with the file that it names; a key that is locked may be in the agent."""
    looks: dict[str, tuple[str | None, Callable[[Path], str]]] = {
        "priv_key_file": (access.key_file, lambda path: _why_no_key(path, access.password)),
        "known_hosts": (access.known_hosts, lambda path: _why_no_list(path, access.policy == "reject")),
    }
    for field, (name, look) in looks.items():
        try:
            why = look(in_home(name)) if name else ""
        except OSError as error:
            why = str(error)
        if why:
            yield field, why


def _why_no_key(path: Path, passphrase: str | None) -> str:
    why, beginning = _beginning(path)
    if why:
        return f"seen {path}, {why}, expected a private key; correct the path, or make a key by `ssh-keygen`"
    if beginning.startswith(_PUBLIC):
        private = path.with_suffix("") if path.suffix == ".pub" else "the file beside it without .pub"
        return f"seen {path}, a public key, expected the private one; name {private}"
    try:
        is_locked(str(path), passphrase)
    except SecurityKey:
        return (
            f"seen {path}, a security key, expected a key that opens without its device; put it into the agent by "
            f"`ssh-add {path}`, and leave priv_key_file out"
        )
    except OSError:
        return f"seen {path}, which holds no private key of a known kind, expected one as `ssh-keygen` makes it"
    if mode := mode_for_others(str(path)):
        return f"seen {path} with mode {mode}, open to others, which ssh refuses; do `chmod 600 {path}`"
    return ""


def _why_no_list(path: Path, is_needed: bool) -> str:
    why, _ = _beginning(path)
    if not why or (why == "no such file" and not is_needed):
        return ""
    return (
        f"seen {path}, {why}, expected a known-hosts file; correct the path, or leave it out: ~/.ssh/known_hosts "
        "and the system's file are looked at then"
    )


def _beginning(path: Path) -> tuple[str, bytes]:
    """Give why a file cannot be read, or nothing and its first bytes."""
    try:
        if not (path.is_file() or path.is_dir() or path == Path(os.devnull)) and path.exists():
            return "no regular file", b""  # reading a pipe would wait, and a device may have no end
        with path.open("rb") as file:
            return "", file.read(16)
    except FileNotFoundError:
        return "no such file", b""
    except IsADirectoryError:
        return "a folder", b""
    except (OSError, ValueError) as error:
        return f"which cannot be read ({(getattr(error, 'strerror', None) or str(error)).lower()})", b""
