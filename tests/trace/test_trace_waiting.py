"""Transfer, waiting and bandwidth of collectives, the answers worked out in the test."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_aorta.trace.collectives import RankColumns
from pytest_aorta.trace.links import Message
from pytest_aorta.trace.matching import match
from pytest_aorta.trace.waiting import NOBODY, Bandwidth, Waits, bandwidths, bus_bytes, share_of, waits_of
from tests.trace.simulated import columns, message
from tests.trace.synthetic import COMMUNICATION, TraceEvent, document, kernel


def collective(
    start: float, end: float, *, members: Sequence[int] = (0, 1), name: str = "allreduce", size: int = 1 << 20
) -> TraceEvent:
    event = kernel(start, end - start, COMMUNICATION)
    event["args"] |= message(members, name=name, num_elements=size)
    return event


def rank_of(*events: TraceEvent, rank: int = 0) -> RankColumns:
    (found,) = columns([document([kernel(0, 1, "first"), *events], rank=rank)])
    return found


def waits(*ranks: RankColumns) -> tuple[Waits, ...]:
    return waits_of(match(ranks), ranks)


# rank 0    |compute-----|wwwwwwwwwwwwwwww|TTTTTTTT|     [10, 40): waits [10, 30), computes [15, 20) and [35, 40)
# rank 1    |compute---------------------|TTTTTTTT|      [30, 40) on its own clock
EARLY = rank_of(collective(10, 40), kernel(15, 5), kernel(35, 5), rank=0)
LATE = rank_of(kernel(1, 29), collective(30, 40), rank=1)


def test_the_shortest_kernel_is_the_transfer_and_the_rest_is_waiting() -> None:
    (group,) = waits(EARLY, LATE)
    assert group.transfer_ns.tolist() == [10_000]
    assert group.wait_ns.tolist() == [[20_000], [0]]
    assert group.exposed_ns.tolist() == [[15_000], [0]]
    assert group.last.tolist() == [1]


def test_what_hides_a_transfer_is_the_ranks_own_computation() -> None:
    found = waits(EARLY, LATE)
    early, late = (share_of(place, rank, found) for place, rank in enumerate((EARLY, LATE)))
    assert (early.transfer_ns, early.hidden_transfer_ns, early.exposed_wait_ns) == (10_000, 5_000, 15_000)
    assert (late.transfer_ns, late.hidden_transfer_ns, late.exposed_wait_ns) == (10_000, 0, 0)


def test_waiting_in_two_collectives_at_once_counts_once() -> None:
    early = rank_of(collective(10, 40), collective(12, 40, size=5))
    late = rank_of(collective(30, 40), collective(31, 40, size=5))
    found = waits(early, late)
    assert share_of(0, early, found).exposed_wait_ns == 21_000


def test_when_several_come_last_together_nobody_is_last() -> None:
    (group,) = waits(*(rank_of(collective(start, 40), rank=rank) for rank, start in enumerate((10, 30, 30))))
    assert group.last.tolist() == [NOBODY]


@pytest.mark.parametrize("name", ["broadcast", "_reduce_oop", "send", "gather", "barrier"])
def test_only_symmetric_collectives_make_ranks_wait(name: str) -> None:
    assert waits(rank_of(collective(10, 40, name=name)), rank_of(collective(30, 40, name=name))) == ()


@pytest.mark.parametrize(
    ("operation", "num_in", "num_out", "expected"),
    [
        ("all_reduce", 100, 100, 2 * 3 / 4 * 400),
        ("all_gather", 100, 400, 3 / 4 * 1600),
        ("reduce_scatter", 400, 100, 3 / 4 * 1600),
        ("all_to_all", 400, 400, 3 / 4 * 1600),
    ],
)
def test_bus_bytes_are_those_of_nccl_tests(operation: str, num_in: int, num_out: int, expected: float) -> None:
    assert bus_bytes(Message(operation, "g", 4, num_in, num_out, "Float")) == expected


def test_bus_bytes_of_an_unknown_type_are_not_known() -> None:
    assert bus_bytes(Message("all_reduce", "g", 4, 100, 100, "Posit")) is None
    assert bus_bytes(Message("all_reduce", "g", 4, 100, 100, "Float8_e4m3fn")) == 150


def test_bandwidth_is_that_of_transfers_beside_no_computation() -> None:
    # 1 Mi floats are 4 MiB; of two ranks each sends half of them twice: 4,194,304 bytes in 10 µs.
    alone = [collective(10, 20), collective(110, 120)]
    beside = kernel(112, 3)
    ranks = (rank_of(*alone, beside, rank=0), rank_of(*alone, rank=1))
    (found,) = bandwidths(waits(*ranks), ranks)
    assert replace(found, gbps=0.0) == Bandwidth("all_reduce", 4 << 20, "0 [0, 1]", 2, 1, 0.0)
    assert found.gbps == pytest.approx(419.4304)


def test_a_group_far_below_like_groups_is_slow() -> None:
    ranks = []
    for pair in range(4):
        transfer = 30 if pair == 2 else 10
        members = (2 * pair, 2 * pair + 1)
        ranks += [rank_of(collective(10, 10 + transfer, members=members), rank=rank) for rank in members]
    found = bandwidths(waits(*ranks), ranks)
    assert [row.group for row in found if row.is_slow] == ["0 [4, 5]"]
    assert not any(row.is_slow for row in bandwidths(waits(*ranks[2:]), ranks[2:]))
