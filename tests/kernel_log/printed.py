"""Printed: the lines of the corpus, as whatever program printed them."""

from __future__ import annotations

import re

from pytest_aorta.kernel_log.line import Line

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock"),
    *(f"local{number}" for number in range(8)),
)
LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")

_RAW = re.compile(r"<(?P<priority>\d{1,3})>")
_KMSG = re.compile(r"(?P<priority>\d{1,3}),\d+,(?P<stamp_us>\d+),[^;]{0,40};")
_NAMED = re.compile(rf"(?P<facility>{'|'.join(FACILITIES)})\s{{0,8}}:(?P<level>{'|'.join(LEVELS)})\s{{0,8}}:\s")
_SINCE_BOOT = re.compile(r"\[\s{0,12}(?P<stamp_s>\d+\.\d+)\]")
_CALLER = re.compile(r"\[\s{0,12}[TC]\d+\]")
_SINCE_LAST = re.compile(r"\[\s{0,12}\+\d+\.\d+\]")
_BRACKETED_DATE = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]")
_DATE = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)|\d\d:\d\d:\d\d(?:\.\d+)?)(?=\s)"
)
_KERNEL_NAME = re.compile(r"(?:[\w.-]{1,64} )?kernel:(?=\s|$)")
_PROGRAM_NAME = re.compile(r"[\w.-]{1,64} [\w./@-]{1,64}(?P<pid>\[\d+\])?:\s(?!segfault at)")
_CONSOLE_NAME = re.compile(r"[\w.-]{1,64} (?=\[\s{0,12}\d+\.\d+\])")


def parse(text: str) -> Line:
    """Read one printed record: dmesg (plain, -T, -x, -r, ISO or delta stamps), /dev/kmsg, syslog, a console."""
    return _Reader(text).read()


class _Reader:
    """Takes prefixes off a record, outermost first, until only the message is left."""

    def __init__(self, text: str) -> None:
        self.rest = text.strip()
        self.stamp_s = 0.0
        self.facility = ""
        self.level = ""

    def read(self) -> Line:
        """Give the record."""
        if not (self._take(_KMSG) or self._take(_RAW)):
            self._take(_NAMED)
        named = bool(self.facility)
        date = self._take(_BRACKETED_DATE) or self._take(_DATE)
        if date is None:
            self._take(_CONSOLE_NAME)
        if self._take(_KERNEL_NAME):
            self.facility = "kern"
        elif date is not None and not named:
            self._take_program(is_syslog=bool(date.groupdict().get("syslog")))
        for pattern in (_SINCE_BOOT, _SINCE_LAST, _CALLER):
            self._take(pattern)
        return Line(self.stamp_s, self.facility or "kern", self.level, self.rest)

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.rest)
        if match is None:
            return None
        self.rest = self.rest[match.end() :].lstrip()
        found = match.groupdict()
        if found.get("priority"):
            priority = int(found["priority"])
            self.level = LEVELS[priority & 7]
            self.facility = FACILITIES[priority >> 3] if priority >> 3 < len(FACILITIES) else "user"
        if found.get("facility"):
            self.facility, self.level = found["facility"], found["level"]
        if found.get("stamp_us"):
            self.stamp_s = int(found["stamp_us"]) / 1e6
        if found.get("stamp_s"):
            self.stamp_s = float(found["stamp_s"])
        return match

    def _take_program(self, *, is_syslog: bool) -> None:
        """Syslog always names host and program; after an ISO stamp only `host program[pid]:` is sure to be one."""
        match = _PROGRAM_NAME.match(self.rest)
        if match is not None and (is_syslog or match["pid"]):
            self.rest = self.rest[match.end() :].lstrip()
            self.facility = "user"
