"""Kernel log: what `dmesg` prints, with raw stamps, cut to a window."""

from __future__ import annotations

import re
from typing import Any

from .facts import boot_id
from .requests import Answer

LIMIT_BYTES = 64 * 1024 * 1024
TIMEOUT_S = 30.0
LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
FACILITIES = ("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news")
REFUSALS = ("not permitted", "permission denied", "password is required", "not allowed", "may not run", "must be root")

_LINE = re.compile(r"<(\d+)>\[\s*(\d+\.\d+)\] ?(.*)")


def attempts(is_root: bool) -> list[list[str]]:
    """Give the commands to try in turn: root reads at once; others by sudo, else as they are if the kernel allows."""
    plain = ["dmesg", "-r"]
    return [plain] if is_root else [["sudo", "-n", *plain], plain]


def environment() -> dict[str, str | None]:
    """Give the environment that keeps the messages of the tools in English."""
    return {"LC_ALL": "C"}


def refused(why: str, kind: str = "failed") -> Answer:
    """Give the answer when nothing could be read; `kind` is the status when the text does not say more."""
    low = why.lower()
    status = "not_permitted" if any(words in low for words in REFUSALS) else kind
    return {"status": status, "why": why, "boot_id": boot_id(), "lines": [], "dropped": 0}


def read(text: str, since_uptime_s: float, max_lines: int) -> Answer:
    """Give the lines of the window, oldest first; of too many the first and the last ones."""
    entries = parse(text)
    inside = [entry for entry in entries if entry["stamp_s"] >= since_uptime_s]
    dropped = max(0, len(inside) - max_lines)
    if dropped:
        first = max_lines // 2
        inside = inside[:first] + inside[first + dropped :]
    status, why = _completeness(entries, since_uptime_s)
    return {"status": status, "why": why, "boot_id": boot_id(), "lines": inside, "dropped": dropped}


def parse(text: str) -> list[dict[str, Any]]:
    """Read raw lines `<6>[   12.345678] text`; one without a stamp goes on with the entry before it."""
    entries: list[dict[str, Any]] = []
    for line in text.split("\n"):
        match = _LINE.match(line)
        if match:
            priority = int(match.group(1))
            facility = priority >> 3
            entries.append(
                {
                    "stamp_s": float(match.group(2)),
                    "facility": FACILITIES[facility] if facility < len(FACILITIES) else str(facility),
                    "level": LEVELS[priority & 7],
                    "text": match.group(3),
                }
            )
        elif line and entries:
            entries.append({**entries[-1], "text": re.sub(r"^<\d+>", "", line)})
    return entries


def _completeness(entries: list[dict[str, Any]], since_uptime_s: float) -> tuple[str, str]:
    oldest_s = entries[0]["stamp_s"] if entries else None
    if oldest_s is not None and oldest_s > since_uptime_s > 0:
        why = f"the kernel log begins at {oldest_s:.3f} s, the window at {since_uptime_s:.3f} s after boot"
        return "overwritten", why
    return "read", ""
