"""Run on a host by its own Python, to which this text is sent: standard library only, Python 3.8 or newer.

`probe FOLDER MARKER PROGRAM` makes the state folder, `discard` with the same words takes it away again; `describe
FILE`, `seal PARTIAL TARGET MODE SIZE SHA256` and `room FOLDER` serve the copying of files. The answer is one line after
a mark, because a shell may print before.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from typing import Callable

MARK = "aorta-answer:"


def probe(folder: str, marker: str, program: str) -> dict[str, object]:
    """Say where home is; make the folder, mark it as ours when nothing lies in it, hash the program that is there."""
    found: dict[str, object] = {"home": os.path.expanduser("~"), "python": sys.executable, "sha256": ""}
    if not folder:
        return found
    folder = os.path.normpath(os.path.expanduser(folder))
    above = os.path.dirname(folder)
    if not os.path.lexists(above):
        os.makedirs(above, mode=0o755)
    seen = os.stat(above)
    if os.geteuid() == 0 != seen.st_uid:  # also where it is sticky: its owner may rename what lies in it
        why = "who may exchange the program that root runs there, expected root; set another work_dir"
        raise PermissionError(1, f"belongs to user {seen.st_uid}, {why}", above)
    if seen.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        why = "everybody may write there and exchange the program; make it `chmod o-w`, or set another work_dir"
        raise PermissionError(1, why, above)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.stat(folder)
    if status.st_uid != os.geteuid():  # its owner could exchange the program
        raise PermissionError(1, f"belongs to user {status.st_uid}, expected {os.geteuid()}", folder)
    held = os.listdir(folder)
    if not held:
        with open(os.path.join(folder, marker), "wb"):
            pass
    if not held or marker in held:  # any other folder was somebody's before us, and stays as it is
        os.chmod(folder, 0o700)
    found["folder"] = folder
    path = os.path.join(folder, program)
    if os.path.lexists(path):
        found["sha256"] = describe(path)["sha256"]
    return found


def discard(folder: str, marker: str, program: str) -> dict[str, object]:
    """Remove a state folder in which nothing ever ran; one that holds anything else stays."""
    folder = os.path.expanduser(folder)
    if not os.path.lexists(folder):
        return {"discarded": True}
    held = os.listdir(folder)
    ours = not held or (marker in held and all(name in (marker, program) or name.endswith(".part") for name in held))
    if ours:
        for name in held:
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    return {"discarded": ours}


def describe(path: str) -> dict[str, object]:
    """Give size and SHA-256 of a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "no regular file", path)
        digest, size = hashlib.sha256(), 0
        while True:
            block = file.read(1024 * 1024)
            if not block:
                return {"size": size, "sha256": digest.hexdigest()}
            digest.update(block)
            size += len(block)


def seal(partial: str, target: str, mode: str, size: str, sha256: str) -> dict[str, object]:
    """Give a file its name if it is whole."""
    found = describe(partial)
    if found != {"size": int(size), "sha256": sha256}:
        return {"sealed": False, **found}
    os.chmod(partial, int(mode, 8))
    os.replace(partial, target)
    return {"sealed": True}


def room(folder: str) -> dict[str, object]:
    """Say why a folder may take no file."""
    status = os.statvfs(folder)
    return {"free_bytes": status.f_bavail * status.f_frsize, "read_only": bool(status.f_flag & os.ST_RDONLY)}


def main(arguments: list[str]) -> None:
    """Do one thing, print the answer."""
    tasks: dict[str, Callable[..., dict[str, object]]]
    tasks = {"probe": probe, "discard": discard, "describe": describe, "seal": seal, "room": room}
    try:
        answer = tasks[arguments[0]](*arguments[1:])
    except OSError as error:
        answer = {"error": error.strerror or str(error), "errno": error.errno, "path": str(error.filename or "")}
    print("\n" + MARK + json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
