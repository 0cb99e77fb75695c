"""Text: what logs, host names and reasons become before they stand on a page, in XML or in a terminal."""

from __future__ import annotations

import re

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # window titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # device strings
    r"|\x1b[ -/]*[0-~]"
)
# Everything XML 1.0 refuses, DEL, the C1 controls, and the marks that reverse the reading direction.
_UNPRINTABLE = re.compile(
    "[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\u200e\u200f]"
)
_REPLACEMENT = "\ufffd"
_TALLY = re.compile(r" \(\d+ of \d+ gates .*\)$", re.DOTALL)


def clean(text: str) -> str:
    """Give the text without terminal sequences, every character that XML or a page must not hold replaced."""
    text = _ESCAPE_SEQUENCE.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub(_REPLACEMENT, text)


def one_line(text: str, max_chars: int = 2000) -> str:
    """Give the text cleaned, as one line of at most `max_chars` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def without_tally(reason: str) -> str:
    """Give a gate's reason without the list of all that failed, which every failing gate carries."""
    return _TALLY.sub("", reason)


def cut_middle(text: str, max_chars: int) -> tuple[str, int]:
    """Give the beginning and the end of a long text, and how many characters were left out between them.

    Cuts stand at line ends where a line ends within the last quarter of each part.
    """
    if len(text) <= max_chars:
        return text, 0
    half = max_chars // 2
    head, tail = text[:half], text[-half:]
    line_end = head.rfind("\n", half - half // 4)
    if line_end >= 0:
        head = head[: line_end + 1]
    line_start = tail.find("\n", 0, half // 4)
    if line_start >= 0:
        tail = tail[line_start + 1 :]
    omitted = len(text) - len(head) - len(tail)
    return f"{head}\n… {omitted} characters left out …\n{tail}", omitted


def show_seconds(seconds: float) -> str:
    """Format a duration: `0.42 s`, `41.3 s`, `12 min 05 s`, `2 h 04 min`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"
