"""Causes: why a rank came late: its host, its device, more work, or copies; and how slow each rank's kernels are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from pytest_aorta.trace.charges import Charges
from pytest_aorta.trace.collectives import RankColumns
from pytest_aorta.trace.links import NONE
from pytest_aorta.trace.matching import Matched
from pytest_aorta.trace.waiting import Waits

Kind = Literal["host", "device", "compute", "copy", "unknown"]

EXPLAINED_RATIO = 0.8
SEEN_RATIO = 0.5

WHAT_TO_DO: Mapping[Kind, str] = {
    "host": "on its host look for a slow data loader, other processes, unpinned CPU cores and a low CPU clock; if the "
    "next run names another rank, the steps are too short for any host, and one is always the slower",
    "device": "compare clocks, temperature, power cap and ECC errors of its GPU with those of the others",
    "compute": "see whether it gets more work than the others: batch and sequence lengths, experts, pipeline stage",
    "copy": "compare its copies with the others': pinned memory, PCIe width and generation, NUMA node",
    "unknown": "no single cause explains it: put its trace beside another rank's, or profile more steps",
}
"""What a person should do about a straggler of each kind."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Collectives of a group in which one rank was the last each time: those after `before`, up to `until`."""

    group: int
    before: int
    until: int
    charged_ns: float


def kernel_medians(ranks: Sequence[RankColumns], min_ranks: int = 2) -> dict[int, float]:
    """Give the duration of each kernel and grid, in ns: the median over ranks of each rank's own median.

    Only of kernels that enough ranks ran beside no communication: beside a collective that spins the same kernels run
    slower, which would blame the ranks that wait.
    """
    found: dict[int, list[int]] = {}
    for rank in ranks:
        for key, median_ns in zip(rank.kernels.key.tolist(), rank.kernels.median_ns.tolist(), strict=True):
            if median_ns > 0:
                found.setdefault(key, []).append(median_ns)
    return {key: float(np.median(medians)) for key, medians in found.items() if len(medians) >= min_ranks}


def kernel_slowdown(rank: RankColumns, fleet_ns: dict[int, float]) -> float | None:
    """Give the median over kernel and grid of the rank's duration over the fleet's; None without a common kernel."""
    ratios = [median_ns / fleet_ns[key] for key, median_ns, _ in _measured(rank, fleet_ns)]
    return float(np.median(ratios)) if ratios else None


def kind_of_lateness(late: int, charges: Charges, waits: Sequence[Waits], ranks: Sequence[RankColumns]) -> Kind:
    """Name the one component that explains at least 80 % of what the rank is charged for arriving late itself.

    Each stretch of collectives in which it was the last is looked at as a whole, from the end of the collective before
    it (where all ranks of the group stood at the same point) to the start of the last one with a charge. A component
    explains what the rank spent more there than the median of the others, at most the stretch's charge. Nothing is seen
    before the first collective of a window: where that has most of the charge, no cause is named.
    """
    charged_ns = 0.0
    explained_ns: dict[Kind, float] = {"host": 0.0, "device": 0.0, "compute": 0.0, "copy": 0.0}
    others = [rank for member, rank in enumerate(ranks) if member != late]
    slow_ratio = _slow_ratio(ranks[late], kernel_medians(others, min_ranks=1))
    for stretch in _stretches(late, charges, waits):
        charged_ns += stretch.charged_ns
        for kind, extra_ns in _extras(late, waits[stretch.group].matched, ranks, stretch, slow_ratio):
            explained_ns[kind] += min(max(0.0, extra_ns), stretch.charged_ns)
    kind = max(explained_ns, key=lambda name: explained_ns[name])
    is_seen = charged_ns and charged_ns >= SEEN_RATIO * sum(charges.own.values())
    return kind if is_seen and explained_ns[kind] >= EXPLAINED_RATIO * charged_ns else "unknown"


def _stretches(late: int, charges: Charges, waits: Sequence[Waits]) -> Iterator[_Stretch]:
    """Give the stretches in which the rank was the last; the first collective of a window has none before it."""
    for number, group in enumerate(waits):
        if late not in group.matched.members:
            continue
        not_last = np.flatnonzero(group.last != group.matched.members.index(late)).tolist()
        for before, after in pairwise([-1, *not_last, group.num_collectives]):
            begin = max(before, 0)
            places = [place for place in range(begin + 1, after) if (number, place) in charges.own]
            if places:
                yield _Stretch(number, begin, places[-1], sum(charges.own[number, place] for place in places))


def _extras(
    late: int, matched: Matched, ranks: Sequence[RankColumns], stretch: _Stretch, slow_ratio: float
) -> Iterator[tuple[Kind, float]]:
    """Give what the late rank spent more than the median of the others in a stretch."""
    spent = {}
    for row, member in enumerate(matched.members):
        rank = ranks[member]
        begin, end = int(matched.where[row, stretch.before]), int(matched.where[row, stretch.until])
        spent[member] = (
            float(rank.host_wait_ns[0, end] - rank.host_wait_ns[1, begin]),
            float(rank.computation.between(rank.end_ns[begin], rank.start_ns[end])),
            float(rank.copy_ns[0, end] - rank.copy_ns[1, begin]),
        )
    own = spent.pop(late)
    host_ns, computation_ns, copy_ns = np.array(own) - np.median(list(spent.values()), axis=0)
    device_ns = min(max(0.0, float(computation_ns)), slow_ratio * own[1])
    yield "host", float(host_ns)
    yield "device", device_ns
    yield "compute", float(computation_ns) - device_ns
    yield "copy", float(copy_ns)


def _slow_ratio(rank: RankColumns, others_ns: dict[int, float]) -> float:
    """Give the share of a rank's computation that it would not have needed with the others' kernel durations."""
    if not rank.kernels.all_ns:
        return 0.0
    rows = _measured(rank, others_ns)
    spared_ns = sum(total_ns * max(0.0, 1 - others_ns[key] / median_ns) for key, median_ns, total_ns in rows)
    return spared_ns / rank.kernels.all_ns


def _measured(rank: RankColumns, fleet_ns: dict[int, float]) -> Iterator[tuple[int, int, float]]:
    kernels = rank.kernels
    rows = zip(kernels.key.tolist(), kernels.median_ns.tolist(), kernels.total_ns.tolist(), strict=True)
    return ((key, median_ns, total_ns) for key, median_ns, total_ns in rows if median_ns != NONE and key in fleet_ns)
