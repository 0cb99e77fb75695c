"""Verdict: what a kernel line means, and the row of the table that says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["fatal", "degrade", "note"]
Action = Literal["none", "restart job", "reset GPU", "reboot", "drain", "replace", "check cable"]

SEVERITIES: tuple[Severity, ...] = ("fatal", "degrade", "note")
ACTIONS: tuple[Action, ...] = ("replace", "drain", "reboot", "reset GPU", "check cable", "restart job", "none")
"""Severities and actions, the gravest first."""
RESTART_JOB: Action = "restart job"
"""The machine is fine: the job's own fault, or the job was hit."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A line's meaning: its class, how bad it is, what a person should do, and why."""

    class_: str
    severity: Severity
    action: Action
    reason: str

    def but(self, severity: Severity, action: Action, reason: str, *, class_: str = "") -> Verdict:
        """Give the same class, or another one, with another judgement."""
        return replace(self, class_=class_ or self.class_, severity=severity, action=action, reason=reason)


Weigh = Callable[[re.Match[str], Verdict], Verdict | None]
"""Looks at the values in the match: gives the verdict, another one, or None when the values are harmless."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. Without a verdict a match means that the line is harmless."""

    pattern: re.Pattern[str]
    verdict: Verdict | None
    source: str
    weigh: Weigh | None = None

    def judge(self, match: re.Match[str]) -> Verdict | None:
        """Give the verdict for a match of this row's pattern."""
        if self.verdict is None or self.weigh is None:
            return self.verdict
        return self.weigh(match, self.verdict)


@dataclass(frozen=True, slots=True)
class Family:
    """Rows that speak about one part of a machine; only lines with one of `words` (lower case) are shown to them."""

    name: str
    words: tuple[str, ...]
    rows: tuple[Row, ...]

    def find(self, text: str, lowered: str) -> tuple[Row, re.Match[str]] | None:
        """Give the first row that matches the text."""
        if not any(word in lowered for word in self.words):
            return None
        for row in self.rows:
            match = row.pattern.search(text)
            if match is not None:
                return row, match
        return None


def row(pattern: str, verdict: Verdict | None, source: str, weigh: Weigh | None = None) -> Row:
    """Build a row; case does not matter, letters and digits are ASCII."""
    return Row(re.compile(pattern, re.IGNORECASE | re.ASCII), verdict, source, weigh)


def unless_zero(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    """Give no verdict when the value in the line (group `value`: decimal, or hexadecimal after 0x) is zero."""
    return verdict if int(match["value"], 16) else None


def is_all_ones(digits: str) -> bool:
    """Tell whether a hexadecimal register of 32 bits or more reads all ones: the device does not answer any more."""
    return len(digits) >= 8 and set(digits.lower()) == {"f"}
