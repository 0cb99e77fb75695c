"""Causes: why a rank came late: its host, its device, more work, or copies; and how slow each rank's kernels are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

import numpy as np

from pytest_aorta.trace.charges import Charges
from pytest_aorta.trace.collectives import KernelTimes, RankColumns
from pytest_aorta.trace.links import NONE
from pytest_aorta.trace.matching import Matched
from pytest_aorta.trace.waiting import Waits

Kind = Literal["host", "device", "compute", "copy", "unknown"]

EXPLAINED_RATIO = 0.8
SEEN_RATIO = 0.5
SHARED_RATIO = 0.8
MIN_TOLD_RATIO = 0.05

NAMES: Mapping[Kind, str] = {
    "host": "its host", "device": "a slower device", "compute": "more computation", "copy": "copies",
}  # fmt: skip
"""The components, as a sentence calls them."""

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
class Causes:
    """Why a rank was late: the share of what it is charged that each component explains, of the part that is seen."""

    seen_ratio: float
    explained: Mapping[Kind, float]

    @property
    def kind(self) -> Kind:
        """The one component that explains at least 80 %; unknown also where most of the charge is not seen."""
        kind = max(self.explained, key=lambda name: self.explained[name])
        return kind if self.seen_ratio >= SEEN_RATIO and self.explained[kind] >= EXPLAINED_RATIO else "unknown"


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Collectives of a group in which one rank was the last each time: those after `before`, up to `until`."""

    group: int
    before: int
    until: int
    charged_ns: float


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a rank spent in a stretch beyond the median of the others, at most its charge; and all that it computed."""

    charged_ns: float
    host_ns: float
    longer_ns: float
    copy_ns: float
    computation_ns: float


def explained_by(causes: Mapping[Kind, float]) -> str:
    """Say what explains how much of a lateness, the largest first, as a clause; empty where nothing explains any."""
    found = sorted(((ratio, NAMES[kind]) for kind, ratio in causes.items() if ratio >= MIN_TOLD_RATIO), reverse=True)
    shares = [f"{name} {'explains ' if place == 0 else ''}{ratio:.0%}" for place, (ratio, name) in enumerate(found)]
    return f"of its lateness {', '.join(shares)}" if shares else ""


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


def causes_of_lateness(
    late: int, charges: Charges, waits: Sequence[Waits], ranks: Sequence[RankColumns], num_steps: float
) -> Causes:
    """Give what explains that a rank arrived late itself.

    Each stretch of collectives in which it was the last is looked at as a whole, from the end of the collective before
    it (where all ranks of the group stood at the same point) to the start of the last one with a charge. A component
    explains what the rank spent more there than the median of the others, at most the stretch's charge. Nothing is seen
    before the first collective of a window.

    What it computed longer is first the work that it had more of: other kernels or more of them a step. Beyond that its
    device is slow so far as its kernels beside no communication are; those say too much by themselves, because a device
    that waited runs its next kernels at a higher clock. What is left is more work where most of it was seen as that.
    Where no other rank does the same (other batches, other stages), it is more work if the kernels in common are as
    fast.
    """
    own_ns = defaultdict[int, float](float)
    for (number, _), time_ns in charges.own.items():
        own_ns[number] += time_ns
    charged_ns = 0.0
    explained_ns = defaultdict[Kind, float](float)
    others_ns = kernel_medians(_without(late, range(len(ranks)), ranks), min_ranks=1)
    slow_ratio = _slow_ratio(ranks[late], others_ns)
    for number, stretches in groupby(_stretches(late, charges, waits), key=lambda stretch: stretch.group):
        matched = waits[number].matched
        spent = [_spent(late, matched, ranks, stretch) for stretch in stretches]
        seen_ns = sum(one.charged_ns for one in spent)
        charged_ns += seen_ns
        more_ns = more_work_ns(ranks[late], _without(late, matched.members, ranks))
        if more_ns is None:
            work_ns = seen_ns if _is_as_fast(ranks[late], others_ns) else 0.0
        else:
            work_ns = max(0.0, num_steps * more_ns) * seen_ns / own_ns[number] if seen_ns else 0.0
        for kind, time_ns in _explained_ns(spent, work_ns, slow_ratio).items():
            explained_ns[kind] += time_ns
    return Causes(
        seen_ratio=charged_ns / sum(own_ns.values()) if charged_ns else 0.0,
        explained={kind: explained_ns[kind] / charged_ns if charged_ns else 0.0 for kind in NAMES},
    )


def _explained_ns(spent: Sequence[_Spent], work_ns: float, slow_ratio: float) -> dict[Kind, float]:
    longer_ns = sum(one.longer_ns for one in spent)
    slower_ns = slow_ratio * sum(one.computation_ns for one in spent)
    device_ns = min(slower_ns, max(0.0, longer_ns - work_ns))
    rest_ns = longer_ns - device_ns
    return {
        "host": sum(one.host_ns for one in spent),
        "device": device_ns,
        "compute": rest_ns if work_ns >= SEEN_RATIO * rest_ns else work_ns,
        "copy": sum(one.copy_ns for one in spent),
    }


def more_work_ns(rank: RankColumns, others: Sequence[RankColumns]) -> float | None:
    """Give the time a step of the kernels that a rank ran and others did not, or not so often: the median of them.

    Negative where they ran more. Each kernel counts with its mean time on the rank that ran more of it. Only others are
    looked at of which the rank did nearly all the work, too, and as often: stages of a pipeline do not compare. None
    where there are none.
    """
    found = [_Compared.of(rank.kernels, other.kernels) for other in others]
    alike = [one.more_ns for one in found if one.shared_ratio >= SHARED_RATIO]
    return float(np.median(alike)) if alike else None


@dataclass(frozen=True, slots=True)
class _Compared:
    """Two ranks' kernels: what one ran more, in ns a step, and the share of the other's time that it ran as often."""

    more_ns: float
    shared_ratio: float

    @classmethod
    def of(cls, one: KernelTimes, other: KernelTimes) -> _Compared:
        if not one.num_steps or not other.num_steps or not other.all_ns:
            return cls(0.0, 0.0)
        key = np.union1d(one.key, other.key)
        counts, means_ns = np.zeros((2, len(key))), np.zeros((2, len(key)))
        for row, table in enumerate((one, other)):
            place = np.searchsorted(key, table.key)
            counts[row, place] = table.count / table.num_steps
            means_ns[row, place] = table.total_ns / table.count
        more = counts[0] - counts[1]
        return cls(
            more_ns=float((more * np.where(more > 0, means_ns[0], means_ns[1])).sum()),
            shared_ratio=float((counts.min(axis=0) * means_ns[1]).sum()) * other.num_steps / other.all_ns,
        )


def _without(late: int, members: Iterable[int], ranks: Sequence[RankColumns]) -> list[RankColumns]:
    return [ranks[member] for member in members if member != late]


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


def _spent(late: int, matched: Matched, ranks: Sequence[RankColumns], stretch: _Stretch) -> _Spent:
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
    more_ns = np.array(own) - np.median(list(spent.values()), axis=0)
    host_ns, longer_ns, copy_ns = np.clip(more_ns, 0.0, stretch.charged_ns).tolist()
    return _Spent(stretch.charged_ns, host_ns, longer_ns, copy_ns, computation_ns=own[1])


def _slow_ratio(rank: RankColumns, others_ns: dict[int, float]) -> float:
    """Give the share of a rank's computation that it would not have needed with the others' kernel durations."""
    if not rank.kernels.all_ns:
        return 0.0
    rows = _measured(rank, others_ns)
    spared_ns = sum(total_ns * max(0.0, 1 - others_ns[key] / median_ns) for key, median_ns, total_ns in rows)
    return spared_ns / rank.kernels.all_ns


def _is_as_fast(rank: RankColumns, others_ns: dict[int, float]) -> bool:
    """Tell whether the kernels that others ran, too, show that the device is no slower; not where they are a part only.

    The rest may be of another kind: a low clock slows products, and not what waits for memory.
    """
    measured_ns = sum(total_ns for _, _, total_ns in _measured(rank, others_ns))
    spared_ns = _slow_ratio(rank, others_ns) * rank.kernels.all_ns
    return measured_ns >= SEEN_RATIO * rank.kernels.all_ns > 0 and spared_ns <= MIN_TOLD_RATIO * measured_ns


def _measured(rank: RankColumns, fleet_ns: dict[int, float]) -> Iterator[tuple[int, int, float]]:
    kernels = rank.kernels
    rows = zip(kernels.key.tolist(), kernels.median_ns.tolist(), kernels.total_ns.tolist(), strict=True)
    return ((key, median_ns, total_ns) for key, median_ns, total_ns in rows if median_ns != NONE and key in fleet_ns)
