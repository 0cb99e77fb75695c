"""Waiting for a process to be gone: it may still be on its way out when its last output has been read."""

from __future__ import annotations

import time
from pathlib import Path

DEADLINE_S = 30


def vanishes(pid: int | str) -> bool:
    """Tell whether a process ends (or is a zombie, which nobody has waited for) before the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while _is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_running(pid: int | str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False
