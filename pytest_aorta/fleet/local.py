"""This machine as a host: the node program is a child process, files are copied."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from pytest_aorta.fleet.program import NAME, command, program_bytes
from pytest_aorta.fleet.transport import Pipes
from pytest_aorta.node.files import open_regular, prepare
from pytest_aorta.node.requests import CommandError
from pytest_aorta.node.state import forget, reap

READ_BYTES = 65536
COPY_BYTES = 1024 * 1024
LAST_WORDS_BYTES = 2000


class LocalTransport:
    """Starts the node program here, in a session of its own so that the terminal's Ctrl-C does not reach it."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        """Write the program into the state folder and start it from there."""
        folder = Path(state_dir).expanduser()
        try:
            prepare(str(folder))
        except CommandError as error:
            raise OSError(error.message) from error
        program = folder / NAME
        with contextlib.ExitStack() as unless_started:
            unless_started.callback(forget, str(folder))
            program.write_bytes(program_bytes())
            pipes = LocalPipes(command(self._python, str(program), lease_s, str(folder)), str(folder))
            unless_started.pop_all()
        return pipes

    def put(self, local: Path, remote: str) -> None:
        """Copy a file into a folder that is there; it appears under its name when it is whole."""
        target = Path(remote).expanduser()
        if not target.parent.is_dir():  # made anew, it would be nobody's work folder
            raise FileNotFoundError(errno.ENOENT, "the folder is gone; was it removed?", str(target.parent))
        _copy(local, target)

    def get(self, remote: str, local: Path) -> None:
        """Copy a file; it appears under its name when it is whole."""
        local.parent.mkdir(parents=True, exist_ok=True)
        _copy(Path(remote).expanduser(), local)


class LocalPipes:
    """A node program that is a child of ours."""

    def __init__(self, argv: list[str], state_dir: str) -> None:
        self._state_dir = state_dir
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the program
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise OSError(f"the node program cannot be started by {argv[0]}: {error.strerror}") from error

    def write(self, data: bytes) -> None:
        """Send all of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[_open(self._process.stdin).write(rest) or 0 :]

    def read(self) -> bytes:
        """Wait for bytes."""
        return _open(self._process.stdout).read(READ_BYTES)

    def end_input(self) -> None:
        """Close the program's input."""
        _open(self._process.stdin).close()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the program, then what its record names."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        try:
            reap(self._state_dir)
        except CommandError as error:
            raise OSError(error.message) from error

    def close(self) -> None:
        """Let go of the pipes."""
        for pipe in (self._process.stdin, self._process.stdout):
            _open(pipe).close()
        self._errors.close()

    def last_words(self) -> str:
        """Give the end of its standard error."""
        if self._errors.closed:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        text = os.pread(self._errors.fileno(), LAST_WORDS_BYTES, max(0, size - LAST_WORDS_BYTES))
        return text.decode("utf-8", "replace").strip()


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise OSError("the program was started without this pipe")
    return pipe


def _copy(source: Path, target: Path) -> None:
    """Copy a regular file under a name that nobody can have put a link at."""
    with open_regular(str(source)) as reader:
        descriptor, name = tempfile.mkstemp(prefix=".aorta-", suffix=".part", dir=target.parent)
        partial = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as writer:
                shutil.copyfileobj(reader, writer, COPY_BYTES)
                os.fchmod(writer.fileno(), os.fstat(reader.fileno()).st_mode & 0o777)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
