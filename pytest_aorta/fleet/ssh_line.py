"""Line: a command as one line that every login shell reads alike (sh, bash, zsh, fish, csh, tcsh)."""

from __future__ import annotations

import os
import shlex
import string
from collections.abc import Sequence

_PLAIN = frozenset((string.ascii_letters + string.digits + " ,./=_-+@").encode())


def line_of(argv: Sequence[str]) -> bytes:
    """Give the line, with the words in octal for the first `sh`.

    Login shells quote in different ways: csh takes neither a newline nor `!` between single quotes, fish reads two
    backslashes there as one. Who repeats the line, to complain of it, says none of our marks, which have a colon.
    """
    words = os.fsencode(shlex.join(argv))
    octal = "".join(chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in words)
    return f"""sh -c 'eval "exec $(printf %b "{octal}")"'""".encode("ascii")
