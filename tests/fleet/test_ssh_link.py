"""A link whose other side is silent; nothing is sent."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from pathlib import Path

import paramiko
import pytest

from pytest_aorta.fleet.fleet import OPEN_TIMEOUT_S
from pytest_aorta.fleet.ssh_link import Link
from pytest_aorta.fleet.ssh_refusals import refusal
from pytest_aorta.fleet.ssh_settings import Access, way_to
from pytest_aorta.fleet.ssh_transport import Transport


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
        (
            b"HTTP/1.1 400 Bad Request\r\n" * 200,
            "it says 'HTTP/1.1 400 Bad Request', expected the greeting of sshd; is the port right, or is it busy",
        ),
        (b"", "it hung up during the greeting, expected sshd; is it overloaded"),
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
        ("sh -c 'echo hello; exit 0'", "with status 0, and said 'hello'"),
        ("sh -c 'exec >/dev/null 2>&1 </dev/null; kill -9 $$'", "by signal 9, and said nothing"),
        ("absent-program %h", "with status 127, and said .*absent-program: .*not found'"),
    ],
)
def test_a_proxy_command_that_ends_is_told_with_its_last_words(home: Path, command: str, how: str) -> None:
    (home / ".ssh" / "config").write_text(f"ProxyCommand {command}\n")
    told = f"the ProxyCommand of the ssh configuration ended {how}, expected a way to sshd; try it by hand"
    with pytest.raises(OSError, match=f"^no SSH connection .n1 port 22 as me.: {told}"):
        Link.to("n1", Access("me"), 2, 1)


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("", "let nothing through within 1 s"),
        ("echo hello world", "says 'hello world'"),
        (r"printf '\377\000 no line'", r"says '\xff\x00 no line'"),
        ("yes", "says 'y'"),
        ("exec 1>&-; exec 0<&-", "hung up during the greeting, expected sshd; is it overloaded"),
    ],
)
def test_a_proxy_command_that_leads_to_no_sshd_is_told_by_name_and_ended(home: Path, printed: str, told: str) -> None:
    pids = home / "pids"
    script = home / "way"
    script.write_text(f"#!/bin/sh\necho $$ >>{pids}\n{printed}\nexec sleep 60\n")
    script.chmod(0o755)
    (home / ".ssh" / "config").write_text(f"ProxyCommand {script} --token secret\n")
    with pytest.raises(OSError, match=r"^no SSH connection \(n1 port 22 as me\): ") as caught:
        Link.to("n1", Access("me"), 1, 1)
    assert f": the ProxyCommand of the ssh configuration ({script} ...) {told}" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert pids.read_text()
    assert not any(Path("/proc", pid).exists() for pid in pids.read_text().split())


def test_lines_before_the_greeting_are_let_pass_and_those_after_it_are_not_lost(home: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"Welcome\r\nto us\nSSH-2.0-Other a comment\r\nand more")
        transport = Transport(ours)
        transport.active = True
        transport.banner_timeout = 5
        transport._check_banner()  # paramiko calls it from a thread of its own
        assert (transport.remote_version, transport.heard) == ("SSH-2.0-Other a comment", b"")
        assert ours.recv(100) == b"and more"


def test_a_longer_wait_than_a_start_has_is_cut_and_told(home: Path) -> None:
    (home / ".ssh" / "config").write_text("ConnectTimeout 100\n")
    [hop] = way_to("n1", Access("me"), 7)
    assert hop.connection.connect_timeout < OPEN_TIMEOUT_S
    told = "no answer within 50 s, the most that is waited whatever ConnectTimeout says, expected sshd; is the host up"
    assert told in str(refusal(TimeoutError(), hop, "n1"))
    (home / ".ssh" / "config").write_text("ConnectTimeout 20\n")
    [hop] = way_to("n1", Access("me"), 7)
    assert "no answer within 20 s, expected sshd" in str(refusal(TimeoutError(), hop, "n1"))
