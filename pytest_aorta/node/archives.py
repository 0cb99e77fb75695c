"""Archives: pack files into a gzip tar, unpack one safely."""

from __future__ import annotations

import gzip
import os
import shutil
import stat as modes
import tarfile
import tempfile
import zlib
from typing import Sequence

from .files import Check, file_hash, go_on, tree_digest
from .requests import Answer, CommandError, sentence

MEMBER_LIMIT = 500_000
SIZE_LIMIT_BYTES = 256 * 1024**3
COMPRESSION = 3  # traces shrink to a tenth with any level; higher ones cost several times the time


def pack(root: str, files: Sequence[str], archive: str, check: Check = go_on) -> Answer:
    """Pack regular files, named relative to `root`; the archive appears whole or not at all.

    Raises:
        CommandError: a name leaves the root or is no regular file, or something cannot be read or written.
    """
    for name in files:
        if not is_safe(name) or not modes.S_ISREG(os.lstat(os.path.join(root, name)).st_mode):
            raise CommandError("failed", f"{name!r} below {root} is not packed: it is no regular file inside it")
    os.makedirs(os.path.dirname(archive), exist_ok=True)
    partial = archive + ".part"
    try:
        with tarfile.open(partial, "w:gz", compresslevel=COMPRESSION, format=tarfile.PAX_FORMAT) as tar:
            for name in files:
                tar.add(os.path.join(root, name), arcname=name, recursive=False)
                check()
        os.replace(partial, archive)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
    size = os.path.getsize(archive)
    return {"path": archive, "size": size, "sha256": file_hash(archive, check), "count": len(files)}


def unpack(archive: str, sha256: str, into: str, check: Check = go_on) -> Answer:
    """Unpack an archive in place of the folder `into`, which is replaced as a whole or left as it was.

    Raises:
        CommandError: the archive is not the one that was sent, is damaged, or has a member that is not safe.
    """
    seen = file_hash(archive, check)
    if seen != sha256:
        raise CommandError("failed", f"{archive} has SHA-256 {seen}, expected {sha256}: send it again")
    parent = os.path.dirname(into)
    os.makedirs(parent, exist_ok=True)
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
    return bool(name) and not name.startswith("/") and ".." not in parts and "\0" not in name and "\\" not in name


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
