"""Lateness: whether the ranks of a run waited for one of them, for which, how long and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from pytest_aorta.trace.causes import Kind, causes_of_lateness, explained_by, kernel_medians, kernel_slowdown
from pytest_aorta.trace.charges import Charges, charge
from pytest_aorta.trace.collectives import RankColumns
from pytest_aorta.trace.matching import Matching, match, steps_of, within_steps
from pytest_aorta.trace.significance import mean_tail, stands_out
from pytest_aorta.trace.waiting import Bandwidth, Share, Waits, bandwidths, share_of, waits_of

MIN_MATCHED_RATIO = 0.9
MIN_DELAY_RATIO = 0.02
MAX_CHANCE = 0.001
RESOLUTION_MS = 0.001
MIN_RANKS_FOR_SPREAD = 8
MIN_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """The rank that the others waited for most. `kind` says why it was late, as far as one cause explains it.

    `causes`: what explains how much of its lateness, of the part that the traces show.
    `steady_ms`: what it was charged in each step, where only that shows it to be late and not how often it was last.
    """

    rank: int | None
    kind: Kind
    caused_delay_ms_per_step: float
    share_last: float
    steady_ms: tuple[float, ...] = ()
    causes: Mapping[Kind, float] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """What speaks against it, as a clause; of what one cause does not explain also what its causes are."""
        told = explained_by(self.causes) if self.kind == "unknown" else ""
        return f"{self._waited_for}; {told}" if told else self._waited_for

    @property
    def _waited_for(self) -> str:
        waiting = f"the others wait {self.caused_delay_ms_per_step:.2f} ms a profiled step for it"
        if not self.steady_ms:
            return f"{waiting}, and it is the last in {self.share_last:.1%} of its collectives"
        return (
            f"{waiting}, about the same in each of {len(self.steady_ms)} steps ({min(self.steady_ms):.2f} to "
            f"{max(self.steady_ms):.2f} ms); it is late before a few collectives of a step, so that the share in "
            f"which it is the last ({self.share_last:.1%}) does not show it"
        )


@dataclass(frozen=True, slots=True)
class RankLateness:
    """One rank beside the others; None where not measured.

    `imbalance_ratio`: its step without its own exposed wait, over the median of all ranks, - 1.
    `caused_delay_ms_by_step`: of the profiled steps that all ranks have.
    """

    rank: int | None
    device: int | None
    caused_delay_ms_per_step: float | None = None
    share_last: float | None = None
    exposed_wait_ms: float | None = None
    exposed_transfer_ms: float | None = None
    hidden_transfer_ratio: float | None = None
    imbalance_ratio: float | None = None
    kernel_slowdown_ratio: float | None = None
    caused_delay_ms_by_step: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Lateness:
    """What the ranks of a run say together. `why`: why nobody is named, or why nothing could be said.

    `num_matched`, `num_matchable`, `num_unnamed`, `by_name_only`: of the collectives of all ranks, see Matching.
    """

    matched_ratio: float | None = None
    straggler: Candidate | None = None
    largest_candidate: Candidate | None = None
    rank_imbalance_ratio: float | None = None
    ranks: tuple[RankLateness, ...] = ()
    bandwidths: tuple[Bandwidth, ...] = ()
    num_steps: float = 0.0
    num_matched: int = 0
    num_matchable: int = 0
    num_unnamed: int = 0
    by_name_only: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a judgement of the waits gives, by place of the rank among the columns."""

    charges: tuple[Charges, ...] = ()
    by_step_ms: tuple[tuple[float, ...], ...] = ()
    shares: tuple[Share, ...] = ()
    imbalances: tuple[float | None, ...] = ()
    candidate: Candidate | None = None
    why: str = field(default="")


def analyze(columns: Sequence[RankColumns]) -> Lateness:
    """Judge the columns of all ranks of a run, given in any order."""
    ranks = sorted(columns, key=lambda rank: (-1 if rank.rank is None else rank.rank, rank.device or 0))
    matching = match(ranks)
    fleet_ns = kernel_medians(ranks)
    in_steps, known_steps = within_steps(matching, ranks)
    num_steps = known_steps or (median(rank.num_steps for rank in ranks) if ranks else 0.0)
    waits = waits_of(in_steps, ranks)
    why = _why_nothing(ranks, matching, waits, num_steps)
    judged = _Judged(why=why) if why else _judge(ranks, waits, num_steps)
    return Lateness(
        matched_ratio=matching.matched_ratio,
        straggler=None if judged.why else judged.candidate,
        largest_candidate=judged.candidate,
        rank_imbalance_ratio=max((ratio for ratio in judged.imbalances if ratio is not None), default=None),
        ranks=tuple(
            _rank_row(place, rank, judged, num_steps, kernel_slowdown(rank, fleet_ns))
            for place, rank in enumerate(ranks)
        ),
        bandwidths=() if why else bandwidths(waits, ranks),
        num_steps=num_steps,
        num_matched=matching.num_matched,
        num_matchable=matching.num_matchable,
        num_unnamed=matching.num_unnamed,
        by_name_only=matching.by_name_only,
        why=judged.why,
    )


def _why_nothing(ranks: Sequence[RankColumns], matching: Matching, waits: Sequence[Waits], num_steps: float) -> str:
    """Say why nothing can be said about lateness, empty when something can."""
    if len(ranks) < 2:
        return "lateness needs the traces of two ranks or more"
    ratio = matching.matched_ratio
    if ratio is None:
        return "no process group with two observed ranks has a collective"
    if ratio < MIN_MATCHED_RATIO:
        return f"only {ratio:.0%} of the collectives could be matched between ranks, expected 90% or more"
    if not waits:
        return (
            "no trace says which operation its communication is, so it was matched by the names of kernels only"
            if matching.by_name_only
            else "no all-reduce, all-gather, reduce-scatter or all-to-all was matched between ranks"
        )
    if not num_steps or not any(rank.step_times_ms for rank in ranks):
        return "the traces hold no profiler steps, so nothing can be given per step"
    return ""


def _judge(ranks: Sequence[RankColumns], waits: Sequence[Waits], num_steps: float) -> _Judged:
    charges = charge(waits, len(ranks), [steps_of(group.matched, ranks) for group in waits])
    by_step_ms = np.stack([charged.by_step_ns for charged in charges]) / 1_000_000
    shares = tuple(share_of(place, rank, waits) for place, rank in enumerate(ranks))
    late = max(range(len(ranks)), key=lambda place: charges[place].total_ns)
    mine = charges[late]
    delays_ms = [_ms(charged.total_ns) / num_steps for charged in charges]
    chance_of_steps = _chance_of_steps(late, by_step_ms)
    candidate = None
    if mine.total_ns > 0:
        causes = causes_of_lateness(late, mine, waits, ranks, num_steps)
        is_steady_only = chance_of_steps < MAX_CHANCE <= mine.chance_of_share
        steady_ms = tuple(by_step_ms[late].tolist()) if is_steady_only else ()
        candidate = Candidate(
            rank=ranks[late].rank,
            kind=causes.kind,
            caused_delay_ms_per_step=delays_ms[late],
            share_last=mine.share_last,
            steady_ms=steady_ms,
            causes=causes.explained,
        )
    median_step_ms = median(step_ms for rank in ranks for step_ms in rank.step_times_ms)
    return _Judged(
        charges=charges,
        by_step_ms=tuple(tuple(row) for row in by_step_ms.tolist()),
        shares=shares,
        imbalances=_imbalances(ranks, shares, num_steps),
        candidate=candidate,
        why=_why_nobody(late, charges, delays_ms, median_step_ms, chance_of_steps),
    )


def _chance_of_steps(late: int, by_step_ms: NDArray[np.float64]) -> float:
    """Give the chance that the rank is charged more than any other in the mean over the steps (Student's t).

    It is taken for each rank, because the one looked at is the worst of them. Times of traces may be whole µs.
    This finds a rank that is late once a step, by the same each time, among many collectives that nobody waits for.
    """
    more_ms = by_step_ms[late] - np.delete(by_step_ms, late, axis=0).max(axis=0)
    return min(1.0, len(by_step_ms) * mean_tail(more_ms.tolist(), RESOLUTION_MS))


def _why_nobody(
    late: int, charges: Sequence[Charges], delays_ms: Sequence[float], median_step_ms: float, chance_of_steps: float
) -> str:
    """Say which of the three conditions the largest candidate does not meet, empty when it is the straggler."""
    delay_ms, mine = delays_ms[late], charges[late]
    if delay_ms < MIN_DELAY_RATIO * median_step_ms or not delay_ms:
        return (
            f"the most that a rank caused is {delay_ms:.2f} ms a step, under {MIN_DELAY_RATIO:.0%} of the median step "
            f"({median_step_ms:.2f} ms)"
        )
    chance = mine.chance_of_share
    if min(chance, chance_of_steps) >= MAX_CHANCE:
        return (
            f"the largest candidate was last in {mine.num_last} of {mine.num_collectives} collectives, which chance "
            f"alone gives with p = {chance:.2g}, and comparing its delay step by step gives p = {chance_of_steps:.2g}: "
            f"neither is under {MAX_CHANCE}"
        )
    others_ms = [other_ms for place, other_ms in enumerate(delays_ms) if place != late]
    if len(delays_ms) >= MIN_RANKS_FOR_SPREAD and not stands_out(delay_ms, others_ms, MIN_DEVIATIONS):
        return f"the largest candidate is not more than {MIN_DEVIATIONS:g} scaled MADs above the other ranks"
    return ""


def _imbalances(ranks: Sequence[RankColumns], shares: Sequence[Share], num_steps: float) -> tuple[float | None, ...]:
    """Give for each rank its mean step without its own exposed wait, over the median of all, - 1."""
    own_ms = [
        fmean(rank.step_times_ms) - _ms(share.exposed_wait_ns) / num_steps if rank.step_times_ms else None
        for rank, share in zip(ranks, shares, strict=True)
    ]
    middle_ms = median(time_ms for time_ms in own_ms if time_ms is not None)
    return tuple(time_ms / middle_ms - 1 if time_ms is not None and middle_ms > 0 else None for time_ms in own_ms)


def _rank_row(
    place: int, rank: RankColumns, judged: _Judged, num_steps: float, slowdown_ratio: float | None
) -> RankLateness:
    if not judged.charges:
        return RankLateness(rank.rank, rank.device, kernel_slowdown_ratio=slowdown_ratio)
    charged, share = judged.charges[place], judged.shares[place]
    return RankLateness(
        rank=rank.rank,
        device=rank.device,
        caused_delay_ms_per_step=_ms(charged.total_ns) / num_steps,
        share_last=charged.share_last,
        exposed_wait_ms=_ms(share.exposed_wait_ns) / num_steps,
        exposed_transfer_ms=_ms(share.transfer_ns - share.hidden_transfer_ns) / num_steps,
        hidden_transfer_ratio=share.hidden_transfer_ns / share.transfer_ns if share.transfer_ns else None,
        imbalance_ratio=judged.imbalances[place],
        kernel_slowdown_ratio=slowdown_ratio,
        caused_delay_ms_by_step=judged.by_step_ms[place],
    )


def _ms(time_ns: float) -> float:
    return time_ns / 1_000_000
