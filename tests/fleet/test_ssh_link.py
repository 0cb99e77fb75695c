"""A link whose other side is silent; nothing is sent."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from pathlib import Path

import paramiko
import pytest

from pytest_aorta.fleet.ssh_link import Link
from pytest_aorta.fleet.ssh_settings import Access, way_to


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_silence_longer_than_the_kernel_can_count_is_the_longest_that_it_can() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        hops = way_to("n1", Access("me"), 7)
        hops[0].connection.transport = transport = paramiko.Transport(own)
        link = Link(hops, transport, 30)
        for silence_s, expected_ms in ((0, 1), (7, 7000), (100_000_000, 2**31 - 1)):
            link.bound_silence(silence_s)
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == expected_ms


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n" * 200, "indecipherable protocol version"),
        (b"", "it hung up during the greeting, expected sshd"),
    ],
)
def test_who_is_no_sshd_is_told_once_and_not_by_the_log_of_another_library(
    greeting: bytes, why: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer = server.accept()[0]
                    with peer, contextlib.suppress(OSError):
                        peer.sendall(greeting)
                        peer.recv(1000)

        (home / ".ssh" / "config").write_text(f"Port {server.getsockname()[1]}\n")
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(OSError, match=why):
            Link.to("127.0.0.1", Access("me"), 1, 1)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert [record.name for record in caplog.records] == []


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("sh -c 'echo no way >&2; exit 3'", "with status 3, and said 'no way'"),
        ("sh -c 'head -c 1 >/dev/null; echo no; echo no %h:%p >&2; exit 3'", "with status 3, and said 'no n1:22'"),
        ("sh -c 'exec >/dev/null 2>&1 </dev/null; kill -9 $$'", "by signal 9, and said nothing"),
        ("absent-program %h", "with status 127, and said .*absent-program: .*not found'"),
    ],
)
def test_a_proxy_command_that_ends_is_told_with_its_last_words(home: Path, command: str, how: str) -> None:
    (home / ".ssh" / "config").write_text(f"ProxyCommand {command}\n")
    told = f"the ProxyCommand of the ssh configuration ended {how}, expected a way to sshd; try it by hand"
    with pytest.raises(OSError, match=f"^no SSH connection .n1 port 22 as me.: {told}"):
        Link.to("n1", Access("me"), 2, 1)


def test_a_proxy_command_that_says_nothing_is_given_up_and_ended(home: Path) -> None:
    pids = home / "pids"
    (home / ".ssh" / "config").write_text(f"ProxyCommand sh -c 'echo $$ >>{pids}; exec sleep 60'\n")
    with pytest.raises(OSError, match=r"no answer within|it hung up during the greeting"):
        Link.to("n1", Access("me"), 1, 1)
    assert pids.read_text()
    assert not any(Path("/proc", pid).exists() for pid in pids.read_text().split())
