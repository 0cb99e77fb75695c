"""Hints: what a person should do about a failure that came as an error, told by the words of its sentence."""

from __future__ import annotations

import re

_ADVICE = (
    (re.compile(r"the folder \S+ cannot be written"), "set work_dir, or HOME, to a folder that can be written there"),
    (re.compile(r"No space left on device"), "free space there, or set work_dir to a folder on a larger disk"),
    (re.compile(r"has no torch"), "install torch for that Python, or set `python` to one that has it"),
)


def advice(reason: str) -> str:
    """Give the advice for a failure's reason, or nothing when none is known."""
    return next((said for words, said in _ADVICE if words.search(reason)), "")
