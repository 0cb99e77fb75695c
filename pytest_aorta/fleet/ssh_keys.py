"""Known hosts: which key a host must show, and what becomes of a host that is not known."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import paramiko

Policy = Literal["reject", "accept-new"]

USUAL_FILE = "~/.ssh/known_hosts"
_HASH_MARK = "|1|"
_writing = threading.Lock()  # hosts connect at the same time, and may share a jump host


class HostKeyRefused(paramiko.SSHException):  # type: ignore[misc]
    """The host's key is not known, or another one is; the message says what to do."""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key of a known-hosts file."""

    file: Path
    line: int
    marker: str
    kind: str
    key: bytes


class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Judges the key of one host.

    The client's own table stays empty, so that it asks here for every host: it knows neither patterns, nor revoked
    keys, nor several keys of a kind, and could not name file and line. `alias` is for a host behind another one.
    """

    def __init__(
        self, files: Sequence[Path], policy: Policy, name: str, *, alias: str = "", hashed: bool = False
    ) -> None:
        self.files = tuple(files)
        self._policy = policy
        self._name = name
        self._alias = alias
        self._hashed = hashed
        self._keys = tuple(known_keys(files, name))

    def kinds(self) -> tuple[str, ...]:
        """Give the kinds of key that are known: to be asked for first, or the host shows one of another kind."""
        return tuple(dict.fromkeys(key.kind for key in self._keys if not key.marker))

    def missing_host_key(self, _client: object, _hostname: str, key: paramiko.PKey) -> None:
        """Let the connection go on, or raise HostKeyRefused."""
        if self._policy == "accept-new":
            with _writing:
                self._keys = tuple(known_keys(self.files, self._name))  # another connection may have added it
                if not self._judge(key):
                    self._add(key)
        elif not self._judge(key):
            raise HostKeyRefused(self._unknown(key))

    def _judge(self, key: paramiko.PKey) -> bool:
        """Tell whether the key is known; raise HostKeyRefused when another is, or when it was revoked."""
        shown = key.asbytes()
        for known in self._keys:
            if known.marker == "@revoked" and known.key == shown:
                raise HostKeyRefused(
                    f"it shows a host key that {known.file} line {known.line} revokes: seen {fingerprint(shown)}, "
                    "expected another; the machine must get a new host key"
                )
        plain = [known for known in self._keys if not known.marker]
        if any(known.key == shown for known in plain):
            return True
        if plain:
            raise HostKeyRefused(self._changed(key, plain))
        return False

    def _changed(self, key: paramiko.PKey, plain: list[KnownKey]) -> str:
        expected = next((known for known in plain if known.kind == key.get_name()), plain[0])
        return (
            f"its host key has changed: seen {fingerprint(key.asbytes())} ({key.get_name()}), expected "
            f"{fingerprint(expected.key)} ({expected.kind}, {expected.file} line {expected.line}); the machine was "
            "installed anew, or somebody stands in between; "
            f"remove the old key by `ssh-keygen -R '{self._name}' -f {expected.file}` only when its administrator has "
            "confirmed the new one"
        )

    def _unknown(self, key: paramiko.PKey) -> str:
        kind = key.get_name()
        short = kind.removeprefix("ssh-").partition("-")[0]
        authority = next((known for known in self._keys if known.marker == "@cert-authority"), None)
        what = "is not known"
        if authority is not None:
            place = f"{authority.file} line {authority.line}"
            what += f" by itself, and the authority that {place} trusts (@cert-authority) is not read here"
        if self._is_forgetful():
            what += ", as /dev/null keeps none (UserKnownHostsFile of the ssh configuration, or cluster.known_hosts)"
        return (
            f"its host key {what}: seen {fingerprint(key.asbytes())} ({kind}), expected a known one; "
            f"{self._how_to_add(short)} when `ssh-keygen -lf /etc/ssh/ssh_host_{short}_key.pub` on the machine shows "
            "the same, or set cluster.host_key_policy to accept-new"
        )

    def _how_to_add(self, short: str) -> str:
        """Say how a key gets into a file that is looked at."""
        forgetful = self._is_forgetful()
        file = Path(USUAL_FILE) if forgetful or not self.files else self.files[0]
        host, _, port = self._name.removeprefix("[").partition("]:")
        add = f"ssh-keyscan -t {short}{f' -p {port}' if port else ''} {host} >> {file}"
        if self._alias:
            add = f"ssh -o UserKnownHostsFile={file} {self._alias} true"
        elif not forgetful and self.files and not file.parent.exists():
            add = f"mkdir -m 700 -p {file.parent} && {add}"
        return f"set cluster.known_hosts to {file} and add it by `{add}`" if forgetful else f"add it by `{add}`"

    def _is_forgetful(self) -> bool:
        """Tell whether what is added to the first file is lost, as it is in /dev/null."""
        return bool(self.files) and self.files[0] == Path(os.devnull)

    def _add(self, key: paramiko.PKey) -> None:
        if not self.files:
            raise HostKeyRefused("its host key is new, and there is no known-hosts file to remember it in")
        file = self.files[0]
        name = paramiko.HostKeys.hash_host(self._name) if self._hashed else self._name
        line = f"{name} {key.get_name()} {key.get_base64()}\n"
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "r+b") as opened:
                if opened.seekable() and opened.seek(0, os.SEEK_END):
                    opened.seek(-1, os.SEEK_END)
                    line = line if opened.read(1) == b"\n" else f"\n{line}"
                opened.write(line.encode())
        except OSError as error:
            raise HostKeyRefused(
                f"its host key is new and cannot be remembered in {file}: {error.strerror}; make the file writable"
            ) from error


def fingerprint(key: bytes) -> str:
    """Give a key's fingerprint as OpenSSH writes it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def lookup_name(host: str, port: int) -> str:
    """Give the name under which a host stands in known-hosts files."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def known_keys(files: Iterable[Path], name: str) -> Iterator[KnownKey]:
    """Give the keys that files have for a name; a file that is absent has none, a line that is none is passed over.

    Raises:
        OSError: a file is there and cannot be read.
    """
    for file in files:
        try:
            lines = file.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OSError(f"the known-hosts file {file} cannot be read: {error.strerror}; correct it") from error
        for number, line in enumerate(lines, 1):
            fields = line.split()
            marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
            if len(fields) < 3 or fields[0].startswith("#"):
                continue
            if _names(fields[0], name):
                try:
                    key = base64.b64decode(fields[2], validate=True)
                except binascii.Error:
                    continue
                yield KnownKey(file, number, marker, fields[1], key)


def _names(patterns: str, name: str) -> bool:
    """Tell whether the first field of a line stands for a name: hashed, or patterns of which none excludes it.

    A HostKeyAlias comes as it is written; OpenSSH looks for its hash so, and writes it in small letters.
    """
    if patterns.startswith(_HASH_MARK):
        return any(_is_hash_of(patterns, spelling) for spelling in {name, name.lower()})
    matched = False
    for pattern in patterns.lower().split(","):
        if fnmatch.fnmatchcase(name.lower(), pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _is_hash_of(text: str, name: str) -> bool:
    try:
        salt, expected = (base64.b64decode(part, validate=True) for part in text.removeprefix(_HASH_MARK).split("|"))
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), expected)
