"""Losses: the events of a trace that could not be read, or whose times could not, by what they were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_aorta.trace.kinds import CATEGORIES, Category


@dataclass(slots=True)
class Losses:
    """How many of each sort were lost: `others` are those that no time is made of; of `unknown` nobody can tell."""

    gpu: int = 0
    launches: int = 0
    steps: int = 0
    others: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        """How many were lost in all."""
        return self.gpu + self.launches + self.steps + self.others + self.unknown

    def see(self, categories: Iterable[str | None]) -> None:
        """Count events that could not be read by their categories, as far as these could."""
        for name in categories:
            category = CATEGORIES.get(name, Category.RANGE)
            if name is None:
                self.unknown += 1
            elif category < Category.LAUNCH:
                self.gpu += 1
            elif category is Category.LAUNCH:
                self.launches += 1
            else:
                self.others += 1

    def ratio(self, *, num_gpu: int, num_launches: int, num_steps: int, num_events: int) -> float:
        """Give the share that was lost, of the sort that lost most; the numbers are of what was kept, and of all."""
        kept = ((self.gpu, num_gpu), (self.launches, num_launches), (self.steps, num_steps), (self.unknown, num_events))
        return max((lost / (lost + num) for lost, num in kept if lost), default=0.0)
