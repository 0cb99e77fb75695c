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

_NOISE = re.compile(r"(?m)^sudo: unable to resolve host .*\n?")  # it goes on all the same
_LINE = re.compile(r"(?:<(\d+)>|(\w+) *:(\w+) *: )?\[\s*(\d+\.\d+)\](?: ?\[\s*[TC]\d+\])? ?(.*)")


def attempts(is_root: bool) -> list[list[str]]:
    """Give the commands to try in turn: root reads at once; others by sudo, else as they are if the kernel allows.

    util-linux prints the facility with -x only: by its -r, what a program wrote cannot be told from the kernel's word.
    Busybox has no -x, and the facility in its -r.
    """
    ways = [["dmesg", "-x"], ["dmesg", "-r"]]
    return ways if is_root else [command for way in ways for command in (["sudo", "-n", *way], way)]


def environment() -> dict[str, str | None]:
    """Give the environment that keeps the messages of the tools in English."""
    return {"LC_ALL": "C"}


def refused(why: str, kind: str = "failed") -> Answer:
    """Give the answer when nothing could be read; `kind` is the status when the text does not say more."""
    why = _NOISE.sub("", why).strip() or why
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
    status, why = _completeness(text, entries, since_uptime_s)
    return {"status": status, "why": why, "boot_id": boot_id(), "lines": inside, "dropped": dropped}


def parse(text: str) -> list[dict[str, Any]]:
    """Read lines `<6>[   12.345678] text` or `kern  :info  : [   12.345678] text`.

    Kernels may print who called behind the stamp, a thread or a processor: `[ T1234]`, `[   C3]`.
    One without a stamp goes on with the entry before it. One without a facility is of a facility that dmesg has no name
    for: a program's.
    """
    entries: list[dict[str, Any]] = []
    for line in text.split("\n"):
        match = _LINE.match(line)
        if match:
            number, name, level, stamp, text = match.groups()
            facility = int(number) >> 3 if number else 0
            if number:
                name = FACILITIES[facility] if facility < len(FACILITIES) else str(facility)
                level = LEVELS[int(number) & 7]
            entries.append({"stamp_s": float(stamp), "facility": name or "user", "level": level or "", "text": text})
        elif line and entries:
            entries.append({**entries[-1], "text": re.sub(r"^<\d+>", "", line).strip()})
    return entries


def _completeness(text: str, entries: list[dict[str, Any]], since_uptime_s: float) -> tuple[str, str]:
    """Tell whether the window is there whole; a kernel that has booted has written lines, all of them with stamps."""
    if not entries and text.strip():
        return "failed", "no line of the kernel log tells its time since boot; set printk.time=1"
    if not entries:
        return "cleared", ""
    oldest_s = entries[0]["stamp_s"]
    if oldest_s > since_uptime_s > 0:
        why = f"the kernel log begins at {oldest_s:.3f} s, the window at {since_uptime_s:.3f} s after boot"
        return "overwritten", why
    return "read", ""
