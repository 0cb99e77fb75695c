"""Identity: a key that is listed for a host, what its files hold, and what keeps us from its private half."""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from pytest_aorta.fleet.ssh_paths import in_home

Flaw = Literal["", "absent", "a device's", "locked", "open to others"]

_KINDS = (paramiko.RSAKey, paramiko.ECDSAKey, paramiko.Ed25519Key)
_USUAL = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")
_OF_OTHERS = 0o077
_PKCS8 = re.compile(rb"^-----BEGIN (ENCRYPTED )?PRIVATE KEY-----\s*$", re.MULTILINE)
_MAGIC = b"openssh-key-v1\0"
_NUM_FIELDS_BEFORE = 3  # cipher, key derivation and its options


class SecurityKey(OSError):
    """A key file that is of use only with the device that it was made with: the agent speaks to that, we do not."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key or a certificate; `public` is empty where it cannot be known, `flaw` is that of the private file."""

    path: str
    public: bytes
    flaw: Flaw = ""
    certificate: paramiko.PublicBlob | None = None
    is_given: bool = False


def usual_names() -> list[str]:
    """Give the names of the keys that are tried where the configuration lists none."""
    return [f"~/.ssh/id_{kind}" for kind in _USUAL]


def identities(
    name: str, passphrase: str | None, *, is_given: bool = False, with_certificate: bool
) -> Iterator[Identity]:
    """Give a listed key, unless neither half is there, and the certificate beside it unless others are listed.

    Raises:
        OSError: it is the one of the cluster file, and of no use.
    """
    path = str(in_home(name))
    if not Path(path).is_file() and Path(path).exists():
        return  # a folder; or a pipe or a device, which would be waited for
    flaw = _flaw(path, passphrase, is_given=is_given)
    public = _public_half(path, passphrase)
    if public or flaw != "absent":
        yield Identity(path, public, flaw, None, is_given)
    if with_certificate:
        for found in certificates(f"{path}-cert.pub"):
            yield Identity(path, found.public, flaw, found.certificate, is_given)


def certificates(name: str) -> Iterator[Identity]:
    """Give the certificate in a file; none where there is none."""
    path = str(in_home(name))
    blob = _public_file(path)
    if blob is not None and "-cert-" in blob.key_type:
        yield Identity(path, blob.key_blob, "absent", blob)


def signed_key(certificate: paramiko.PublicBlob) -> bytes:
    """Give the public key that a certificate is for; empty where its kind is not known."""
    for kind in _KINDS:
        try:
            key = kind(data=certificate.key_blob)
        except (paramiko.SSHException, ValueError):
            continue
        return bytes(key.asbytes())
    return b""


def private_key(path: str, passphrase: str | None) -> paramiko.PKey | None:
    """Give the key of a private file; None where the passphrase does not open it."""
    for kind in _KINDS:
        try:
            return kind.from_private_key_file(path, passphrase)
        except (paramiko.SSHException, ValueError):
            continue
    return _pkcs8_key(Path(path).read_bytes(), passphrase)


def _pkcs8_key(text: bytes, passphrase: str | None) -> paramiko.PKey | None:
    """Give the key of a file in the form of PKCS#8, which paramiko does not read."""
    if not (found := _PKCS8.search(text)):
        return None
    try:
        key = load_pem_private_key(text, (passphrase or "").encode() if found[1] else None)
        written = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode("ascii")
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    for kind in _KINDS:
        try:
            return kind.from_private_key(io.StringIO(written))
        except (paramiko.SSHException, ValueError):
            continue
    return None


def is_locked(path: str, passphrase: str | None) -> bool:
    """Tell whether a key needs a passphrase that we do not have; its holder may be the agent.

    Raises:
        SecurityKey: it is that of a device.
        OSError: it is absent, or no private key.
    """
    try:
        if (found := _PKCS8.search(Path(path).read_bytes())) and (found[1] or private_key(path, None) is not None):
            return bool(found[1]) and private_key(path, passphrase) is None
        paramiko.PKey.from_path(path)
    except TypeError:  # it is encrypted
        return passphrase is None or private_key(path, passphrase) is None
    except (ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType, UnsupportedAlgorithm) as error:
        if str(error).startswith("sk-"):
            raise SecurityKey(
                f"the key file {path} is that of a security key, which only the agent can use; do `ssh-add {path}`, "
                "and leave priv_key_file out"
            ) from error
        raise OSError(f"the key file {path} holds no private key of a known kind; correct priv_key_file") from error
    except OSError as error:
        raise OSError(f"the key file {path} cannot be read: {error.strerror}; correct priv_key_file") from error
    return False


def mode_for_others(path: str) -> str:
    """Give the mode of a private file of ours that others may read, for which ssh does not use it; else nothing.

    Source: sshkey_perm_ok() of OpenSSH.
    """
    seen = Path(path).stat()
    is_open = seen.st_uid == os.geteuid() and seen.st_mode & _OF_OTHERS
    return f"{stat.S_IMODE(seen.st_mode):04o}" if is_open else ""


def _flaw(path: str, passphrase: str | None, *, is_given: bool) -> Flaw:
    try:
        locked = is_locked(path, passphrase)
        mode = mode_for_others(path)
    except SecurityKey:
        if is_given:
            raise
        return "a device's"
    except OSError:  # as ssh does, which passes over what is absent
        if is_given:
            raise
        return "absent"
    if mode and is_given:
        raise OSError(f"the key file {path} with mode {mode} is open to others, so ssh refuses it; `chmod 600 {path}`")
    return "open to others" if mode else "locked" if locked else ""


def _public_half(path: str, passphrase: str | None) -> bytes:
    """Give the public half from where ssh looks for it: the file itself, the one beside it, a private one."""
    for name in (path, f"{path}.pub"):
        if (blob := _public_file(name)) is not None:
            return bytes(blob.key_blob)
    try:
        key = private_key(path, passphrase)
        return bytes(key.asbytes()) if key is not None else _written_in_the_clear(Path(path).read_bytes())
    except OSError:
        return b""


def _public_file(path: str) -> paramiko.PublicBlob | None:
    try:
        return paramiko.PublicBlob.from_file(path)
    except (OSError, ValueError):
        return None


def _written_in_the_clear(text: bytes) -> bytes:
    """Give the public half that a private file of OpenSSH's own format shows, locked or not. Source: PROTOCOL.key."""
    lines = [line for line in text.split(b"\n") if not line.startswith(b"-----")]
    try:
        content = base64.b64decode(b"".join(lines))
    except binascii.Error:
        return b""
    if not content.startswith(_MAGIC):
        return b""
    message = paramiko.Message(content[len(_MAGIC) :])
    for _ in range(_NUM_FIELDS_BEFORE):
        message.get_binary()
    message.get_int()
    return bytes(message.get_binary())
