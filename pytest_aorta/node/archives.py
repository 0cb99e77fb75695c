"""Archives: pack files into a gzip tar, unpack one safely."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import shutil
import stat as modes
import tarfile
import tempfile
import zlib
from typing import Sequence

from .files import Check, file_hash, go_on, open_regular, tree_digest
from .requests import Answer, CommandError, sentence

MEMBER_LIMIT = 500_000
SIZE_LIMIT_BYTES = 256 * 1024**3
COMPRESSION = 3  # traces shrink to a tenth with any level; higher ones cost several times the time


def pack(root: str, files: Sequence[str], archive: str, check: Check = go_on) -> Answer:
    """Pack regular files, named relative to `root`; the archive appears whole or not at all, in a folder that is there.

    What is no regular file inside, or cannot be read, is left out and named in `refused`, the first reason in `why`.

    Raises:
        CommandError: nothing of what was asked for could be packed, or the archive cannot be written.
    """
    folder = os.path.dirname(archive)
    if not os.path.isdir(folder):  # made anew, it would be nobody's work folder
        raise CommandError("failed", f"the folder {folder} is gone, so nothing is packed into it; was it removed?")
    partial = archive + ".part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial)
    try:
        return _pack(root, files, archive, partial, check)
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError("failed", f"the archive of its files cannot be written in {folder}: {why}") from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _pack(root: str, files: Sequence[str], archive: str, partial: str, check: Check) -> Answer:
    inside = os.path.realpath(root)
    links = _Links(root, files)
    refused: dict[str, str] = {}
    with tarfile.open(partial, "x:gz", compresslevel=COMPRESSION, format=tarfile.PAX_FORMAT) as tar:
        tar.dereference = True  # a hard link is not safe to unpack
        for name in dict.fromkeys(files):
            why = links.why_not(name) or _add(tar, root, name, inside)
            if why:
                refused[name] = f"{name!r} below {root} is not packed: {why}"
            check()
    count = len(dict.fromkeys(files)) - len(refused)
    if refused and not count:
        raise CommandError("failed", next(iter(refused.values())))
    os.replace(partial, archive)
    return {
        "path": archive,
        "size": os.path.getsize(archive),
        "sha256": file_hash(archive, check),
        "count": count,
        "refused": list(refused),
        "why": next(iter(refused.values()), ""),
    }


class _Links:
    """Files with several names: the first one counts, and none when a file has another name outside of what is packed.

    Who may write here can give a name to any file of its own file system, be it none of the workload's.
    """

    def __init__(self, root: str, files: Sequence[str]) -> None:
        self._names: dict[tuple[int, int], list[str]] = {}
        self._files: dict[str, tuple[tuple[int, int], int]] = {}
        for name in dict.fromkeys(files):
            with contextlib.suppress(OSError, ValueError):
                status = os.lstat(os.path.join(root, name))
                if modes.S_ISREG(status.st_mode) and status.st_nlink > 1:
                    identity = (status.st_dev, status.st_ino)
                    self._names.setdefault(identity, []).append(name)
                    self._files[name] = identity, status.st_nlink

    def why_not(self, name: str) -> str:
        """Say why a file is not packed by this name, or give nothing."""
        if name not in self._files:
            return ""
        identity, num_names = self._files[name]
        names = self._names[identity]
        if num_names > len(names):
            return "it is a hard link to a file elsewhere"
        return "" if name == names[0] else f"it is the same file as {names[0]!r}"


def _add(tar: tarfile.TarFile, root: str, name: str, inside: str) -> str:
    """Add a file, or say why not."""
    path = os.path.join(root, name)
    folder = os.path.realpath(os.path.dirname(path))
    if not is_safe(name) or not (folder + "/").startswith(inside.rstrip("/") + "/"):
        return "it is no regular file inside it"
    try:
        file = open_regular(path)
    except OSError as error:
        is_other = error.errno in (errno.ELOOP, errno.EINVAL)
        return "it is no regular file inside it" if is_other else str(error.strerror)
    with file:
        tar.addfile(tar.gettarinfo(arcname=name, fileobj=file), file)
    return ""


def unpack(archive: str, sha256: str, into: str, check: Check = go_on) -> Answer:
    """Unpack an archive in place of the folder `into`, which is replaced as a whole or left as it was.

    Raises:
        CommandError: the archive is not the one that was sent, is damaged, or has a member that is not safe.
    """
    seen = file_hash(archive, check)
    if seen != sha256:
        raise CommandError("failed", f"{archive} has SHA-256 {seen}, expected {sha256}: send it again")
    parent = os.path.dirname(into)
    if not os.path.isdir(parent):
        raise CommandError("failed", f"the folder {parent} is gone, so nothing is unpacked into it; was it removed?")
    fresh = tempfile.mkdtemp(prefix=".aorta-unpack-", dir=parent)
    try:
        count = _extract(archive, fresh, check)
        os.chmod(fresh, 0o755)  # noqa: S103  # containers read it under other users
        digest, _ = tree_digest(fresh, check=check)
        _replace(fresh, into)
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise CommandError("failed", f"{archive} is damaged: {sentence(error)}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return {"count": count, "tree_sha256": digest}


def is_safe(name: str) -> bool:
    """Tell whether a member's name stays inside the folder it is unpacked into."""
    parts = name.split("/")
    return bool(name) and not name.startswith("/") and ".." not in parts and "\0" not in name


def _extract(archive: str, folder: str, check: Check) -> int:
    count, size = 0, 0
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            check()
            if member.isdir() and (is_safe(member.name) or member.name == "."):
                os.makedirs(os.path.join(folder, member.name), exist_ok=True)
                continue
            if not member.isreg() or not is_safe(member.name):
                raise CommandError("failed", f"{archive} has the member {member.name!r}, which is not safe to unpack")
            count, size = count + 1, size + member.size
            if count > MEMBER_LIMIT or size > SIZE_LIMIT_BYTES:
                limits = f"{MEMBER_LIMIT} files or {SIZE_LIMIT_BYTES} bytes"
                raise CommandError("failed", f"{archive} is too large to unpack: more than {limits}")
            _write(tar, member, os.path.join(folder, member.name), check)
        while stream.read(1024 * 1024):  # only at the very end does gzip tell whether the bytes were right
            check()
    return count


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, check: Check) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source = tar.extractfile(member)
    if source is None:
        raise CommandError("failed", f"the member {member.name!r} cannot be read")
    with source, open(path, "xb") as target:
        while True:
            block = source.read(1024 * 1024)
            if not block:
                break
            target.write(block)
            check()
    os.chmod(path, 0o755 if member.mode & modes.S_IXUSR else 0o644)
    os.utime(path, (member.mtime, member.mtime))


def _replace(fresh: str, into: str) -> None:
    if os.path.isdir(into) and not os.path.islink(into):
        old = tempfile.mkdtemp(prefix=".aorta-old-", dir=os.path.dirname(into))
        os.replace(into, os.path.join(old, "tree"))
        os.replace(fresh, into)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(fresh, into)
