"""Hosts behind SSH: one connection a host, one session on it for the node program, files over SFTP beside it.

Loaded by name when ssh is chosen: Fabric costs 0.3 s.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko

from pytest_aorta.fleet import ssh_files
from pytest_aorta.fleet.program import INTERPRETER_FLAGS, NAME, command, program_bytes
from pytest_aorta.fleet.ssh_host import Prepared, RemoteHost
from pytest_aorta.fleet.ssh_link import Link
from pytest_aorta.fleet.ssh_refusals import Flooded, LinkBroken
from pytest_aorta.fleet.ssh_settings import Access
from pytest_aorta.fleet.transport import LeftBehind, Pipes
from pytest_aorta.node.requests import sentence

__all__ = ["Access", "SshTransport"]

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
REAP_TIMEOUT_S = 10.0
LOOK_TIMEOUT_S = 4.0
NUM_DISCARDS = 2  # the second time over a new connection: this one may be broken, or have no session left
END_TIMEOUT_S = 3.0
SLICE_S = 1.0
READ_BYTES = 65536
LAST_WORDS_BYTES = 2000
# An empty line first, for what a start-up file printed may end without one. A shell that stays tells by its status
# which signal ended the program: paramiko passes over sshd's own message about it.
_START = 'echo || exit; "$@"; exit $?'
_REAP = '[ ! -e "$0" ] || exec "$@" --reap "${0%/*}"'


class SshTransport:
    """Reaches one host, by the name that the ssh configuration may have more to say about.

    Connecting takes `connect_timeout_s` at most for each of its steps; a host that says nothing for `answer_timeout_s`
    while we wait for an answer is given up. The connection is there as long as a node program or a copy needs it.
    """

    def __init__(
        self,
        address: str,
        access: Access,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._address = address
        self._access = access
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._lock = threading.Lock()
        self._host: RemoteHost | None = None
        self._num_users = 0

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        """Put the program into the state folder unless it is there, and start it in a session of its own."""
        with contextlib.ExitStack() as unless_started:
            host = self.hold()
            unless_started.callback(self.release)
            try:
                found = host.prepare(state_dir)
            except OSError as error:
                if isinstance(error, Flooded) or error.errno:  # else it was not even asked
                    self._discard(state_dir, error)
                raise
            try:
                pipes = self._execute(found, lease_s)
            except OSError as error:
                self._discard(found.folder, error)
                raise
            unless_started.pop_all()
        return pipes

    def _execute(self, found: Prepared, lease_s: float) -> SshPipes:
        program = f"{found.folder}/{NAME}"
        if found.sha256 != hashlib.sha256(program_bytes()).hexdigest():
            ssh_files.put_stream(self.lent, io.BytesIO(program_bytes()), program, 0o600)
        host = self.current()
        host.link.bound_silence(lease_s)  # after as much, the program has ended all by itself
        channel = host.link.open_session()
        try:
            with host.link.session():  # copying needs one beside it; better told now than after the training
                pass
            argv = command(found.python, program, lease_s, found.folder)
            host.link.execute(channel, ["sh", "-c", _START, "sh", *argv])
        except OSError:
            with contextlib.suppress(EOFError, OSError):
                channel.close()
            raise
        return SshPipes(self, host.link, channel, found.python, program, lease_s)

    def _discard(self, folder: str, error: OSError) -> None:
        """Remove the state folder of a program that could not be started.

        Raises:
            LeftBehind: it may lie there still.
        """
        for _ in range(NUM_DISCARDS):
            try:
                with self.lent() as host, _ending_when_it_fails(host.link):
                    host.discard(folder)
            except OSError:
                continue
            return
        raise LeftBehind(f"{sentence(error)}; the folder {folder} may still lie there") from error

    def put(self, local: Path, remote: str) -> None:
        """Copy a file into a folder that is there; it appears under its name when it is whole."""
        ssh_files.put(self.lent, local, remote)

    def get(self, remote: str, local: Path) -> None:
        """Copy a file; it appears under its name when it is whole."""
        ssh_files.get(self.lent, remote, local)

    def hold(self) -> RemoteHost:
        """Give the host, connected; `release` must follow."""
        with self._lock:
            if self._host is None or not self._host.link.is_alive:
                if self._host is not None:
                    self._host.link.close()
                    self._host = None
                link = Link.to(self._address, self._access, self._connect_timeout_s, self._answer_timeout_s)
                self._host = RemoteHost(link)
            self._num_users += 1
            return self._host

    def release(self) -> None:
        """Let go of the connection; the last one closes it."""
        with self._lock:
            self._num_users -= 1
            if not self._num_users and self._host is not None:
                self._host.link.close()
                self._host = None

    @contextlib.contextmanager
    def lent(self) -> Iterator[RemoteHost]:
        """Lend the host, connected."""
        host = self.hold()
        try:
            yield host
        finally:
            self.release()

    def current(self) -> RemoteHost:
        """Give the host while it is held; another connection than the first when that one broke."""
        with self._lock:
            if self._host is None:
                raise LinkBroken(f"{self._address} is not connected")
            return self._host


class SshPipes:
    """A node program in a session of a connection."""

    def __init__(
        self,
        transport: SshTransport,
        link: Link,
        channel: paramiko.Channel,
        python: str,
        program: str,
        lease_s: float,
    ) -> None:
        self._transport = transport
        self._link = link
        self._python = python
        self._channel = channel
        self._lease_s = lease_s
        self._program = program
        self._errors = b""
        channel.settimeout(SLICE_S)

    def write(self, data: bytes) -> None:
        """Send all of it."""
        with self._link.watched(self._channel):
            while data:
                try:
                    num_sent = self._channel.send(data)
                except TimeoutError:  # the program reads slowly; a connection that is dead ends by itself
                    continue
                if not num_sent:
                    raise EOFError
                data = data[num_sent:]

    def read(self) -> bytes:
        """Wait for bytes; empty when the program ended, an error when the connection did."""
        while True:
            self._keep_errors()
            try:
                data = self._channel.recv(READ_BYTES)
            except TimeoutError:
                continue
            if data:
                return bytes(data)
            self._channel.status_event.wait(END_TIMEOUT_S)
            self._keep_errors()
            if self._channel.exit_status < 0 and self._link.is_lost():
                raise OSError(self._link.why_lost())
            return b""

    def end_input(self) -> None:
        """Close the program's input."""
        with self._link.watched(self._channel):
            self._channel.shutdown_write()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; a lost connection tells nothing about it."""
        return self._channel.status_event.wait(timeout_s) and not (
            self._channel.exit_status < 0 and self._link.is_lost()
        )

    def kill(self) -> None:
        """End the program and what its record names, over a new connection if need be.

        Raises:
            OSError: the host cannot be asked; its lease does it.
        """
        if self._channel.exit_status == 0:  # it left, and has ended before what it had started
            return
        try:
            self._reap()
        finally:
            if not self._channel.status_event.wait(END_TIMEOUT_S):
                self._link.end(self._channel)
                self._link.close()  # ends those that read and write here

    def close(self) -> None:
        """Let go of the connection."""
        with contextlib.suppress(EOFError, OSError):
            self._channel.close()
        self._transport.release()

    def last_words(self) -> str:
        """Give the end of its standard error, and how it ended if not well."""
        status = self._channel.exit_status
        how = ""
        if status > 128:
            how = f"it was ended by {_signal_name(status - 128)}"
        elif status > 0:
            how = f"it exited with {status}"
        elif status < 0 and self._channel.status_event.is_set() and not self._link.is_lost():
            how = "it was ended by a signal"
        return "\n".join(filter(None, (self._errors.decode("utf-8", "replace").strip(), how)))

    def _keep_errors(self) -> None:
        while self._channel.recv_stderr_ready():
            self._errors = (self._errors + self._channel.recv_stderr(READ_BYTES))[-LAST_WORDS_BYTES:]

    def _reap(self) -> None:
        argv = ["sh", "-c", _REAP, self._program, self._python, *INTERPRETER_FLAGS, self._program]
        for is_last in (False, True):
            try:
                with self._transport.lent() as host:
                    try:
                        done = host.link.run(argv, REAP_TIMEOUT_S, LOOK_TIMEOUT_S)
                    except LinkBroken:
                        host.link.close()  # dead, though nobody has noticed yet
                        raise
            except OSError as error:
                if is_last or not isinstance(error, LinkBroken):
                    raise OSError(
                        f"what it started may still run ({error}); it ends by itself when the lease of "
                        f"{self._lease_s:g} s is over"
                    ) from error
                continue
            if done.status:
                words = " / ".join(done.output.split("\n")).strip(" /")
                raise OSError(f"what it started could not be ended (status {done.status}): {words}")
            return


@contextlib.contextmanager
def _ending_when_it_fails(link: Link) -> Iterator[None]:
    """End a connection that does no more what is asked: whoever needs one next makes another."""
    try:
        yield
    except OSError:
        link.close()
        raise


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
