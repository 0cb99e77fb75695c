"""Link: one SSH connection to a host; each call on it has an end, also when the host is gone without a word."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from pytest_aorta.fleet.ssh_line import line_of
from pytest_aorta.fleet.ssh_refusals import Flooded, LinkBroken, is_passing, refusal
from pytest_aorta.fleet.ssh_settings import CONNECT_LIMIT_S, Access, Hop, way_to

NUM_TRIES = 4
PAUSE_S = 0.3
KEEPALIVE_S = 10
READ_BYTES = 65536
OUTPUT_LIMIT_BYTES = 1024 * 1024
FLOOD_BYTES = 64 * 1024 * 1024
CLOSE_TIMEOUT_S = 2.0
SETTLING_S = 0.5
FREED_TIMEOUT_S = 2.0
FREED_PAUSE_S = 0.1
_MOST_MS = 2**31 - 1  # the kernel takes an int, 24 days

# What they log, our errors say; pytest would show it all, with tracebacks. Who sets a level to debug them, keeps it.
for _logger in map(logging.getLogger, ("paramiko", "fabric", "invoke")):
    if _logger.level == logging.NOTSET:
        _logger.setLevel(logging.CRITICAL)


class Done(NamedTuple):
    """How a command on the host ended: status -1 when a signal did it; standard output and error together."""

    status: int
    output: str


class Link:
    """An open connection.

    Without an answer of the host's kernel for as long as an answer may take the connection counts as dead, until
    `bound_silence` says otherwise. paramiko sends keepalive messages and never misses an answer to them, and writes for
    ever into a dead connection; but what is sent and not acknowledged lets the kernel here find out.
    """

    def __init__(self, hops: Sequence[Hop], transport: paramiko.Transport, answer_timeout_s: float) -> None:
        self.place = hops[-1].place
        self._hops = tuple(hops)
        self._transport = transport
        self.answer_timeout_s = answer_timeout_s
        self.bound_silence(answer_timeout_s)

    @classmethod
    def to(cls, address: str, access: Access, connect_timeout_s: float, answer_timeout_s: float) -> Link:
        """Connect.

        Raises:
            OSError: with one sentence that says why not.
        """
        deadline_s = time.monotonic() + CONNECT_LIMIT_S
        for left in reversed(range(NUM_TRIES)):
            hops = way_to(address, access, connect_timeout_s)
            hop = hops[0]
            try:
                with contextlib.ExitStack() as unless_open:
                    unless_open.callback(_close, hops)
                    for hop in hops:
                        hop.open()
                        hop.connection.transport.set_keepalive(KEEPALIVE_S)
                    link = cls(hops, hops[-1].connection.transport, answer_timeout_s)
                    unless_open.pop_all()
                    return link
            except (OSError, EOFError, UnicodeError, paramiko.SSHException) as error:
                if not left or not is_passing(error) or time.monotonic() > deadline_s:
                    raise refusal(error, hop, address) from error
                time.sleep(PAUSE_S * (NUM_TRIES - left) * (0.5 + random.random()))  # noqa: S311  # to spread them
        raise RuntimeError("every try of a connection ends it")

    @property
    def is_alive(self) -> bool:
        """Tell whether nothing is known against it."""
        return bool(self._transport.is_active())

    def is_lost(self) -> bool:
        """Tell whether it is gone; sessions hear of that a moment before the connection says so."""
        self._transport.join(SETTLING_S)
        return not self.is_alive

    def bound_silence(self, silence_s: float) -> None:
        """Give the connection up when the other side's kernel has acknowledged nothing for so long."""
        first = self._hops[0].connection.transport.sock
        if isinstance(first, socket.socket) and first.family != socket.AF_UNIX:  # which is that of a ProxyCommand
            first.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(max(1, int(silence_s * 1000)), _MOST_MS))

    def why_lost(self) -> str:
        """Say how the connection ended."""
        error = self._transport.saved_exception
        if isinstance(error, TimeoutError):
            return f"nothing came through to {self.place} any more"
        words = getattr(error, "strerror", None) or (str(error) if error is not None else "")
        return f"the connection to {self.place} was lost{f' ({words.lower()})' if words else ''}"

    @contextlib.contextmanager
    def session(self, timeout_s: float | None = None) -> Iterator[paramiko.Channel]:
        """Lend a new session, closed afterwards; what breaks it is told as LinkBroken."""
        channel = self.open_session(timeout_s)
        try:
            with self.watched(channel):
                yield channel
        finally:
            with contextlib.suppress(EOFError, OSError):  # closing says so to the other side, which may be gone
                channel.close()

    def open_session(self, timeout_s: float | None = None) -> paramiko.Channel:
        """Open a session without a terminal, forwarding or environment.

        Raises:
            OSError: the host opens no more.
        """
        timeout_s = self.answer_timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + FREED_TIMEOUT_S
        while True:
            try:
                return self._open_session(timeout_s)
            except paramiko.ChannelException as error:
                if time.monotonic() > deadline_s:
                    raise OSError(
                        f"{self.place} opens no further session ({error.text}); is MaxSessions of sshd 2 or more?"
                    ) from error
            time.sleep(FREED_PAUSE_S)  # sshd counts a session that was closed until what ran in it has ended

    def _open_session(self, timeout_s: float) -> paramiko.Channel:
        try:
            channel = self._transport.open_session(timeout=timeout_s)
        except paramiko.ChannelException:
            raise
        except (paramiko.SSHException, OSError, EOFError) as error:
            if self.is_alive:
                raise LinkBroken(f"{self.place} opened no session within {timeout_s:g} s") from error
            raise LinkBroken(self.why_lost()) from error
        channel.settimeout(timeout_s)
        return channel

    def execute(self, channel: paramiko.Channel, argv: Sequence[str], timeout_s: float | None = None) -> None:
        """Start a command in a session, word for word whatever the words hold."""
        self._request(channel, lambda: channel.exec_command(line_of(argv)), timeout_s)

    def subsystem(self, channel: paramiko.Channel, name: str) -> None:
        """Start a subsystem in a session."""
        self._request(channel, lambda: channel.invoke_subsystem(name), None)

    def run(self, argv: Sequence[str], timeout_s: float | None = None, open_timeout_s: float | None = None) -> Done:
        """Run a command without input and wait for its end.

        Raises:
            LinkBroken: the connection was lost, or the command did not end in time; Flooded: or prints without end.
        """
        timeout_s = self.answer_timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() + timeout_s
        with self.session(open_timeout_s) as channel:
            channel.set_combine_stderr(True)
            self.execute(channel, argv, timeout_s)
            channel.shutdown_write()
            try:
                output = _output_of(channel, deadline_s)
            except TimeoutError:
                self.end(channel)
                raise
            except EOFError as error:
                self.end(channel)
                raise Flooded(f"{self.place} prints without end") from error
            if channel.exit_status < 0 and self.is_lost():
                raise EOFError
            return Done(channel.exit_status, output.decode("utf-8", "replace"))

    def end(self, channel: paramiko.Channel) -> None:
        """Have sshd kill what runs in a session; closing alone ends nothing that does not read or write.

        Before its version 9.8 it does not do so for root.
        """
        request = paramiko.Message()
        request.add_byte(cMSG_CHANNEL_REQUEST)
        request.add_int(channel.remote_chanid)
        request.add_string("signal")
        request.add_boolean(False)  # nobody answers
        request.add_string("KILL")
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            self._transport._send_user_message(request)  # noqa: SLF001  # as paramiko's own requests do

    @contextlib.contextmanager
    def watched(self, channel: paramiko.Channel) -> Iterator[None]:
        """Tell what ends a session in between as LinkBroken."""
        try:
            yield
        except LinkBroken:
            raise
        except TimeoutError as error:
            raise LinkBroken(f"{self.place} did not answer in time") from error
        except (paramiko.SSHException, EOFError) as error:
            raise LinkBroken(self._broken(error)) from error
        except OSError as error:
            if channel.closed or not self.is_alive:
                raise LinkBroken(self._broken(error)) from error
            raise

    def close(self) -> None:
        """End the connection; nothing here waits for the host."""
        _close(self._hops)

    def _broken(self, error: BaseException) -> str:
        # What could not be sent any more says that the connection is gone, before paramiko's own thread has seen it.
        is_gone = isinstance(error, EOFError) or not self.is_alive
        return self.why_lost() if is_gone else f"{self.place} ended the session ({error})"

    def _request(self, channel: paramiko.Channel, call: Callable[[], None], timeout_s: float | None) -> None:
        """Wait for the answer to a request; paramiko itself would wait for ever."""
        timer = threading.Timer(self.answer_timeout_s if timeout_s is None else timeout_s, channel.close)
        timer.daemon = True
        timer.start()
        try:
            with self.watched(channel):
                call()
        finally:
            timer.cancel()


def _output_of(channel: paramiko.Channel, deadline_s: float) -> bytes:
    """Give what a command prints until it has ended; EOFError when that has no end."""
    output, num_bytes = b"", 0
    while True:
        channel.settimeout(max(0.01, deadline_s - time.monotonic()))
        data = channel.recv(READ_BYTES)
        if not data:
            break
        output, num_bytes = (output + data)[-OUTPUT_LIMIT_BYTES:], num_bytes + len(data)
        if num_bytes > FLOOD_BYTES or time.monotonic() > deadline_s:
            raise EOFError
    if not channel.status_event.wait(max(0.01, deadline_s - time.monotonic())):
        raise TimeoutError
    return output


def _close(hops: Sequence[Hop]) -> None:
    """Close connections from the last to the first, and wait for their threads."""
    for hop in reversed(hops):
        transport = hop.connection.client.get_transport()
        hop.connection.client.close()
        if transport is not None:
            transport.join(CLOSE_TIMEOUT_S)
        if hop.proxy is not None:
            hop.proxy.end()
