"""Transport: paramiko's, which asks first for kinds of host key that are known, and reads the greeting as ssh does."""

from __future__ import annotations

import time
from typing import Any

import paramiko

_GREETINGS = (b"SSH-2.0-", b"SSH-1.99-")
_MOST_LINES = 1024
_MOST_BYTES = 8192
_KEPT_BYTES = 60


class NoGreeting(OSError):
    """Something else came than the greeting of sshd; the message is its beginning."""


class Transport(paramiko.Transport):  # type: ignore[misc]
    """One end of a connection; `heard` has the beginning of what came instead of a greeting."""

    heard = b""

    def _check_banner(self) -> None:
        """Read lines until that of sshd; others may come before it. Source: RFC 4253, section 4.2.

        paramiko tells neither silence from an end, nor what it was that came.
        """
        deadline_s = time.monotonic() + self.banner_timeout
        for _ in range(_MOST_LINES):
            line = self._line(deadline_s)
            if line.startswith(_GREETINGS):
                self.heard = b""
                self.remote_version = line.rstrip(b"\r\n").decode("utf-8", "replace")
                return
        raise paramiko.SSHException

    def _line(self, deadline_s: float) -> bytes:
        """Read a line and nothing behind it.

        Raises:
            EOFError, TimeoutError: it did not come, or not in time.
            paramiko.SSHException: it has no end.
        """
        line = b""
        while len(line) < _MOST_BYTES:
            try:
                byte = self.sock.recv(1)
            except TimeoutError:
                byte = None
            if byte == b"" or not self.active:
                raise EOFError
            if time.monotonic() > deadline_s:
                raise TimeoutError
            line += byte or b""
            if byte and len(self.heard) < _KEPT_BYTES:
                self.heard += byte
            if byte == b"\n":
                return line
        raise paramiko.SSHException


def readable(data: bytes) -> str:
    """Give the first line of what came, in letters that can be printed."""
    return repr(data.strip().split(b"\n")[0].rstrip())[1:].strip("'\"")


def factory_of_transports(kinds: tuple[str, ...]) -> Any:
    """Give a maker of transports that ask for some kinds of host key before any other."""

    def make(sock: Any, **options: Any) -> Transport:
        transport = Transport(sock, **options)
        security = transport.get_security_options()
        security.key_types = sorted(security.key_types, key=lambda kind: _key_kind(kind) not in kinds)
        return transport

    return make


def _key_kind(algorithm: str) -> str:
    """Give the kind of key that a signature algorithm needs."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm
