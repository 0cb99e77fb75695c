"""Missing: the ranks of a world without a trace, counted and not listed: whoever told the world's size may be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class Missing:
    """The ranks below `expected` that are not `present`."""

    expected: int
    present: frozenset[int]

    @property
    def num(self) -> int:
        """How many there are."""
        return self.expected - sum(0 <= rank < self.expected for rank in self.present)

    def num_of(self, ranks: range) -> int:
        """Give how many of these ranks are missing."""
        return sum(rank < self.expected and rank not in self.present for rank in ranks)

    def first(self, most: int) -> tuple[int, ...]:
        """Give the lowest of them, `most` at most."""
        return tuple(islice((rank for rank in range(self.expected) if rank not in self.present), most))
