"""Which collective of one rank is which of another."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.trace.collectives import RankColumns, joined
from pytest_aorta.trace.matching import Matching, match
from tests.trace.simulated import columns, message
from tests.trace.synthetic import COMMUNICATION, TraceEvent, document, kernel


def collective(
    start: float, size: int, *, seq: int | None = None, name: str = "allreduce", members: Sequence[int] = (0, 1)
) -> TraceEvent:
    event = kernel(start, 5, COMMUNICATION)
    event["args"] |= message(members, seq, name=name, num_elements=size)
    return event


def rank_of(*events: TraceEvent, rank: int = 0) -> RankColumns:
    (found,) = columns([document([kernel(0, 1), *events], rank=rank, world_size=2)])
    return found


def rank_with(sizes: Sequence[int], seqs: Sequence[int] | None = None) -> RankColumns:
    counts = [None] * len(sizes) if seqs is None else seqs
    return rank_of(*(collective(10 + 10 * at, size, seq=counts[at]) for at, size in enumerate(sizes)))


def pairs(found: Matching) -> list[list[int]]:
    (group,) = found.groups
    return [list(row) for row in group.where.tolist()]


def test_sequence_numbers_match_whatever_the_windows_hold() -> None:
    ranks = [rank_with([1, 1, 1, 1], [4, 5, 6, 7]), rank_with([1, 1, 1, 1], [6, 7, 8, 9])]
    found = match(ranks)
    assert pairs(found) == [[2, 3], [0, 1]]
    assert (found.num_matched, found.num_matchable, found.matched_ratio) == (4, 8, 0.5)


def test_a_lost_event_does_not_spoil_sequence_numbers() -> None:
    found = match([rank_with([1, 2, 3, 4], [4, 5, 6, 7]), rank_with([1, 3, 4], [4, 6, 7])])
    assert pairs(found) == [[0, 2, 3], [0, 1, 2]]


@pytest.mark.parametrize(
    "seqs",
    [
        pytest.param(([1, 1, 1], [1, 1, 1]), id="does not rise"),
        pytest.param(([2, 4, 6], [1, 2, 3]), id="rises by two"),
        pytest.param(([1, 2, 3], [2, 3, 4]), id="pairs different messages"),
    ],
)
def test_sequence_numbers_that_cannot_be_meant_are_passed_over(seqs: tuple[list[int], list[int]]) -> None:
    assert pairs(match([rank_with([7, 8, 9], seqs[0]), rank_with([7, 8, 9], seqs[1])])) == [[0, 1, 2], [0, 1, 2]]


def test_without_numbers_windows_are_matched_from_their_ends() -> None:
    # Pairing from the front would mismatch all but one.
    assert pairs(match([rank_with([1, 2, 1, 2, 3]), rank_with([2, 1, 2, 3])])) == [[1, 2, 3, 4], [0, 1, 2, 3]]


def test_of_equal_messages_the_last_belong_together() -> None:
    assert pairs(match([rank_with([1] * 5), rank_with([1] * 3)])) == [[2, 3, 4], [0, 1, 2]]


def test_a_tail_that_one_window_misses_is_found() -> None:
    assert pairs(match([rank_with([1, 2, 3, 4, 5]), rank_with([3, 4, 5, 6])])) == [[2, 3, 4], [0, 1, 2]]


def test_what_all_ranks_have_in_common_is_matched() -> None:
    found = match([rank_with([1, 2, 3, 4]), rank_with([2, 3, 4, 5]), rank_with([3, 4])])
    assert pairs(found) == [[2, 3], [1, 2], [0, 1]]
    assert found.num_matchable == 10


@given(st.lists(st.integers(0, 9), min_size=4, max_size=20), st.integers(0, 2), st.integers(0, 2))
def test_cut_heads_leave_the_right_pairs(sizes: list[int], head: int, other_head: int) -> None:
    (one, other) = pairs(match([rank_with(sizes[head:]), rank_with(sizes[other_head:])]))
    assert [place + head for place in one] == [place + other_head for place in other]
    assert len(one) == len(sizes) - max(head, other_head)


def test_groups_are_matched_each_for_itself() -> None:
    tensor = [collective(10 * at, 1, members=(0, 1)) for at in range(1, 4)]
    data = [collective(100 + 10 * at, 1, members=(0, 2)) for at in range(1, 3)]
    elsewhere = [collective(200, 1, members=(3, 4))]
    found = match([rank_of(*tensor, *data), rank_of(*tensor[1:], *elsewhere), rank_of(*data)])
    assert [(group.group, group.members, group.where.shape) for group in found.groups] == [
        ("0 [0, 1]", (0, 1), (2, 2)),
        ("0 [0, 2]", (0, 2), (2, 2)),
    ]
    assert (found.num_matched, found.num_matchable) == (8, 9)


def test_send_and_receive_count_nowhere() -> None:
    ranks = [rank_of(collective(10, 1, name=name), collective(20, 1)) for name in ("send", "recv")]
    found = match(ranks)
    assert (found.num_matched, found.num_matchable) == (2, 2)
    assert pairs(found) == [[1], [1]]


def test_uneven_all_to_all_is_matched_although_sizes_differ() -> None:
    ranks = [rank_of(collective(10, size, name="all_to_all"), collective(20, 1)) for size in (3, 4)]
    assert pairs(match(ranks)) == [[0, 1], [0, 1]]


def test_communication_without_metadata_is_left_out_when_other_has_it() -> None:
    unnamed = kernel(5, 2, COMMUNICATION)
    found = match([rank_of(unnamed, collective(10, 1)), rank_of(collective(10, 1))])
    assert pairs(found) == [[1], [0]]
    assert (found.num_unnamed, found.matched_ratio, found.by_name_only) == (1, 1.0, False)


def test_communication_without_metadata_is_matched_when_no_rank_has_any() -> None:
    names = ["ncclA", "ncclB", "ncclA", "ncclC"]
    ranks = [
        rank_of(*(kernel(10 * at, 5, name) for at, name in enumerate(kept, start=1))) for kept in (names, names[1:])
    ]
    found = match(ranks)
    assert pairs(found) == [[1, 2, 3], [0, 1, 2]]
    assert (found.num_unnamed, found.num_matched, found.num_matchable) == (7, 6, 7)
    assert found.by_name_only


def test_each_window_of_a_profile_is_matched_from_its_own_end() -> None:
    whole, cut = rank_with([1, 2, 3]), rank_with([2, 3])
    found = match([joined(whole, cut, 10**9), joined(cut, whole, 10**9)])
    assert sorted([group.where.tolist() for group in found.groups]) == [[[1, 2], [0, 1]], [[3, 4], [3, 4]]]
    assert found.matched_ratio == 0.8


def test_nothing_to_match() -> None:
    assert match([]).matched_ratio is None
    assert match([rank_of()]).matched_ratio is None
    assert match([rank_with([1, 2])]).matched_ratio is None
