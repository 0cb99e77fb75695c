"""SFTP with requests on their way at the same time, without the threads that paramiko would use for that."""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import paramiko
from paramiko.sftp import CMD_DATA, CMD_READ, CMD_STATUS, CMD_WRITE, SFTPError, int64

from pytest_aorta.fleet.ssh_link import Link
from pytest_aorta.fleet.ssh_refusals import LinkBroken

BLOCK_BYTES = 32768  # every server takes as much in one request
WINDOW = 64
_SERVERS = "/usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/local/libexec /usr/lib/sftp-server"
_MARK = b"\naorta-sftp\n"
_FIND = (
    f"for folder in {_SERVERS}; do "
    'if [ -x "$folder/sftp-server" ]; then printf "\\naorta-sftp\\n"; exec "$folder/sftp-server"; fi; done'
)
_NOISE_LIMIT_BYTES = 16 * 1024 * 1024
READ_BYTES = 65536


class NoSftp(OSError):
    """A host has no SFTP server; the sentence says it all."""


class Sftp(paramiko.SFTPClient):  # type: ignore[misc]
    """A session whose transfers keep many requests on their way.

    The prefetching of paramiko sends from a thread that nobody catches the errors of, and its pipelined writes drop
    theirs.
    """

    def read_blocks(self, handle: bytes, start: int, end: int) -> Iterator[bytes]:
        """Give the bytes of a file from `start` to `end`; fewer when the file is shorter by then."""
        asked = ((CMD_READ, handle, int64(at), min(BLOCK_BYTES, end - at)) for at in range(start, end, BLOCK_BYTES))
        for wanted, (kind, answer) in zip(range(start, end, BLOCK_BYTES), self._exchange(asked), strict=True):
            block = answer.get_string() if kind == CMD_DATA else b""
            yield block
            if len(block) < min(BLOCK_BYTES, end - wanted):
                return

    def write_blocks(self, handle: bytes, start: int, blocks: Iterable[bytes]) -> None:
        """Write blocks of at most BLOCK_BYTES one after the other."""

        def requests() -> Iterator[tuple[Any, ...]]:
            at = start
            for block in blocks:
                yield CMD_WRITE, handle, int64(at), block
                at += len(block)

        for _ in self._exchange(requests()):
            pass

    def _exchange(self, requests: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Send requests and give the answers in their order; a refusal is raised, an end of file is an empty block."""
        early = _Early()
        waiting: deque[int] = deque()
        for request in requests:
            if len(waiting) >= WINDOW:
                yield self._take(waiting.popleft(), early)
            waiting.append(self._async_request(early, *request))
        while waiting:
            yield self._take(waiting.popleft(), early)

    def _take(self, number: int, early: _Early) -> tuple[int, Any]:
        try:
            if number in early.answers:
                kind, answer = early.answers.pop(number)
                if kind == CMD_STATUS:
                    self._convert_status(answer)
            else:
                kind, answer = self._read_response(number)
        except EOFError:
            return CMD_STATUS, None
        return kind, answer


class _Early:
    """Answers that came before those to earlier requests."""

    def __init__(self) -> None:
        self.answers: dict[int, tuple[int, Any]] = {}

    def _async_response(self, kind: int, answer: Any, number: int) -> None:
        self.answers[number] = kind, answer


@contextlib.contextmanager
def open_sftp(link: Link) -> Iterator[tuple[Sftp, paramiko.Channel]]:
    """Open an SFTP session; where sshd refuses one, or start-up files print into it, start the server past them.

    Raises:
        NoSftp: the host has no SFTP server.
    """
    with link.session() as channel:
        sftp = _of_sshd(link, channel)
        if sftp is not None:
            yield sftp, channel
            return
    with link.session() as channel:
        link.execute(channel, ["sh", "-c", _FIND])
        noise = bytearray()
        while not noise.endswith(_MARK) and len(noise) < _NOISE_LIMIT_BYTES:
            data = channel.recv(READ_BYTES)  # nothing comes behind the mark: the server waits to be greeted
            if not data:
                break
            noise += data
        sftp = _greeted(channel) if noise.endswith(_MARK) else None
        if sftp is not None:
            yield sftp, channel
            return
    seen = bytes(noise[:60])
    raise NoSftp(
        f"{link.place} answers no SFTP: seen {seen!r}, expected an SFTP server, by which files are copied; is "
        "`Subsystem sftp internal-sftp` set in its sshd_config, and do the shell's start-up files print something?"
    )


def _of_sshd(link: Link, channel: paramiko.Channel) -> Sftp | None:
    """Give the session that sshd itself offers; None where it has no such subsystem or that says other things."""
    try:
        link.subsystem(channel, "sftp")
    except LinkBroken:
        if link.is_lost():
            raise
        return None
    return _greeted(channel)


def _greeted(channel: paramiko.Channel) -> Sftp | None:
    """Begin the protocol; None when what comes is not of it."""
    try:
        return Sftp(channel)
    except (SFTPError, paramiko.SSHException, struct.error):  # also for an end of what is sent
        return None
    except OSError:
        if channel.closed:  # before it could be asked
            return None
        raise
