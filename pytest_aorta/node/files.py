"""Files: look at, hash, search and remove them; no link is ever followed."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import itertools
import os
import pwd
import re
import shutil
import stat as modes
from typing import Any, BinaryIO, Callable, Iterator, Mapping, Sequence

from .requests import Answer, CommandError, expanded

MARKER = ".aorta-work"
PRINT_BYTES = 64 * 1024  # of each end of a file

Check = Callable[[], None]


def go_on() -> None:
    """Check nothing: the deadline of callers that have none."""


def prepare(path: str, own: str = "") -> Answer:
    """Make a work folder that only its owner can enter; mark it as ours unless something else lies in it already.

    `own` is the state folder of this node program, which may lie inside.

    Raises:
        CommandError: it cannot be written.
    """
    try:
        above = os.path.dirname(path)
        with contextlib.suppress(FileExistsError):
            os.makedirs(above, mode=0o755)
        if os.stat(above).st_mode & (modes.S_IWOTH | modes.S_ISVTX) == modes.S_IWOTH:
            why = f"everybody may write in {above} and exchange what is made there"
            raise CommandError("failed", f"{why}; make it `chmod o-w`, or set another work_dir")
        os.makedirs(path, mode=0o700, exist_ok=True)
        probe = os.path.join(path, f".aorta-probe-{os.getpid()}")
        with open(probe, "wb") as file:
            file.write(b"probe")
        os.unlink(probe)
        foreign = [name for name in os.listdir(path) if not _is_own(path, name, own)]
        if not foreign:
            os.chmod(path, 0o700)
            with open(os.path.join(path, MARKER), "wb"):
                pass
    except OSError as error:
        raise CommandError("failed", unwritable(path, error)) from error
    status = os.statvfs(path)
    return {"path": path, "free_bytes": status.f_bavail * status.f_frsize, "writable": True}


def unwritable(path: str, error: OSError) -> str:
    """Say that a folder cannot be made or written, and what helps."""
    where = f" ({error.filename})" if error.filename and not str(error.filename).startswith(path) else ""
    first = "free space there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
    return f"the folder {path} cannot be written: {error.strerror}{where}; {first}, or set another work_dir"


def _is_own(folder: str, name: str, own: str) -> bool:
    path = os.path.join(folder, name)
    return name == MARKER or (bool(own) and (own + os.sep).startswith(path + os.sep))


def remove(path: str) -> Answer:
    """Remove a work folder.

    Raises:
        CommandError: it is not one, or it cannot be removed.
    """
    if os.path.islink(path) or _holds_home(path):
        raise CommandError("failed", f"{path} is not removed: the root, a home or a link is no work folder")
    if not os.path.isdir(path):
        return {"removed": False}
    if not os.path.isfile(os.path.join(path, MARKER)):
        raise CommandError("failed", f"{path} is not removed: it holds no {MARKER}, so this program did not make it")
    try:
        try:
            shutil.rmtree(path)
        except PermissionError:
            _open_up(path)
            shutil.rmtree(path)
    except OSError as error:
        whose = _whose(path) if isinstance(error, PermissionError) else ""
        raise CommandError("failed", f"{path} cannot be removed: {error.strerror} ({error.filename}){whose}") from error
    return {"removed": True}


def _open_up(path: str) -> None:
    """Let this user write in the folders below a path that are its own: some programs protect theirs (Go, Bazel)."""
    for folder, status in _folders(path):
        if status.st_uid == os.geteuid() and status.st_mode & modes.S_IRWXU != modes.S_IRWXU:
            os.chmod(folder, modes.S_IMODE(status.st_mode) | modes.S_IRWXU)


def _whose(path: str) -> str:
    """Say whose a folder is that is not this user's, and what helps; nothing when all are."""
    for folder, status in _folders(path):
        if status.st_uid != os.geteuid():
            who = "root" if status.st_uid == 0 else f"user {status.st_uid}"
            return f"; {folder} belongs to {who}, as what a container wrote as {who} does: remove it by hand as {who}"
    return ""


def _folders(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Give a folder and those below it that are no links, each before it is entered."""
    below = (os.path.join(folder, name) for folder, names, _ in os.walk(path) for name in names)
    for each in itertools.chain([path], below):
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(each)
            if modes.S_ISDIR(status.st_mode):
                yield each, status


def _holds_home(path: str) -> bool:
    """Tell whether a path, by whatever links it is written, is the root, this user's home, or a folder above it."""
    real = os.path.realpath(path)
    for folder in ("/", *_homes()):
        home = os.path.realpath(folder)
        if (home.rstrip("/") + "/").startswith(real.rstrip("/") + "/"):
            return True
        try:
            if os.path.samefile(real, home):
                return True
        except OSError:
            continue
    return False


def _homes() -> list[str]:
    homes = [os.path.expanduser("~")]
    with contextlib.suppress(KeyError):  # a uid without a name, as containers have
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return [home for home in homes if os.path.isabs(home)]


def open_regular(path: str) -> BinaryIO:
    """Open a file for reading that must be a regular one: a link could lead anywhere, a pipe would wait for ever.

    Raises:
        OSError: it is not, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "a link, expected a regular file", path) from error
    if not modes.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", path)
    return open(descriptor, "rb")


def describe(paths: Sequence[str], with_hash: bool, check: Check) -> Answer:
    """Say of each path what lies there, at the end of links."""
    return {"files": {path: _describe(expanded(path), with_hash, check) for path in paths}}


def _describe(path: str, with_hash: bool, check: Check) -> dict[str, Any]:
    try:
        status = os.stat(path)
    except OSError:
        return {"kind": "absent"}
    if modes.S_ISDIR(status.st_mode):
        return {"kind": "dir"}
    if not modes.S_ISREG(status.st_mode):
        return {"kind": "other"}
    found: dict[str, Any] = {"kind": "file", "size": status.st_size}
    if with_hash:
        found["sha256"] = file_hash(os.path.realpath(path), check)
    return found


def file_hash(path: str, check: Check = go_on) -> str:
    """Give the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while True:
            block = file.read(1024 * 1024)
            if not block:
                return digest.hexdigest()
            digest.update(block)
            check()


def walk(
    root: str,
    exclude_dirs: Sequence[str] = (),
    left_out: Mapping[int, list[str]] | None = None,
    depth: int | None = None,
) -> Iterator[os.DirEntry[str]]:
    """Give the regular files below a folder, `depth` names below it at most; what vanishes meanwhile is left out.

    A folder that cannot be read is an error, unless `left_out` has a list for that errno: there it is put.
    """
    waiting = [(root, 1)]
    while waiting:
        folder, level = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            if folder == root:
                raise
            continue
        except OSError as error:
            into = (left_out or {}).get(error.errno or 0)
            if into is None:
                raise
            into.append(folder)
            continue
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                if level != depth and not _matches(entry.name, exclude_dirs):
                    waiting.append((entry.path, level + 1))
            elif entry.is_file(follow_symlinks=False):
                yield entry


def tree_digest(root: str, exclude: Sequence[str] = (), check: Check = go_on) -> tuple[str, int]:
    r"""Hash a tree and count its files.

    The hash is SHA-256 over the sorted lines `path\0size\0hash\n`, for executables `path\0size\0hash\0x\n`.
    Names in `exclude` (patterns) are left out, folders and files alike; so are links and devices.
    """
    lines = []
    for entry in walk(root, exclude):
        if _matches(entry.name, exclude):
            continue
        status = entry.stat(follow_symlinks=False)
        mark = b"\0x" if status.st_mode & modes.S_IXUSR else b""
        name = os.fsencode(os.path.relpath(entry.path, root))
        lines.append(b"%s\0%d\0%s%s\n" % (name, status.st_size, file_hash(entry.path, check).encode(), mark))
        check()
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest(), len(lines)


def find(
    root: str,
    *,
    folders: Sequence[str],
    names: Sequence[str],
    since_ns: int,
    exclude_dirs: Sequence[str],
    known: Mapping[str, Any] | None,
    with_print: bool = False,
    depth: int | None = None,
    skip_closed: bool = False,
    check: Check,
) -> Answer:
    """Search files under folders of the given names, or with names of the given patterns; count the stale ones.

    Stale is what is older than `since_ns`, and what `known` has with the same time. What lies deeper than a path can
    tell is left out and counted. With their prints, files tell whether they hold the same whatever their times say.
    With `skip_closed`, what this user may not look into is left out and named in `closed`.
    """
    too_deep: list[str] = []
    closed: list[str] = []
    left_out = {errno.ENAMETOOLONG: too_deep, **({errno.EACCES: closed} if skip_closed else {})}
    known = known or {}
    found: list[dict[str, Any]] = []
    stale = 0
    for entry in walk(root, exclude_dirs, left_out, depth):
        check()
        path = os.path.relpath(entry.path, root)
        if not (_matches(entry.name, names) or any(part in folders for part in path.split(os.sep)[:-1])):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in left_out:
                raise
            left_out[error.errno].append(entry.path)
            continue
        if status.st_mtime_ns < since_ns or known.get(path) == status.st_mtime_ns:
            stale += 1
        else:
            file = {"path": path, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
            found.append({**file, "print": _print_of(entry.path)} if with_print else file)
    files = sorted(found, key=lambda file: str(file["path"]))
    closed_paths = [os.path.relpath(path, root) for path in sorted(closed)]
    return {"files": files, "stale": stale, "too_deep": len(too_deep), "closed": closed_paths}


def _print_of(path: str) -> str:
    """Hash the ends of a file, which is cheap however large it is; empty where there is nothing, or it is not read."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(file.read(PRINT_BYTES))
            file.seek(max(PRINT_BYTES, size - PRINT_BYTES))
            digest.update(file.read(PRINT_BYTES))
    except OSError:
        return ""
    return digest.hexdigest() if size else ""


def give(paths: Sequence[str], uid: int, gid: int, check: Check = go_on) -> Answer:
    """Give what belongs to this program's user below some paths to another user; nothing is followed or left out.

    Other file systems are not entered. (The files of an overlay may have another device number than its folders.)

    Raises:
        CommandError: something could not be given; whatever could be is given.
    """
    ours, count, mounts = os.geteuid(), 0, _mount_points()
    problems: list[str] = []

    def hand_over(path: str, device: int) -> bool:
        nonlocal count
        try:
            status = os.lstat(path)
            if status.st_dev != device and (modes.S_ISDIR(status.st_mode) or _real_place(path) in mounts):
                return False
            if status.st_uid == ours != uid:
                os.chown(path, uid, gid, follow_symlinks=False)
                count += 1
        except FileNotFoundError:
            return False
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        return True

    for root in paths:
        device = os.lstat(root).st_dev
        hand_over(root, device)
        for folder, names, others in os.walk(root):
            check()
            names[:] = [name for name in names if hand_over(os.path.join(folder, name), device)]
            for name in others:
                hand_over(os.path.join(folder, name), device)
    if problems:
        raise CommandError("failed", f"{len(problems)} files could not be given to user {uid}: {problems[0]}")
    return {"given": count}


def _mount_points() -> frozenset[str]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            escaped = [line.split(" ")[4] for line in lines]
    except OSError:
        return frozenset()
    return frozenset(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path) for path in escaped)


def _real_place(path: str) -> str:
    """Give the path with all links in its folders followed, itself not."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def read_tail(path: str, max_bytes: int) -> Answer:
    """Give the end of a file as text."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - max_bytes))
        return {"text": file.read(max_bytes).decode("utf-8", "replace"), "size": size}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
