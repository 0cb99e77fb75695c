"""Program: the node program as one file, the same bytes wherever it is built."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

import pytest_aorta.node

NAME = "aorta-node.pyz"
PACKAGE = "aorta_node"
EPOCH = (1980, 1, 1, 0, 0, 0)
START = f"import sys\n\nfrom {PACKAGE}.__main__ import main\n\nsys.exit(main())\n"
INTERPRETER_FLAGS = ("-I", "-S", "-X", "utf8")  # nothing of the machine's site packages or PYTHON* variables


@functools.cache
def program_bytes() -> bytes:
    """Give the zipped program. It is stored, not deflated, so that no version of zlib changes its hash."""
    folder = Path(pytest_aorta.node.__file__).parent
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", EPOCH), START)
        for path in sorted(folder.glob("*.py")):
            archive.writestr(zipfile.ZipInfo(f"{PACKAGE}/{path.name}", EPOCH), path.read_bytes())
    return target.getvalue()


def command(python: str, program: str, lease_s: float, state_dir: str) -> list[str]:
    """Give the argument list that starts the program."""
    return [python, *INTERPRETER_FLAGS, program, "--lease", f"{lease_s:g}", "--state-dir", state_dir]
