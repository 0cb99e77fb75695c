"""Host: what a link leads to, its Python and its home, and what that Python is asked beside the node program."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pytest_aorta.fleet import ssh_remote
from pytest_aorta.fleet.program import INTERPRETER_FLAGS, NAME
from pytest_aorta.fleet.ssh_link import Link
from pytest_aorta.fleet.ssh_refusals import Flooded, LinkBroken
from pytest_aorta.fleet.ssh_sftp import Sftp, open_sftp
from pytest_aorta.node.files import MARKER, unwritable

WORDS_LIMIT = 300
DISCARD_TIMEOUT_S = 5.0
UNWRITABLE = (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR)
HASH_BYTES_PER_S = 20e6  # a slow disk; the deadline of hashing grows with the file
_NO_PYTHON = "aorta-no-python:"
_PYTHONS = (
    "python3 /usr/bin/python3 /usr/local/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 "
    "python3.8"
)
# The first Python that is new enough gets the text and the words after it. Nothing is done when nobody listens any
# more: a start-up file may have waited until long after the connection was closed.
_FIND = (
    "echo || exit; "
    f"for name in {_PYTHONS}; do "
    'python=$(command -v "$name") || continue; '
    'if "$python" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" 2>/dev/null; '
    'then exec "$python" -I -S -X utf8 -c "$@"; fi; '
    'case $seen in *"$python"*) ;; *) seen="$seen, $python ($("$python" -V 2>&1))";; esac; '
    f'done; echo; echo "{_NO_PYTHON}$seen"'
)


# A restricted shell (rbash) starts nothing that is named with its folder.
_RUN = 'exec "$0" "$@"'


class Prepared(NamedTuple):
    """What a host said when it was asked first; `folder` and `sha256` are those of the node program, if any."""

    python: str
    home: str
    folder: str
    sha256: str


class RemoteHost:
    """The other end of a link."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._prepared: Prepared | None = None

    def prepare(self, state_dir: str) -> Prepared:
        """Find a Python, and make the state folder when one is named.

        Raises:
            OSError: there is none that is new enough, or the folder cannot be made.
        """
        words = [_text(), "probe", state_dir, MARKER, NAME]
        try:
            output = self.link.run(["sh", "-c", _FIND, "sh", *words]).output
        except Flooded as error:
            raise Flooded(f"{error}, perhaps by a start-up file of the user's shell (.bashrc)") from error
        except LinkBroken as error:
            if not self.link.is_alive:
                raise
            why = "does a start-up file of the user's shell (.bashrc) wait there? What it started may still run"
            raise LinkBroken(f"{error}; {why}") from error
        if _NO_PYTHON in output:
            seen = output.rpartition(_NO_PYTHON)[2].strip(" ,\n") or "none"
            raise OSError(
                f"{self.link.place} has no Python that the node program can run on: seen {seen}, expected python3 of "
                "3.8 or newer on the PATH of a login without terminal; install it"
            )
        try:
            answer = _answer(self.link, output)
        except OSError as error:
            if error.errno in UNWRITABLE:
                shown = str(error.filename) if PurePosixPath(state_dir).name in str(error.filename) else state_dir
                raise OSError(unwritable(shown, error)) from error
            raise
        self._prepared = Prepared(*(str(answer.get(name, "")) for name in Prepared._fields))
        return self._prepared

    def ask(self, *words: str, num_bytes: int = 0) -> dict[str, Any]:
        """Have its Python do one thing of `ssh_remote`; `num_bytes` is how much it has to read for that.

        Raises:
            OSError: it could not be done; with the host's own errno.
        """
        argv = ["sh", "-c", _RUN, self._known().python, *INTERPRETER_FLAGS, "-c", _text(), *words]
        timeout_s = self.link.answer_timeout_s + num_bytes / HASH_BYTES_PER_S
        return _answer(self.link, self.link.run(argv, timeout_s).output)

    def discard(self, state_dir: str) -> None:
        """Take away the state folder of a program that never ran, also when its Python is not known.

        Raises:
            OSError: the host does not say that it is gone.
        """
        words = [_text(), "discard", state_dir, MARKER, NAME]
        answer = _answer(self.link, self.link.run(["sh", "-c", _FIND, "sh", *words], DISCARD_TIMEOUT_S).output)
        if not answer.get("discarded"):
            raise OSError("it holds more than the node program")

    def expand(self, path: str) -> str:
        """Give a path with `~` replaced, which SFTP does not know.

        Raises:
            OSError: it is relative, or in somebody else's home.
        """
        if path == "~" or path.startswith("~/"):
            path = self._known().home + path[1:]
        if not path.startswith("/") or "\0" in path:
            raise OSError(f"seen the remote path {path!r}, expected an absolute one or one that begins with ~/")
        return path

    @contextlib.contextmanager
    def sftp(self) -> Iterator[Sftp]:
        """Lend an SFTP session; what breaks it is told as LinkBroken."""
        with open_sftp(self.link) as (sftp, channel), self.link.watched(channel):
            yield sftp

    def _known(self) -> Prepared:
        return self._prepared or self.prepare("")


def _text() -> str:
    return Path(ssh_remote.__file__).read_text("utf-8")


def _answer(link: Link, output: str) -> dict[str, Any]:
    _, mark, rest = output.rpartition(ssh_remote.MARK)
    try:
        answer = json.loads(rest.splitlines()[0]) if mark else None
    except (ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict):
        said = " / ".join(output.split("\n"))[-WORDS_LIMIT:].strip(" /")
        raise OSError(
            f"{link.place} did not run what it was asked to: seen {said or 'no output'!r}, expected an answer of its "
            "Python; does `ssh` run commands there?"
        )
    if "error" in answer:
        raise OSError(answer["errno"], answer["error"], answer["path"]) if answer["errno"] else OSError(answer["error"])
    return answer
