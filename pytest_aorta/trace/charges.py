"""Charges: which rank the others waited for, and for how long, passed on where that rank only waited itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.links import NONE
from pytest_aorta.trace.passing import Passing, passing_of
from pytest_aorta.trace.significance import binomial_tail
from pytest_aorta.trace.waiting import Waits

_MAX_PASSES = 16  # collectives of several streams can each have waited for the other

Place = tuple[int, int]  # a group, and a collective of it


@dataclass(slots=True)
class Charges:
    """What one rank is charged.

    `total_ns`: all of it; `by_step_ns`: (S,) float64, the same by the step in which it was waited, of the steps that
    are known. `own`: what is left of the charges of its own late arrivals, by group and collective.
    `num_last`, `num_collectives`: how often it was the last, and of how many. `num_expected`: how often it would be if
    all ranks of a group came last equally often.
    """

    total_ns: float = 0.0
    by_step_ns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    own: dict[Place, float] = field(default_factory=dict)
    num_last: int = 0
    num_collectives: int = 0
    num_expected: Fraction = Fraction(0)

    @property
    def chance_of_share(self) -> float:
        """The chance of being the last this often or more, if it were chance alone (binomial)."""
        if not self.num_collectives:
            return 1.0
        return binomial_tail(self.num_last, self.num_collectives, self.num_expected / self.num_collectives)

    @property
    def share_last(self) -> float:
        """Share of its collectives in which the rank was the last to arrive."""
        return self.num_last / self.num_collectives if self.num_collectives else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Arrived:
    """Amounts that arrived at collectives, each column (A,).

    `place`: int64, the collective. `step`: int64, the number of the step in which the others waited. `amount_ns`:
    float64. `passed_ns`: float64, what of it is passed on.
    """

    place: NDArray[np.int64]
    step: NDArray[np.int64]
    amount_ns: NDArray[np.float64]
    passed_ns: NDArray[np.float64]


def charge(
    waits: Sequence[Waits], num_ranks: int, steps: Sequence[NDArray[np.int64]] | None = None
) -> tuple[Charges, ...]:
    """Charge the last rank of each collective the median exposed wait of the others.

    A rank that itself waited, exposed, in another group since its last collective in this one passes as much of the
    charge on to whom it waited for. `steps` holds that of each collective of each group, NONE where it is not known.
    """
    found = tuple(Charges() for _ in range(num_ranks))
    for group in waits:
        members = group.matched.members
        for row, member in enumerate(members):
            found[member].num_collectives += group.num_collectives
            found[member].num_last += int((group.last == row).sum())
            found[member].num_expected += Fraction(group.num_collectives, len(members))
    passing = passing_of(waits, num_ranks)
    step, num_steps = _numbered(steps, len(passing.late))
    for charged, amounts_ns in zip(found, _settled(passing, step, (num_ranks, num_steps + 1)), strict=True):
        charged.total_ns = float(amounts_ns.sum())
        charged.by_step_ns = amounts_ns[:num_steps]
    left_ns = passing.amount_ns - passing.passed_ns
    places = [(number, place) for number, group in enumerate(waits) for place in range(group.num_collectives)]
    for place in np.flatnonzero(passing.amount_ns > 0).tolist():
        found[passing.late[place]].own[places[place]] = float(left_ns[place])
    return found


def _numbered(steps: Sequence[NDArray[np.int64]] | None, num_places: int) -> tuple[NDArray[np.int64], int]:
    """Give the step of each collective as a number from 0, one more than the largest where it is not known."""
    step = np.full(num_places, NONE) if not steps else np.concatenate(steps)
    known = np.unique(step[step != NONE])
    return np.where(step == NONE, len(known), np.searchsorted(known, step)), len(known)


def _settled(passing: Passing, step: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Put every amount to the account of who caused it, wherever that leads: by rank and step, of `shape`.

    All collectives are taken together, one pass after the other, and what meets in one of them goes on as one.
    """
    charged_ns = np.zeros(shape)
    places = np.flatnonzero(passing.amount_ns > 0)
    arrived = _Arrived(places, step[places], passing.amount_ns[places], passing.passed_ns[places])
    for num_left in range(_MAX_PASSES, -1, -1):
        kept_ns = arrived.amount_ns - arrived.passed_ns if num_left else arrived.amount_ns
        np.add.at(charged_ns, (passing.late[arrived.place], arrived.step), kept_ns)
        arrived = _passed_on(passing, arrived)
    return charged_ns


def _passed_on(passing: Passing, arrived: _Arrived) -> _Arrived:
    going = np.flatnonzero(arrived.passed_ns > 0)
    causes, of = passing.causes_of(arrived.place[going])
    amount_ns = arrived.passed_ns[going][of] * passing.share[causes]
    num_steps = int(arrived.step.max(initial=0)) + 1
    keys, number = np.unique(passing.cause[causes] * num_steps + arrived.step[going][of], return_inverse=True)
    return _Arrived(
        place=keys // num_steps,
        step=keys % num_steps,
        amount_ns=_sums(number, amount_ns, len(keys)),
        passed_ns=_sums(number, amount_ns * passing.ratio[causes], len(keys)),
    )


def _sums(number: NDArray[np.int64], amounts_ns: NDArray[np.float64], num_sums: int) -> NDArray[np.float64]:
    found = np.zeros(num_sums)
    np.add.at(found, number, amounts_ns)
    return found
