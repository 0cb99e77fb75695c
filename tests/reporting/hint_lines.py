"""Lines: for each hint, failures that it must speak about and look-alikes that it must not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lines:
    """One hint's failures and look-alikes; `label` is that of the failed check where the hint is told by it."""

    key: str
    said: tuple[str, ...]
    unlike: tuple[str, ...]
    label: str = ""
