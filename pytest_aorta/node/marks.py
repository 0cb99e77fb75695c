"""Marks: empty files that tell hosts apart which see the same folder from those with one of their own."""

from __future__ import annotations

import os
import re

from .requests import Answer, CommandError, sentence

_NAME = re.compile(r"\.aorta-mark-[0-9A-Za-z_-]{1,80}")


def leave(path: str, name: str) -> Answer:
    """Leave a mark in a folder, or in the nearest one above it that is there.

    Raises:
        CommandError: it cannot be written there.
    """
    folder = path
    while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    where = os.path.join(folder, _checked(name))
    try:
        os.close(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise CommandError("failed", f"cannot leave a mark in {folder}: {sentence(error)}") from error
    return {"folder": folder}


def look(folder: str, names: list[str]) -> Answer:
    """Tell which marks are in a folder."""
    return {"seen": [name for name in names if os.path.lexists(os.path.join(folder, _checked(name)))]}


def take_back(folder: str, name: str) -> Answer:
    """Remove a mark; one that is gone is no error."""
    try:
        os.unlink(os.path.join(folder, _checked(name)))
    except FileNotFoundError:
        return {}
    return {}


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise CommandError("bad_request", f"the mark's name is {name!r}, expected .aorta-mark-<letters and digits>")
    return name
