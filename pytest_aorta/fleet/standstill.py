"""Standstill: noticing that this process itself did not run, because it was stopped or its machine slept."""

from __future__ import annotations

import time

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the former goes on while the machine sleeps


class Standstill:
    """Holds the times at which leases were renewed against a limit: nothing but not running delays them so long."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._seen_at_s: float | None = None
        self._longest_s = 0.0

    def seen(self) -> None:
        """Note that this process runs now; from the first time on, it is expected again and again."""
        now_s = time.clock_gettime(CLOCK)
        self._longest_s = max(self._longest_s, self._gap_s(now_s))
        self._seen_at_s = now_s

    def expect_no_more(self) -> None:
        """Note that nothing is renewed from now on."""
        self._longest_s = max(self._longest_s, self._gap_s(time.clock_gettime(CLOCK)))
        self._seen_at_s = None

    @property
    def seconds(self) -> float:
        """How long this process stood still, now or before; 0 when never longer than the limit."""
        longest_s = max(self._longest_s, self._gap_s(time.clock_gettime(CLOCK)))
        return longest_s if longest_s > self.limit_s else 0.0

    def _gap_s(self, now_s: float) -> float:
        return now_s - self._seen_at_s if self._seen_at_s is not None else 0.0
