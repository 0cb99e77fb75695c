"""The table: every hint, the most specific first; the first that matches is the one that is shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pytest_aorta.reporting.hints.collectives import COLLECTIVES, FOLLOWERS, UNSPECIFIC, WAITING
from pytest_aorta.reporting.hints.devices import DEVICES
from pytest_aorta.reporting.hints.endings import ENDINGS
from pytest_aorta.reporting.hints.hint import Hint, Symptom
from pytest_aorta.reporting.hints.hosts import HOSTS, LOST
from pytest_aorta.reporting.hints.kernel import KERNEL
from pytest_aorta.reporting.hints.workload import CHECKS, WORKLOAD

# A process ended, and no word of its own follows.
_SAYS_NO_MORE = re.compile(r"\b(?:exited -?\d+\b|ended by SIG\w+\b|did not end\b)(?!:)")
_WEAK = (*FOLLOWERS, *UNSPECIFIC, *ENDINGS)
_TOLD_BY_LOGS = tuple(hint for hint in (*DEVICES, *COLLECTIVES, *WORKLOAD, *HOSTS, *WAITING) if not hint.is_everyday)

HINTS: tuple[Hint, ...] = (
    *LOST,
    *KERNEL,
    *DEVICES,
    *COLLECTIVES,
    *HOSTS,
    *WORKLOAD,
    *WAITING,
    *FOLLOWERS,
    *CHECKS,
    *UNSPECIFIC,
    *ENDINGS,
)


def find(reason: str, labels: Collection[str] = (), lines: Iterable[str] = ()) -> Hint | None:
    """Give the most specific hint for a failure, or None.

    `labels` are those of the checks that failed with it; `lines` of its log are looked at only when the reason says
    that something ended, not why.
    """
    symptom = Symptom.of(reason, labels)
    found = next((hint for hint in HINTS if hint.matches(symptom)), None)
    if found not in _WEAK and (found is not None or not _SAYS_NO_MORE.search(reason)):
        return found
    told = [Symptom.of(line) for line in lines]
    return next((hint for hint in _TOLD_BY_LOGS if any(hint.matches(line) for line in told)), found)
