"""Waiting: how much of each matched collective moved data, and how much of it was waiting for a rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.collectives import RankColumns
from pytest_aorta.trace.intervals import Cover, Nanoseconds, union
from pytest_aorta.trace.links import Message
from pytest_aorta.trace.matching import Matched, Matching

NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The symmetric collectives of one group: no rank can finish one before all have come.

    `transfer_ns`: (N,) int64, the shortest duration over the group's ranks. `wait_ns`, `exposed_ns`: (M, N) int64, what
    each member's kernel lasted longer, which is its first part, and that without the member's own computation. `last`:
    (N,) int64, the member with the shortest duration, NOBODY where several share it.
    """

    matched: Matched
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    transfer_ns: Nanoseconds
    wait_ns: Nanoseconds
    exposed_ns: Nanoseconds
    last: NDArray[np.int64]

    @property
    def num_collectives(self) -> int:
        """How many there are."""
        return len(self.transfer_ns)


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank did in its matched collectives; every time is a measure of a union."""

    transfer_ns: int
    hidden_transfer_ns: int
    exposed_wait_ns: int


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """How fast one kind of transfer was: the median over `num_collectives` that no computation ran beside.

    `size_bytes`: the lower end of the bucket, a power of two; what counts is the size before or after the operation,
    whichever is larger. `gbps`: bus bandwidth in 10^9 bytes a second.
    """

    operation: str
    size_bytes: int
    group: str
    num_ranks: int
    num_collectives: int
    gbps: float
    is_slow: bool = False


_BESIDE_RATIO = 0.01  # computation inside of columns may be rounded
_SLOW_RATIO = 0.7
_MIN_LIKE_GROUPS = 3
_ELEMENT_BYTES = {
    **dict.fromkeys(("Double", "Long", "ComplexFloat", "UInt64"), 8),
    **dict.fromkeys(("Float", "Int", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Byte", "Char", "Bool"), 1),
    "ComplexDouble": 16,
}


def waits_of(matching: Matching, ranks: Sequence[RankColumns]) -> tuple[Waits, ...]:
    """Give the waits of every group that has symmetric collectives."""
    found = []
    for matched in matching.groups:
        symmetric = np.array([message.is_symmetric for message in matched.messages], bool)
        chosen = matched.chosen(symmetric[matched.message]) if symmetric.size else matched
        if symmetric.any() and chosen.where.size:
            found.append(_waits(chosen, [ranks[member] for member in chosen.members]))
    return tuple(found)


def share_of(member: int, rank: RankColumns, waits: Sequence[Waits]) -> Share:
    """Add up what one rank, given by its place among the columns, did in all its groups."""
    transfers, waited = [], []
    for group in waits:
        if member in group.matched.members:
            row = group.matched.members.index(member)
            transfers.append((group.end_ns[row] - group.transfer_ns, group.end_ns[row]))
            waited.append((group.start_ns[row], group.start_ns[row] + group.wait_ns[row]))
    transfer_ns, hidden_ns = _measured(transfers, rank.computation)
    wait_ns, worked_ns = _measured(waited, rank.computation)
    return Share(transfer_ns, hidden_ns, wait_ns - worked_ns)


def bandwidths(waits: Sequence[Waits], ranks: Sequence[RankColumns]) -> tuple[Bandwidth, ...]:
    """Give bus bandwidth by operation, size and group; a group far below three or more like it is slow.

    Far below: under 70 % of the median of the groups of as many ranks, for the same operation and size.
    Source: bus bandwidth as nccl-tests define it (doc/PERFORMANCE.md).
    """
    rates: dict[tuple[str, int, str, int], list[float]] = {}
    for group in waits:
        for key, rate_gbps in _rates(group, [ranks[member] for member in group.matched.members]):
            rates.setdefault(key, []).append(rate_gbps)
    medians = {key: float(np.median(values)) for key, values in rates.items()}
    found = []
    for (operation, size_bytes, name, num_ranks), gbps in sorted(medians.items()):
        like = [
            rate
            for (its_operation, its_size, _, its_ranks), rate in medians.items()
            if (its_operation, its_size, its_ranks) == (operation, size_bytes, num_ranks)
        ]
        is_slow = len(like) > _MIN_LIKE_GROUPS and gbps < _SLOW_RATIO * float(np.median(like))
        num_collectives = len(rates[operation, size_bytes, name, num_ranks])
        found.append(Bandwidth(operation, size_bytes, name, num_ranks, num_collectives, gbps, is_slow))
    return tuple(found)


def bus_bytes(message: Message) -> float | None:
    """Give the bytes that each rank's link carries, None where the size of an element is not known."""
    element_bytes = 1 if message.dtype.startswith("Float8") else _ELEMENT_BYTES.get(message.dtype)
    if element_bytes is None or message.num_ranks < 2:
        return None
    others_ratio = (message.num_ranks - 1) / message.num_ranks
    num_elements = max(message.num_elements_in, message.num_elements_out)
    return num_elements * element_bytes * others_ratio * (2 if message.operation == "all_reduce" else 1)


def _waits(matched: Matched, members: Sequence[RankColumns]) -> Waits:
    start_ns = np.stack([rank.start_ns[where] for rank, where in zip(members, matched.where, strict=True)])
    end_ns = np.stack([rank.end_ns[where] for rank, where in zip(members, matched.where, strict=True)])
    duration_ns = end_ns - start_ns
    transfer_ns = duration_ns.min(axis=0)
    wait_ns = duration_ns - transfer_ns
    worked_ns = np.stack(
        [
            rank.computation.between(starts, starts + waits)
            for rank, starts, waits in zip(members, start_ns, wait_ns, strict=True)
        ]
    )
    alone = (wait_ns == 0).sum(axis=0) == 1
    return Waits(
        matched=matched,
        start_ns=start_ns,
        end_ns=end_ns,
        transfer_ns=transfer_ns,
        wait_ns=wait_ns,
        exposed_ns=wait_ns - worked_ns,
        last=np.where(alone, wait_ns.argmin(axis=0), NOBODY),
    )


def _measured(intervals: Sequence[tuple[Nanoseconds, Nanoseconds]], computation: Cover) -> tuple[int, int]:
    """Give the measure of the union of intervals, and how much of it computation covers."""
    if not intervals:
        return 0, 0
    start_ns, end_ns = (np.concatenate(column) for column in zip(*intervals, strict=True))
    order = np.argsort(start_ns, kind="stable")
    starts_ns, ends_ns = union(start_ns[order], end_ns[order])
    return int((ends_ns - starts_ns).sum()), int(computation.between(starts_ns, ends_ns).sum())


def _rates(group: Waits, members: Sequence[RankColumns]) -> Iterator[tuple[tuple[str, int, str, int], float]]:
    matched = group.matched
    beside_ns = np.stack(
        [
            rank.computation.between(ends - group.transfer_ns, ends)
            for rank, ends in zip(members, group.end_ns, strict=True)
        ]
    )
    alone = (group.transfer_ns > 0) & (beside_ns.max(axis=0) <= _BESIDE_RATIO * group.transfer_ns)
    for place, transfer_ns in zip(matched.message[alone].tolist(), group.transfer_ns[alone].tolist(), strict=True):
        message = matched.messages[place]
        carried_bytes = bus_bytes(message)
        if carried_bytes:
            whole_bytes = carried_bytes * message.num_ranks / (message.num_ranks - 1)
            whole_bytes /= 2 if message.operation == "all_reduce" else 1
            bucket_bytes = 1 << (round(whole_bytes).bit_length() - 1)
            yield (message.operation, bucket_bytes, matched.group, message.num_ranks), carried_bytes / transfer_ns
