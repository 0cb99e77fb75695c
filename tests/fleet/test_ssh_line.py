"""The line that a login shell gets, read by the shells of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_aorta.fleet import ssh_remote
from pytest_aorta.fleet.ssh_line import line_of

WORDS = [
    "a b",
    "",
    "it's",
    "!!",
    "!x",
    "$HOME `id` $(id)",
    "*?[a-z]{1,2}",
    "~",
    "\\",
    "\\\\",
    "\\n",
    "%s%",
    '"',
    "é\udcff",
]
TEXT = "two\nlines\n\nand the last\n"


def test_the_line_holds_nothing_that_shells_read_differently() -> None:
    line = line_of(["sh", "-c", Path(ssh_remote.__file__).read_text("utf-8"), *WORDS, TEXT]).decode("ascii")
    assert re.fullmatch(r"""sh -c 'eval "exec \$\(printf %b "[A-Za-z0-9 ,./=_+@\\-]*"\)"'""", line)
    assert "\\\\" not in line
    assert ssh_remote.MARK not in line


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "rbash", "zsh", "fish", "csh", "tcsh", "busybox"])
def test_every_shell_hands_on_the_words_as_they_are(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here")
    line = line_of(["printf", r"%s\0", *WORDS, TEXT])
    start = [program, "sh", "-c"] if shell == "busybox" else [program, "-c"]
    done = subprocess.run([*start, line], capture_output=True, cwd=tmp_path, check=True)
    assert done.stderr == b""
    told = "".join(f"{word}\0" for word in [*WORDS, TEXT]).encode("utf-8", "surrogateescape")
    assert done.stdout == told
