"""Hint: what a failure probably comes from and what to try next; never a verdict, and it names no host by itself."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from signal import Signals
from typing import Literal

Severity = Literal["fatal", "degrade", "note"]
"""fatal: fails again until somebody acts; degrade: the next run may pass; note: follows from another failure."""

_CLASS = re.compile(r"(?:kernel log: |; )(?P<name>[a-z][a-z0-9_]+): ")
_CODE = re.compile(r"\b(?:exited|exitcode:?|exit code:?|exit status:?) (?P<code>-?\d{1,3})\b")
_SIGNAL = re.compile(r"\b(?:ended by|killed by|signal) (?P<name>SIG[A-Z0-9]+)\b")
_CHECK = re.compile(r"^\[[a-z ]+\].*\b(?:check|metric)=(?P<name>\w+)|^\[(?P<about>[a-z ]+)\]")
_MAX_CHARS = 8192


@dataclass(frozen=True, slots=True)
class Hint:
    """One row of the table: what it matches, how grave, likely cause, next step, and where that is known from.

    A row matches by one of: words of a reason or a log line, the class of a kernel-log finding, how a process ended
    (its exit code; a signal is its negative number), or the name of a failed check. What is `is_everyday` stands in the
    logs of healthy runs too, so it counts only in a reason.
    """

    key: str
    severity: Severity
    cause: str
    next_step: str
    source: str
    words: re.Pattern[str] | None = None
    classes: frozenset[str] = frozenset()
    endings: frozenset[int] = frozenset()
    checks: frozenset[str] = frozenset()
    is_everyday: bool = False

    def matches(self, symptom: Symptom) -> bool:
        """Tell whether the row speaks about this failure."""
        return (
            bool(self.words is not None and self.words.search(symptom.text))
            or not self.classes.isdisjoint(symptom.classes)
            or not self.endings.isdisjoint(symptom.endings)
            or not self.checks.isdisjoint(symptom.checks)
        )

    def line(self) -> str:
        """Give the hint as one line: severity, likely cause, next step, where that is known from."""
        return f"[{self.severity}] {self.cause}; {self.next_step} (known from {self.source})"


@dataclass(frozen=True, slots=True)
class Symptom:
    """What is known of one failure: its words, kernel-log classes, endings of processes, failed checks."""

    text: str
    classes: frozenset[str] = frozenset()
    endings: frozenset[int] = frozenset()
    checks: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str, labels: Collection[str] = ()) -> Symptom:
        """Read what a reason tells; `labels` are those of the checks that failed with it."""
        text = text[:_MAX_CHARS]
        classes = frozenset(found["name"] for found in _CLASS.finditer(text)) if "kernel log: " in text else frozenset()
        codes = {int(found["code"]) for found in _CODE.finditer(text)}
        signals = {-Signals[name] for found in _SIGNAL.finditer(text) if (name := found["name"]) in Signals.__members__}
        return cls(text, classes, frozenset(codes | signals), frozenset(map(_check_name, labels)))


def says(
    key: str,
    severity: Severity,
    pattern: str,
    cause: str,
    next_step: str,
    source: str,
    *,
    is_everyday: bool = False,
) -> Hint:
    """Build a row that matches words; case does not matter, letters and digits are ASCII."""
    words = re.compile(pattern, re.IGNORECASE | re.ASCII)
    return Hint(key, severity, cause, next_step, source, words=words, is_everyday=is_everyday)


def _check_name(label: str) -> str:
    found = _CHECK.search(label)
    return (found["name"] or found["about"]) if found is not None else label
