"""SFTP with many requests on their way, against a server of the test that answers as it likes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pytest_aorta.fleet.ssh_sftp import BLOCK_BYTES, Sftp

INIT, VERSION, READ, WRITE, STATUS, DATA = 1, 2, 5, 6, 101, 103
OK, EOF, FAILURE = 0, 1, 4

Request = tuple[int, int, int, bytes]
Reply = tuple[int, bytes]


def string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def status(code: int) -> Reply:
    return STATUS, struct.pack(">I", code) + string(b"Failure") + string(b"")


class Line:
    """What of an SSH channel an SFTP client uses."""

    def __init__(self, end: socket.socket) -> None:
        self.send, self.recv, self.close = end.send, end.recv, end.close

    def get_name(self) -> str:
        return "line"


@contextmanager
def server(num_at_once: int, reply: Callable[[int, int], Reply]) -> Iterator[Sftp]:
    """Answer as many requests as given at a time, the last one first; `reply` is given offset and length."""
    ours, theirs = socket.socketpair()

    def receive(size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = theirs.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def send(kind: int, body: bytes) -> None:
        theirs.sendall(struct.pack(">IB", len(body) + 1, kind) + body)

    def packet() -> tuple[int, bytes]:
        size, kind = struct.unpack(">IB", receive(5))
        return kind, receive(size - 1)

    def serve() -> None:
        packet()
        send(VERSION, struct.pack(">I", 3))
        try:
            while True:
                waiting = [packet() for _ in range(num_at_once)]
                for _, body in reversed(waiting):
                    offset, length = struct.unpack(">QI", body[9:21])  # after the number and a handle of one byte
                    kind, answer = reply(offset, length)
                    send(kind, body[:4] + answer)
        except (EOFError, OSError):
            return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Sftp(Line(ours))
    finally:
        ours.close()
        thread.join()
        theirs.close()


def test_blocks_come_in_their_order_whatever_the_order_of_the_answers() -> None:
    content = bytes(range(256)) * 1024  # eight blocks

    def reply(offset: int, length: int) -> Reply:
        return DATA, string(content[offset : offset + length])

    with server(8, reply) as sftp:
        assert b"".join(sftp.read_blocks(b"h", 0, len(content))) == content
    with server(1, reply) as sftp:
        assert b"".join(sftp.read_blocks(b"h", 100_000, len(content))) == content[100_000:]


def test_a_file_that_became_shorter_ends_where_it_ends() -> None:
    def reply(offset: int, length: int) -> Reply:
        return (
            (DATA, string(b"x" * 10))
            if offset == BLOCK_BYTES
            else status(EOF)
            if offset
            else (DATA, string(b"y" * length))
        )

    with server(1, reply) as sftp:
        assert b"".join(sftp.read_blocks(b"h", 0, 4 * BLOCK_BYTES)) == b"y" * BLOCK_BYTES + b"x" * 10


@pytest.mark.parametrize("num_at_once", [1, 4])
def test_a_refused_write_is_raised(num_at_once: int) -> None:
    seen: list[tuple[int, int]] = []

    def reply(offset: int, length: int) -> Reply:
        seen.append((offset, length))
        return status(FAILURE if offset == 1005 else OK)

    with server(num_at_once, reply) as sftp, pytest.raises(OSError, match="Failure"):
        sftp.write_blocks(b"h", 1000, [b"first", b"next", b"more", b"end"])
    assert (1005, 4) in seen
