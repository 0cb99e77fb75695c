"""Security keys: private key files as `ssh-keygen -t ed25519-sk` leaves them, made without a device."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

_KIND = b"sk-ssh-ed25519@openssh.com"


def make_security_key(path: Path) -> Path:
    """Write a key without a passphrase. Source: PROTOCOL.key and PROTOCOL.u2f of OpenSSH."""
    public = _text(_KIND) + _text(bytes(32)) + _text(b"ssh:")
    private = bytes(8) + public + b"\x01" + _text(b"handle") + _text(b"") + _text(b"a comment")
    private += bytes(range(1, 1 + -len(private) % 8))
    parts = (_text(b"none"), _text(b"none"), _text(b""), struct.pack(">I", 1), _text(public), _text(private))
    body = base64.encodebytes(b"openssh-key-v1\0" + b"".join(parts)).decode()
    path.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}-----END OPENSSH PRIVATE KEY-----\n")
    path.chmod(0o600)
    return path


def _text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
