"""Matching: which collective of one rank is which of another, without any clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.collectives import RankColumns
from pytest_aorta.trace.links import NONE, POINT_TO_POINT, Message

Places = NDArray[np.int64]
_Key = tuple[str, int]  # a group, and a window counted from the last

WORLD = "all ranks (the traces name no group)"


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Collectives of one group that were found on all its observed ranks, in their order.

    `members`: places of the ranks among the columns. `where`: (M, N) int64, of each collective in each member's
    columns. `message`: (N,) int64, into `messages`.
    """

    group: str
    members: tuple[int, ...]
    where: Places
    message: NDArray[np.int64]
    messages: tuple[Message, ...]

    def chosen(self, which: NDArray[np.bool_]) -> Matched:
        """Keep some of the collectives."""
        return Matched(self.group, self.members, self.where[:, which], self.message[which], self.messages)


@dataclass(frozen=True, slots=True)
class Matching:
    """What was matched. Counts are over all ranks; send and receive are not matched and count nowhere.

    `num_matchable`: collectives of groups with two observed ranks or more, of which `num_matched` were found on all.
    `num_unnamed`: communication that carries no metadata. `by_name_only`: none carries any, so the names of kernels
    were matched.
    """

    groups: tuple[Matched, ...]
    num_matched: int
    num_matchable: int
    num_unnamed: int
    by_name_only: bool = False

    @property
    def matched_ratio(self) -> float | None:
        """Share of the collectives that were matched; None when there is nothing to match."""
        return self.num_matched / self.num_matchable if self.num_matchable else None


def steps_of(matched: Matched, ranks: Sequence[RankColumns]) -> NDArray[np.int64]:
    """Give the profiler's step of each collective, as far as any member says it, else NONE; (N,) int64."""
    if not matched.where.size:
        return np.zeros(0, np.int64)
    said = [ranks[member].step[where] for member, where in zip(matched.members, matched.where, strict=True)]
    return np.max(said, axis=0)  # type: ignore[no-any-return]


def within_steps(matching: Matching, ranks: Sequence[RankColumns]) -> tuple[Matching, int | None]:
    """Keep the collectives of profiled steps, so that what is said per step is of these; gives how many steps they are.

    None, and all are kept, where no step is known. Of shortened columns the first step is left out: only a part of it
    is there.
    """
    steps = [steps_of(group, ranks) for group in matching.groups]
    numbers = np.unique(np.concatenate(steps)) if steps else np.zeros(0, np.int64)
    numbers = numbers[numbers != NONE]
    if len(numbers) > 1 and any(rank.num_dropped for rank in ranks):
        numbers = numbers[1:]
    if not numbers.size:
        return matching, None
    groups = tuple(group.chosen(np.isin(step, numbers)) for group, step in zip(matching.groups, steps, strict=True))
    return replace(matching, groups=groups), len(numbers)


def match(ranks: Sequence[RankColumns]) -> Matching:
    """Match the collectives of ranks: by the group's own count where it is recorded, else by the sequence of messages.

    Without a count, what all ranks of a group have in common is the longest common run of (operation, elements, dtype),
    anchored at the end: windows are cut unevenly, and their ends agree best. Communication without metadata is matched
    only if no rank has any, by the kernels' names.
    """
    any_named = any(message.is_named for rank in ranks for message in rank.messages)
    by_group: dict[_Key, dict[int, Places]] = {}
    num_unnamed = 0
    for member, rank in enumerate(ranks):
        unnamed = np.array([not message.is_named for message in rank.messages], bool)
        num_unnamed += int(unnamed[rank.message].sum()) if unnamed.size else 0
        for key, places in _groups_of(rank, any_named=any_named).items():
            by_group.setdefault(key, {})[member] = places
    groups = []
    num_matchable = num_matched = 0
    for (group, _), of_member in sorted(by_group.items()):
        if len(of_member) > 1:
            matched = _match_group(group, ranks, of_member)
            groups.append(matched)
            num_matchable += sum(len(places) for places in of_member.values())
            num_matched += matched.where.size
    return Matching(tuple(groups), num_matched, num_matchable, num_unnamed, num_unnamed > 0 and not any_named)


def _groups_of(rank: RankColumns, *, any_named: bool) -> dict[_Key, Places]:
    """Give the places of each group's collectives in each window."""
    wanted = [message.is_named == any_named and message.operation not in POINT_TO_POINT for message in rank.messages]
    groups = [message.group or WORLD for message in rank.messages]
    windows_left = int(rank.window.max(initial=0)) - rank.window
    found: dict[_Key, list[int]] = {}
    for place, (message, window) in enumerate(zip(rank.message.tolist(), windows_left.tolist(), strict=True)):
        if wanted[message]:
            found.setdefault((groups[message], window), []).append(place)
    return {key: np.array(places, np.int64) for key, places in found.items()}


def _match_group(group: str, ranks: Sequence[RankColumns], places: Mapping[int, Places]) -> Matched:
    members = tuple(places)
    columns = [ranks[member] for member in members]
    code: dict[tuple[str, str, int, int], int] = {}
    signatures = []
    for member, rank in zip(members, columns, strict=True):
        codes = np.array([code.setdefault(message.signature, len(code)) for message in rank.messages], np.int64)
        signatures.append(codes[rank.message[places[member]]])
    counts = [rank.seq[places[member]] for member, rank in zip(members, columns, strict=True)]
    found = _by_count(counts, signatures)
    if found is None:
        found = _by_run(signatures)
    where = np.stack([places[member][mine] for member, mine in zip(members, found, strict=True)])
    return Matched(group, members, where, columns[0].message[where[0]].astype(np.int64), columns[0].messages)


def _by_count(counts: Sequence[Places], signatures: Sequence[Places]) -> list[Places] | None:
    """Match by sequence number; None when it is not recorded, does not rise by one, or pairs different messages.

    It may rise by more where an event was lost, or between the windows of a profile.
    """
    for count in counts:
        rises = np.diff(count)
        if (count == NONE).any() or (rises.size and rises.min() != 1):
            return None
    common = counts[0]
    for count in counts[1:]:
        common = np.intersect1d(common, count, assume_unique=True)
    found = [np.searchsorted(count, common) for count in counts]
    agree = all(
        np.array_equal(signature[mine], signatures[0][found[0]])
        for signature, mine in zip(signatures, found, strict=True)
    )
    return found if agree else None


def _by_run(signatures: Sequence[Places]) -> list[Places]:
    """Match by the run of messages that all have in common; each is aligned with the longest of them."""
    longest = max(signatures, key=len)
    low, high, shifts = 0, len(longest), []
    for signature in signatures:
        shift, start, end = _longest_run(longest, signature)
        shifts.append(shift)
        low, high = max(low, start), min(high, end)
    common = np.arange(low, max(low, high))
    return [common + shift for shift in shifts]


def _longest_run(one: Places, other: Places) -> tuple[int, int, int]:
    """Give the shift from `one` to `other` with the longest common run, and where in `one` that run begins and ends.

    Shifts are tried from the one that puts the ends together outwards, so that of equally long runs its own wins.
    """
    ends = len(other) - len(one)
    best = (ends, 0, 0)
    for distance in range(max(len(one), len(other))):
        for shift in (ends - distance, ends + distance):
            start, end = max(0, -shift), min(len(one), len(other) - shift)
            if end - start > best[2] - best[1]:
                run_start, run_end = _last_longest(one[start:end] == other[start + shift : end + shift])
                if run_end - run_start > best[2] - best[1]:
                    best = (shift, start + run_start, start + run_end)
        if best[2] - best[1] == min(len(one), len(other)):
            break
    return best


def _last_longest(equal: NDArray[np.bool_]) -> tuple[int, int]:
    """Give begin and end of the longest run of True, the last of several."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False]))))
    starts, ends = edges[::2], edges[1::2]
    if not starts.size:
        return 0, 0
    last = len(starts) - 1 - int(np.argmax((ends - starts)[::-1]))
    return int(starts[last]), int(ends[last])
