"""Copying over SFTP: whole or not at all, resumed once when the connection breaks, hashed on both sides."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from pytest_aorta.fleet.ssh_host import RemoteHost
from pytest_aorta.fleet.ssh_refusals import LinkBroken
from pytest_aorta.fleet.ssh_sftp import BLOCK_BYTES, NoSftp, Sftp
from pytest_aorta.node.files import open_regular

NUM_TRIES = 2
HASH_BYTES = 1024 * 1024

Lend = Callable[[], AbstractContextManager[RemoteHost]]


def put(lend: Lend, local: Path, remote: str) -> None:
    """Copy a file into a folder that is there; it appears under its name when it is whole.

    Raises:
        OSError: it did not get there; nothing of it is left, unless the host cannot be reached any more.
    """
    with open_regular(str(local)) as source:
        put_stream(lend, source, remote, os.fstat(source.fileno()).st_mode & 0o777)


def put_stream(lend: Lend, source: BinaryIO, remote: str, mode: int) -> None:
    """Copy what a file holds; see `put`."""
    name = f".aorta-{secrets.token_hex(6)}.part"
    for left in reversed(range(NUM_TRIES)):
        size, sha256 = _measure(source)
        host = None
        try:
            with lend() as host:
                if _put_once(host, source, size, sha256, host.expand(remote), name, mode):
                    return
        except LinkBroken:
            if not left:
                if host is not None and not host.link.is_alive:  # a host that is only silent is not asked once more
                    with contextlib.suppress(OSError), lend() as host:
                        _remove(host, posixpath.join(posixpath.dirname(host.expand(remote)), name))
                raise
    raise OSError(
        f"{remote}: what arrived was not what was there before, {NUM_TRIES} times; is it still being written?"
    )


def get(lend: Lend, remote: str, local: Path) -> None:
    """Copy a file here; it appears under its name when it is whole.

    Raises:
        OSError: it was not brought here; nothing of it is left.
    """
    local.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".aorta-", suffix=".part", dir=local.parent)
    partial = Path(name)
    seen = ""
    try:
        with os.fdopen(descriptor, "w+b") as target:
            for left in reversed(range(NUM_TRIES)):
                try:
                    with lend() as host:
                        seen = _get_once(host, host.expand(remote), target, local)
                except LinkBroken:
                    if not left:
                        raise
                    continue
                if not seen:
                    break
                target.truncate(0)
        if seen:
            raise OSError(f"{remote} changes while it is copied: {seen}; is it still being written?")
        partial.replace(local)
    finally:
        partial.unlink(missing_ok=True)


def _put_once(host: RemoteHost, source: BinaryIO, size: int, sha256: str, target: str, name: str, mode: int) -> bool:
    """Send what is not there yet, then have the host hash it and give it its name; tell whether it was whole."""
    folder = posixpath.dirname(target)
    partial = posixpath.join(folder, name)
    try:
        with _named(target, folder), host.sftp() as sftp:
            _write(sftp, source, partial, size)
        if _seal(host, source, partial, target, mode, size, sha256):
            return True
    except LinkBroken:
        raise  # the next try goes on with what is there
    except OSError as error:
        _remove(host, partial)
        raise _explained(host, folder, size, error) from error
    _remove(host, partial)
    return False


def _seal(host: RemoteHost, source: BinaryIO, partial: str, target: str, mode: int, size: int, sha256: str) -> bool:
    """Have the host give the file its name; tell whether it was whole, or the source is another meanwhile."""
    answer = host.ask("seal", partial, target, f"{mode:o}", str(size), sha256, num_bytes=size)
    if not answer["sealed"] and answer["size"] != size == source.seek(0, os.SEEK_END):
        raise OSError(f"{target}: {answer['size']} of {size} bytes are there")
    return bool(answer["sealed"])


def _write(sftp: Sftp, source: BinaryIO, partial: str, size: int) -> None:
    path = os.fsencode(partial)
    try:
        start = min(sftp.lstat(path).st_size or 0, size)
    except FileNotFoundError:
        start = 0
    with sftp.open(path, "r+" if start else "wx") as file:
        if not start:
            file.chmod(0o600)
        source.seek(start)
        sftp.write_blocks(file.handle, start, _blocks(source, size - start))


def _blocks(source: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    """Give what comes next of a file, no more than it had."""
    while num_bytes > 0 and (block := source.read(min(BLOCK_BYTES, num_bytes))):
        yield block
        num_bytes -= len(block)


def _get_once(host: RemoteHost, path: str, target: BinaryIO, local: Path) -> str:
    """Bring what is not here yet, then compare with what is there; say what differs."""
    with _named(path, path), host.sftp() as sftp:
        status = sftp.lstat(os.fsencode(path))
        mode, size = status.st_mode or 0, status.st_size or 0
        if stat.S_ISLNK(mode):
            raise OSError(errno.ELOOP, "a link, expected a regular file", path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "no regular file", path)
        start = target.seek(0, os.SEEK_END)
        with sftp.open(os.fsencode(path), "r") as file:
            for block in sftp.read_blocks(file.handle, start, size):
                _keep(target, block, local)
    there = host.ask("describe", path, num_bytes=size)
    here_size, here_sha256 = _measure(target)
    if (here_size, here_sha256) == (there["size"], there["sha256"]):
        os.fchmod(target.fileno(), mode & 0o777)
        return ""
    if here_size != there["size"]:
        return f"{here_size} bytes came, {there['size']} are there now"
    return "the bytes there are others now"


def _keep(target: BinaryIO, block: bytes, local: Path) -> None:
    """Write here; what prevents it is named, or it would be taken for the host's."""
    try:
        target.write(block)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} on this machine", str(local)) from error


def _measure(file: BinaryIO) -> tuple[int, str]:
    """Give size and SHA-256."""
    file.seek(0)
    digest, size = hashlib.sha256(), 0
    while block := file.read(HASH_BYTES):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


@contextlib.contextmanager
def _named(path: str, folder: str) -> Iterator[None]:
    """Name the path in errors, which the server leaves out."""
    try:
        yield
    except (LinkBroken, NoSftp):
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        if error.errno == errno.ENOENT and folder != path:
            raise FileNotFoundError(errno.ENOENT, "the folder is gone; was it removed?", folder) from error
        if error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error
        raise OSError(f"{path}: the host's SFTP server says {error}") from error


def _explained(host: RemoteHost, folder: str, size: int, error: OSError) -> OSError:
    """Add what SFTP has no words for."""
    if error.errno is not None or isinstance(error, NoSftp):
        return error
    try:
        room = host.ask("room", folder)
    except OSError:
        return error
    if room["read_only"]:
        return OSError(errno.EROFS, f"{os.strerror(errno.EROFS)}, expected a folder that can be written", folder)
    if room["free_bytes"] < size:
        seen = f"{os.strerror(errno.ENOSPC)}: {room['free_bytes']} bytes are free, expected {size} or more; make room"
        return OSError(errno.ENOSPC, seen, folder)
    return OSError(f"{error}; is there a quota?")


def _remove(host: RemoteHost, partial: str) -> None:
    """Remove what is no whole file; what cannot be removed any more goes with its folder."""
    with contextlib.suppress(OSError), host.sftp() as sftp:
        sftp.remove(os.fsencode(partial))
