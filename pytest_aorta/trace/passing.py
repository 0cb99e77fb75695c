"""Passing: where the last rank of a collective had itself waited for others before it came late, and how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.intervals import Nanoseconds
from pytest_aorta.trace.waiting import NOBODY, Waits


@dataclass(frozen=True, slots=True, eq=False)
class Passing:
    """The collectives of all groups, one group after the other, and to which others the charge for each is passed on.

    `late`: (P,) int64, the rank that came last, NOBODY where none did. `amount_ns`: (P,) float64, the median exposed
    wait of the others. `passed_ns`: (P,) float64, what of it is passed on. `begin`: (P + 1,) int64, where the causes of
    each begin among the following columns. `cause`: (E,) int64, a collective in which the late rank had waited.
    `share`: (E,) float64, what the cause gets of all that is passed on. `ratio`: (E,) float64, what of that goes on
    from there.
    """

    late: NDArray[np.int64]
    amount_ns: NDArray[np.float64]
    passed_ns: NDArray[np.float64]
    begin: NDArray[np.int64]
    cause: NDArray[np.int64]
    share: NDArray[np.float64]
    ratio: NDArray[np.float64]

    def causes_of(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Give the causes of some collectives, (C,) int64 into `cause`, and beside each which of `places` it is of."""
        counts = self.begin[places + 1] - self.begin[places]
        of = np.repeat(np.arange(len(places)), counts)
        within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.begin[places][of] + within, of


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """One rank's way through the collectives of all its groups, by start; each column is (C,) int64."""

    group: NDArray[np.int64]
    place: NDArray[np.int64]
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    exposed_ns: Nanoseconds


def passing_of(waits: Sequence[Waits], num_ranks: int) -> Passing:
    """Find what the last rank of each collective had waited for in other groups since its last one in the same group.

    Of the charge for a collective it passes on as much as it had waited, to each cause in proportion. From there as
    much goes on as the rank that was last there had waited itself. What comes from further goes on in the same ratio.
    """
    first = np.cumsum([0, *(group.num_collectives for group in waits)])
    late = _joined([np.append(group.matched.members, NOBODY)[group.last] for group in waits])  # NOBODY takes the last
    amount_ns = np.concatenate([np.zeros(0), *(_median_ns(group) for group in waits)])
    of, cause, waited_ns = _causes(waits, num_ranks, first, late)
    all_waited_ns = np.bincount(of, waited_ns, len(late))
    passed_ns = np.minimum(amount_ns, all_waited_ns)
    share = waited_ns / all_waited_ns[of]
    first_ns = np.where(passed_ns[of] > 0, passed_ns[of] * share, waited_ns)
    known = late[cause] != NOBODY
    return Passing(
        late=late,
        amount_ns=amount_ns,
        passed_ns=passed_ns,
        begin=np.searchsorted(of[known], np.arange(len(late) + 1)),
        cause=cause[known],
        share=share[known],
        ratio=np.minimum(1.0, all_waited_ns[cause] / first_ns)[known],
    )


def _median_ns(group: Waits) -> NDArray[np.float64]:
    """Give the median exposed wait of the others in each collective, 0 where nobody was the last; (N,)."""
    found = np.zeros(group.num_collectives)
    known = group.last != NOBODY
    if known.any():
        others = np.arange(len(group.matched.members)) != group.last[known, np.newaxis]
        exposed_ns = group.exposed_ns[:, known].T[others]
        found[known] = np.median(exposed_ns.reshape(int(known.sum()), -1), axis=1)
    return found


def _causes(
    waits: Sequence[Waits], num_ranks: int, first: NDArray[np.int64], late: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Give each collective, rising, beside each of its causes and how long its late rank waited there; (E,) each."""
    of, causes, waited_ns = [], [], []
    for member in range(num_ranks):
        path = _path(member, waits, first)
        for place, waited in _waited_elsewhere(path, late[path.place] == member):
            of.append(np.full(len(waited), place))
            causes.append(path.place[waited])
            waited_ns.append(path.exposed_ns[waited])
    order = np.argsort(_joined(of), kind="stable")
    return _joined(of)[order], _joined(causes)[order], _joined(waited_ns)[order].astype(float)


def _path(member: int, waits: Sequence[Waits], first: NDArray[np.int64]) -> _Path:
    mine = [
        (number, group, group.matched.members.index(member))
        for number, group in enumerate(waits)
        if member in group.matched.members
    ]
    start_ns = _joined([group.start_ns[row] for _, group, row in mine])
    order = np.argsort(start_ns, kind="stable")
    return _Path(
        group=_joined([np.full(group.num_collectives, number) for number, group, _ in mine])[order],
        place=_joined([np.arange(first[number], first[number + 1]) for number, _, _ in mine])[order],
        start_ns=start_ns[order],
        end_ns=_joined([group.end_ns[row] for _, group, row in mine])[order],
        exposed_ns=_joined([group.exposed_ns[row] for _, group, row in mine])[order],
    )


def _waited_elsewhere(path: _Path, is_late: NDArray[np.bool_]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Give each collective to which the rank came late, and where on its path it had waited in other groups since."""
    reached_ns = np.maximum.accumulate(path.end_ns)
    last_end_ns: dict[int, int] = {}
    columns = (path.group.tolist(), path.place.tolist(), path.end_ns.tolist())
    for here, (group, place, end_ns) in enumerate(zip(*columns, strict=True)):
        if is_late[here]:
            since_ns = last_end_ns.get(group, -1)
            begin = int(np.searchsorted(reached_ns[:here], since_ns, side="right"))  # all before have ended by then
            near = slice(begin, here)
            waited = (path.group[near] != group) & (path.end_ns[near] > since_ns) & (path.exposed_ns[near] > 0)
            yield place, begin + np.flatnonzero(waited)
        last_end_ns[group] = end_ns


def _joined(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)
