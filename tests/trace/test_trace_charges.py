"""Who is charged for the waiting of others, with the amounts worked out in the test."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import comb, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.trace.charges import charge
from pytest_aorta.trace.collectives import RankColumns
from pytest_aorta.trace.matching import match, steps_of
from pytest_aorta.trace.significance import binomial_tail, mean_tail, stands_out, t_tail
from pytest_aorta.trace.waiting import Waits, waits_of
from tests.trace.simulated import Job, Planted, columns, message, simulate
from tests.trace.synthetic import COMMUNICATION, TraceEvent, document, kernel


def collective(start: float, end: float, *members: int) -> TraceEvent:
    event = kernel(start, end - start, COMMUNICATION)
    event["args"] |= message(members)
    return event


def rank_of(rank: int, *events: TraceEvent) -> RankColumns:
    (found,) = columns([document([kernel(0, 1), *events], rank=rank)])
    return found


def charged_ns(*ranks: RankColumns) -> list[float]:
    return [charges.total_ns for charges in charge(waits_of(match(ranks), ranks), len(ranks))]


def test_the_last_is_charged_the_median_exposed_wait_of_the_others() -> None:
    # The others wait 20, 10 and 5 µs, of which 4 µs of the 10 are spent computing: the median is 6.
    ranks = [
        rank_of(0, collective(10, 40, 0, 1, 2, 3)),
        rank_of(1, collective(20, 40, 0, 1, 2, 3), kernel(22, 4)),
        rank_of(2, collective(25, 40, 0, 1, 2, 3)),
        rank_of(3, collective(30, 40, 0, 1, 2, 3)),
    ]
    assert charged_ns(*ranks) == [0, 0, 0, 6_000]


def test_waiting_that_is_hidden_by_computation_costs_nothing() -> None:
    ranks = [rank_of(0, collective(10, 40, 0, 1), kernel(10, 20)), rank_of(1, collective(30, 40, 0, 1))]
    assert charged_ns(*ranks) == [0, 0]


# Rank 2 is late in the pair (1, 2); rank 1 waited for it and so comes late to the pair (0, 1).
#   rank 0            |wwwwwwwwwwwwwwwwwww|T|    0 and 1: [20, 62), transfer 2
#   rank 1   |wwwwwwwwwwwwwwwwwww|TT|      |T|   1 and 2: [10, 54), transfer 4; then [60, 62)
#   rank 2                       |TT|            1 and 2: [50, 54)
FIRST = rank_of(0, collective(20, 62, 0, 1))
MIDDLE = rank_of(1, collective(10, 54, 1, 2), kernel(54, 6), collective(60, 62, 0, 1))
LAST = rank_of(2, kernel(1, 49), collective(50, 54, 1, 2))


def test_a_rank_that_waited_elsewhere_passes_its_charge_on() -> None:
    assert charged_ns(FIRST, MIDDLE, LAST) == [0, 0, 40_000 + 40_000]


def test_no_more_is_passed_on_than_the_rank_waited() -> None:
    middle = rank_of(1, collective(40, 54, 1, 2), kernel(54, 6), collective(60, 62, 0, 1))
    assert charged_ns(FIRST, middle, LAST) == [0, 30_000, 10_000 + 10_000]


def test_waiting_before_the_last_collective_of_the_same_group_is_not_passed_on() -> None:
    first = rank_of(0, collective(55, 58, 0, 1), collective(60, 102, 0, 1))
    middle = rank_of(1, collective(10, 54, 1, 2), collective(55, 58, 0, 1), kernel(58, 42), collective(100, 102, 0, 1))
    assert charged_ns(first, middle, LAST) == [0, 40_000, 40_000]


def test_a_charge_is_passed_on_through_several_groups() -> None:
    third = rank_of(2, collective(5, 49, 2, 3), kernel(49, 1), collective(50, 54, 1, 2))
    fourth = rank_of(3, kernel(1, 44), collective(45, 49, 2, 3))
    assert charged_ns(FIRST, MIDDLE, third, fourth) == [0, 0, 0, 3 * 40_000]


def test_what_comes_from_further_is_divided_as_the_charges_on_its_way() -> None:
    # Each waits 40 µs for the next, but rank 3 only 10, so that 30 of the 40 for which rank 2 waits stay with it: three
    # quarters. So they do of the 20 that rank 0 waits.
    ranks = [
        rank_of(0, collective(40, 62, 0, 1)),
        rank_of(1, collective(10, 54, 1, 2), kernel(54, 6), collective(60, 62, 0, 1)),
        rank_of(2, collective(5, 49, 2, 3), kernel(49, 1), collective(50, 54, 1, 2)),
        rank_of(3, collective(33, 44, 3, 4), kernel(44, 1), collective(45, 49, 2, 3)),
        rank_of(4, kernel(1, 42), collective(43, 44, 3, 4)),
    ]
    kept = 30_000 + 30_000 + 15_000
    assert charged_ns(*ranks) == [0, 0, 0, kept, 4 * 10_000 - 5_000]


def grid(num_ways: int, num_rounds: int, seed: int = 0) -> list[RankColumns]:
    """Make pairs of ranks in several dimensions that meet in one after the other, with kernels of varying length."""
    places = list(product(range(2), repeat=num_ways))
    groups = tuple(
        tuple(tuple(rank for rank, at in enumerate(places) if without(at, way) == key) for key in sorted(keys))
        for way in range(num_ways)
        for keys in [{without(at, way) for at in places}]
    )
    job = Job(
        num_ranks=len(places),
        num_steps=2,
        segments=tuple(range(num_ways)) * num_rounds,
        groups=groups,
        num_kernels=1,
        jitter_ratio=0.3,
        seed=seed,
    )
    return columns(simulate(job))


def without(at: tuple[int, ...], way: int) -> tuple[int, ...]:
    return at[:way] + at[way + 1 :]


def test_many_groups_that_wait_for_each_other_are_no_more_work() -> None:
    ranks = grid(5, 20)  # followed one by one, each charge is divided in two 16 times
    waits = waits_of(match(ranks), ranks)
    medians = [
        float(np.median(np.delete(group.exposed_ns[:, place], last, axis=0)))
        for group in waits
        for place, last in enumerate(group.last)
    ]
    assert len(medians) == 80 * 40
    assert sum(charged_ns(*ranks)) == pytest.approx(sum(medians), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_charges_taken_together_are_those_followed_one_by_one(seed: int) -> None:
    ranks = grid(3, 3, seed)
    waits = waits_of(match(ranks), ranks)
    assert charged_ns(*ranks) == pytest.approx(followed_ns(waits, len(ranks)), rel=1e-9)


def followed_ns(waits: Sequence[Waits], num_ranks: int) -> list[float]:
    """Follow each charge through every way that it takes, as the definition has it."""
    found = [0.0] * num_ranks

    def late_at(group: Waits, place: int) -> tuple[int, list[tuple[Waits, int, float]], float]:
        late = group.matched.members[group.last[place]]
        row = group.matched.members.index(late)
        since = group.end_ns[row, place - 1] if place else -1
        others = [(other, other.matched.members.index(late)) for other in waits if late in other.matched.members]
        causes = [
            (other, at, float(other.exposed_ns[its, at]))
            for other, its in others
            if other is not group
            for at in range(other.num_collectives)
            if other.end_ns[its, at] > since and other.start_ns[its, at] < group.start_ns[row, place]
            if other.exposed_ns[its, at] > 0
        ]
        return late, causes, sum(waited for *_, waited in causes)

    def follow(group: Waits, place: int, amount: float, first: float) -> None:
        late, causes, waited = late_at(group, place)
        found[late] += amount * (1 - min(1, waited / first))
        own = float(np.median(np.delete(group.exposed_ns[:, place], group.last[place])))
        for cause, at, its in causes:
            follow(cause, at, amount * min(1, waited / first) * its / waited, min(own, waited) * its / waited)

    for group in waits:
        for place, last in enumerate(group.last):
            amount = float(np.median(np.delete(group.exposed_ns[:, place], last)))
            if amount > 0:
                follow(group, place, amount, amount)
    return found


def test_no_charge_is_lost_or_made() -> None:
    amounts = charged_ns(FIRST, MIDDLE, LAST)
    (pair, other) = waits_of(match([FIRST, MIDDLE, LAST]), [FIRST, MIDDLE, LAST])
    assert sum(amounts) == pair.exposed_ns.sum() + other.exposed_ns.sum()


def by_step_ns(ranks: list[RankColumns]) -> list[list[float]]:
    waits = waits_of(match(ranks), ranks)
    steps = [steps_of(group.matched, ranks) for group in waits]
    return [charges.by_step_ns.tolist() for charges in charge(waits, len(ranks), steps)]


def test_charges_are_told_step_by_step() -> None:
    late = Planted(1, "compute", 0.5)
    ranks = columns(simulate(Job(num_ranks=3, num_steps=4, segments=(0, 0), planted=(late,))))
    found = by_step_ns(ranks)
    assert [sum(row) for row in found] == pytest.approx(charged_ns(*ranks))
    assert found[1] == pytest.approx([1_000_000.0] * 4, rel=0.01)  # two segments of 4 kernels of 250 µs


@pytest.mark.parametrize("short", [0, 1])
def test_steps_that_a_window_misses_are_left_out(short: int) -> None:
    late = Planted(1, "compute", 0.5)
    job = Job(num_ranks=2, num_steps=5, segments=(0,) * 4, planted=(late,), counted=True, num_cut={short: 8})
    assert by_step_ns(columns(simulate(job)))[1] == pytest.approx([2_000_000.0] * 3, rel=0.01)


def test_without_steps_nothing_is_told_step_by_step() -> None:
    ranks = [rank_of(0, collective(10, 40, 0, 1)), rank_of(1, collective(30, 40, 0, 1))]
    assert by_step_ns(ranks) == [[], []]


def test_how_often_a_rank_was_last_and_should_have_been() -> None:
    _, middle, last = charge(waits_of(match([FIRST, MIDDLE, LAST]), [FIRST, MIDDLE, LAST]), 3)
    assert (middle.num_last, middle.num_collectives, middle.num_expected) == (1, 2, Fraction(1))
    assert (last.share_last, last.num_expected) == (1.0, Fraction(1, 2))
    assert last.chance_of_share == 0.5


@pytest.mark.parametrize(("num_hits", "expected"), [(0, 1.0), (1, 1 - 0.75**3), (3, 1 / 64), (4, 0.0)])
def test_binomial_tail(num_hits: int, expected: float) -> None:
    assert binomial_tail(num_hits, 3, Fraction(1, 4)) == pytest.approx(expected, rel=1e-15)


def test_binomial_tail_of_many_trials_is_exact() -> None:
    share = Fraction(1, 64)
    tail = sum(comb(3000, hits) * share**hits * (1 - share) ** (3000 - hits) for hits in range(80, 3001))
    assert binomial_tail(80, 3000, share) == float(tail)


@given(st.integers(1, 40), st.fractions(0, 1))
def test_a_binomial_tail_falls_from_one(num_trials: int, share: Fraction) -> None:
    tails = [binomial_tail(hits, num_trials, share) for hits in range(num_trials + 2)]
    assert tails[0] == 1.0
    assert tails[-1] == 0.0
    assert tails == sorted(tails, reverse=True)


# Quantiles of Student's t for p = 0.001 on one side, as tables have them.
@pytest.mark.parametrize(
    ("num_degrees", "value"),
    [(1, 318.309), (2, 22.327), (3, 10.215), (4, 7.173), (5, 5.893), (10, 4.144), (30, 3.385), (120, 3.1595)],
)
def test_t_tail(num_degrees: int, value: float) -> None:
    assert t_tail(value, num_degrees) == pytest.approx(0.001, rel=1e-3)
    assert t_tail(-value, num_degrees) == pytest.approx(0.999, rel=1e-5)
    assert t_tail(0, num_degrees) == 0.5
    assert t_tail(inf, num_degrees) == 0.0


def test_a_mean_is_held_against_what_its_values_vary() -> None:
    # Mean 2, deviation 1, of three values: t = 2 / (1 / sqrt 3) = 3.4641 with two degrees, whose tail is 0.0371.
    assert mean_tail([1.0, 2.0, 3.0], 0) == pytest.approx(0.0371, abs=1e-4)
    assert mean_tail([-1.0, -2.0, -3.0], 0) == 1.0
    assert mean_tail([2.0, 2.0], 0) == mean_tail([], 0) == mean_tail([0.0] * 3, 0) == 1.0


def test_rounded_values_agree_no_better_than_they_are_rounded() -> None:
    assert mean_tail([2.0, 2.0, 2.0], 1.0) == pytest.approx(0.0371, abs=1e-4)
    assert mean_tail([2000.0, 2000.0, 2000.0], 1.0) < 1e-6


def test_standing_out_is_more_than_three_scaled_deviations() -> None:
    others = [1.0, 2.0, 3.0, 4.0, 5.0]  # the median is 3, its absolute deviations' median 1
    assert not stands_out(3 + 3 * 1.4826, others, 3)
    assert stands_out(3 + 3 * 1.4826 + 1e-9, others, 3)
