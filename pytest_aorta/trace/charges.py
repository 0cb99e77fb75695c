"""Charges: which rank the others waited for, and for how long, passed on where that rank only waited itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.intervals import Nanoseconds
from pytest_aorta.trace.links import NONE
from pytest_aorta.trace.significance import binomial_tail
from pytest_aorta.trace.waiting import NOBODY, Waits

_MAX_PASSES = 16

Place = tuple[int, int]  # a group, and a collective of it


@dataclass(slots=True)
class Charges:
    """What one rank is charged.

    `total_ns`: all of it; `at_ns`: the same by group and collective where it was waited. `own`: what is left of the
    charges of its own late arrivals, by group and collective.
    `num_last`, `num_collectives`: how often it was the last, and of how many. `num_expected`: how often it would be if
    all ranks of a group came last equally often.
    """

    total_ns: float = 0.0
    at_ns: dict[Place, float] = field(default_factory=dict)
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
class _Path:
    """One rank's way through the collectives of all its groups, by start."""

    at: dict[Place, int]
    group: NDArray[np.int64]
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    exposed_ns: Nanoseconds


def charge(waits: Sequence[Waits], num_ranks: int) -> tuple[Charges, ...]:
    """Charge the last rank of each collective the median exposed wait of the others.

    A rank that itself waited, exposed, in another group since its last collective in this one passes as much of the
    charge on to whom it waited for.
    """
    found = tuple(Charges() for _ in range(num_ranks))
    paths = [_path(member, waits) for member in range(num_ranks)]
    for number, group in enumerate(waits):
        members = group.matched.members
        for row, member in enumerate(members):
            found[member].num_collectives += group.num_collectives
            found[member].num_last += int((group.last == row).sum())
            found[member].num_expected += Fraction(group.num_collectives, len(members))
        for place in np.flatnonzero(group.last != NOBODY).tolist():
            others = np.arange(len(members)) != group.last[place]
            amount_ns = float(np.median(group.exposed_ns[others, place]))
            if amount_ns > 0:
                _settle(found, paths, waits, (number, place), amount_ns)
    return found


def charged_by_step(charges: Sequence[Charges], steps: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Give what each rank is charged in each step, (R, S) in ns; `steps` holds that of each collective of each group.

    S is 0 where no step is known.
    """
    numbers = np.unique(np.concatenate(steps)) if steps else np.zeros(0, np.int64)
    numbers = numbers[numbers != NONE]
    found = np.zeros((len(charges), len(numbers)))
    if numbers.size:
        for row, charged in enumerate(charges):
            for (group, place), amount_ns in charged.at_ns.items():
                if steps[group][place] != NONE:
                    found[row, np.searchsorted(numbers, steps[group][place])] += amount_ns
    return found


def _settle(
    found: Sequence[Charges], paths: Sequence[_Path], waits: Sequence[Waits], first: Place, amount_ns: float
) -> None:
    """Put an amount to the account of who caused it, wherever that leads."""
    open_amounts = [(first, amount_ns, 0)]
    while open_amounts:
        place, left_ns, num_passes = open_amounts.pop()
        group = waits[place[0]]
        if group.last[place[1]] == NOBODY:
            continue
        late = group.matched.members[int(group.last[place[1]])]
        waited = list(_waited_elsewhere(paths[late], place)) if num_passes < _MAX_PASSES else []
        waited_ns = sum(exposed for _, exposed in waited)
        passed_ns = min(left_ns, waited_ns)
        found[late].total_ns += left_ns - passed_ns
        found[late].at_ns[first] = found[late].at_ns.get(first, 0.0) + left_ns - passed_ns
        if num_passes == 0:
            found[late].own[place] = left_ns - passed_ns
        open_amounts += [(cause, passed_ns * exposed / waited_ns, num_passes + 1) for cause, exposed in waited]


def _path(member: int, waits: Sequence[Waits]) -> _Path:
    rows = [
        (number, place, row)
        for number, group in enumerate(waits)
        if member in group.matched.members
        for row in [group.matched.members.index(member)]
        for place in range(group.num_collectives)
    ]
    rows.sort(key=lambda at: int(waits[at[0]].start_ns[at[2], at[1]]))
    return _Path(
        at={(number, place): index for index, (number, place, _) in enumerate(rows)},
        group=np.array([number for number, _, _ in rows], np.int64),
        start_ns=np.array([waits[number].start_ns[row, place] for number, place, row in rows], np.int64),
        end_ns=np.array([waits[number].end_ns[row, place] for number, place, row in rows], np.int64),
        exposed_ns=np.array([waits[number].exposed_ns[row, place] for number, place, row in rows], np.int64),
    )


def _waited_elsewhere(path: _Path, place: Place) -> Iterator[tuple[Place, int]]:
    """Give the collectives of other groups in which the rank waited since its last one in the group of `place`."""
    here = path.at[place]
    same = np.flatnonzero(path.group[:here] == place[0])
    since_ns = path.end_ns[same[-1]] if same.size else -1
    elsewhere = (path.group[:here] != place[0]) & (path.end_ns[:here] > since_ns) & (path.exposed_ns[:here] > 0)
    if elsewhere.any():
        places = list(path.at)
        for index in np.flatnonzero(elsewhere).tolist():
            yield places[index], int(path.exposed_ns[index])
