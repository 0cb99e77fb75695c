"""The columns of one rank on traces made by hand, and how they travel."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.collectives import RankColumns, joined, latest
from pytest_aorta.trace.intervals import cover
from pytest_aorta.trace.packing import MAX_PACKED_BYTES, fitted, packed, unpacked
from pytest_aorta.trace.reading import read
from pytest_aorta.trace.summary import summaries_of
from tests.trace import synthetic
from tests.trace.simulated import Job, columns, message, simulate
from tests.trace.synthetic import COMMUNICATION, TraceEvent, copy, document, kernel, launch, operator, step

PEER = "Memcpy PtoP (Device -> Device)"


def columns_of_events(*events: TraceEvent) -> RankColumns:
    (found,) = columns([document(events, rank=0, world_size=2)])
    return found


def told(event: TraceEvent, **args: Any) -> TraceEvent:
    event["args"] |= {name.replace("_", " "): value for name, value in args.items()}
    return event


def named(event: TraceEvent, seq: int | None = None, name: str = "allreduce") -> TraceEvent:
    event["args"] |= message((0, 1), seq, name=name)
    return event


def operations(found: RankColumns) -> list[str]:
    return [found.messages[place].operation for place in found.message]


def test_a_kernel_that_carries_metadata_is_a_collective() -> None:
    found = columns_of_events(
        kernel(100, 10), named(kernel(110, 20, COMMUNICATION), seq=7, name="_reduce_scatter_base")
    )
    assert operations(found) == ["reduce_scatter"]
    assert (found.start_ns.tolist(), found.end_ns.tolist(), found.seq.tolist()) == ([10_000], [30_000], [7])
    (moved,) = found.messages
    assert (moved.group, moved.num_ranks, moved.dtype, moved.num_elements_in) == ("0 [0, 1]", 2, "Float", 1 << 20)


def test_the_operator_that_launched_says_what_a_generic_kernel_does() -> None:
    by_own_id = told(kernel(10, 5, "ncclDevKernel_Generic"), External_id=41)
    by_launch = kernel(30, 5, "ncclDevKernel_Generic", correlation=9)
    call = told(launch(20, 2, 9), External_id=42)
    ops = [named(operator(0, 1, "record_param_comms"), seq=number) for number in (3, 4)]
    ops[0]["args"]["External id"], ops[1]["args"]["External id"] = 41, 42
    found = columns_of_events(by_own_id, by_launch, call, *ops)
    assert operations(found) == ["all_reduce", "all_reduce"]
    assert found.seq.tolist() == [3, 4]


def test_a_kernel_of_any_name_is_communication_when_a_collective_launched_it() -> None:
    op = operator(0, 1, "record_param_comms")
    op["args"]["External id"] = 5
    found = columns_of_events(kernel(0, 5), told(kernel(5, 5, "multimem_all_reduce"), External_id=5), op)
    assert operations(found) == ["multimem_all_reduce"]
    assert not found.messages[0].is_named
    assert found.computation.until(np.array([10_000])).tolist() == [5_000]


def test_peer_copies_of_one_operator_are_one_collective_and_other_copies_are_not() -> None:
    op = named(operator(0, 1, "record_param_comms"), name="_allgather_base")
    op["args"]["External id"] = 5
    copies = [told(copy(start, 4, PEER), External_id=5) for start in (10, 20, 30)]
    inside = told(copy(40, 4, "Memcpy DtoD (Device -> Device)"), External_id=5)
    found = columns_of_events(kernel(0, 5), *copies, inside, copy(50, 5, PEER), op)
    assert operations(found) == ["all_gather"]
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([10_000], [34_000])


def test_what_the_rank_did_of_its_own_before_and_inside() -> None:
    # compute [0, 10), waits for its host until 30, copy [30, 40), computes [45, 50) and [60, 65) inside of [40, 70).
    found = columns_of_events(
        kernel(0, 10, correlation=1),
        launch(0, 0, 1),
        told(copy(30, 10), correlation=2),
        launch(12, 18, 2),
        kernel(40, 30, COMMUNICATION, correlation=3),
        launch(31, 2, 3),
        kernel(45, 5),
        kernel(60, 5),
    )
    assert found.host_wait_ns.tolist() == [[20_000], [20_000]]
    assert found.copy_ns.tolist() == [[10_000], [10_000]]
    inside = found.computation.between(np.array([40_000, 40_000, 47_000]), np.array([47_000, 70_000, 62_000]))
    assert inside.tolist() == [2_000, 10_000, 5_000]
    assert found.computation.until(found.start_ns).tolist() == [10_000]


def test_kernels_beside_communication_do_not_count_in_medians() -> None:
    found = columns_of_events(
        kernel(0, 10),
        kernel(20, 12),
        kernel(40, 30),
        kernel(45, 30, COMMUNICATION),
        told(kernel(80, 7), grid=[2, 1, 1]),
    )
    table = sorted(zip(found.kernels.median_ns.tolist(), found.kernels.count.tolist(), strict=True))
    assert table == [(7_000, 1), (11_000, 3)]
    assert found.kernels.all_ns == 59_000


def test_the_key_of_a_kernel_is_the_same_in_another_trace() -> None:
    one = columns_of_events(kernel(0, 10, "a"), kernel(10, 10, "b"))
    other = columns_of_events(kernel(0, 10, "b"), kernel(10, 10, "c"))
    assert len(np.intersect1d(one.kernels.key, other.kernels.key)) == 1


def test_a_plain_summary_has_no_columns(tmp_path: Path) -> None:
    path = synthetic.write(tmp_path / "t.json", document([kernel(0, 10), kernel(10, 5, COMMUNICATION)], rank=0))
    assert [summary.columns for summary in summaries_of(read(path), file="t.json", rank=0)] == [None]
    (linked,) = summaries_of(read(path, with_links=True), file="t.json", rank=0)
    assert linked.columns is not None
    assert linked.columns.num_collectives == 1


ODD = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(10**30), 10**30)),
    *(st.text(max_size=5), st.lists(st.integers(), max_size=2)),
)
KEYS = st.sampled_from([*message((0, 1), 3), "External id", "grid"])


@settings(deadline=None)
@given(st.dictionaries(KEYS, ODD))
def test_odd_metadata_ends_in_columns(args: dict[str, Any]) -> None:
    event = kernel(0, 10, COMMUNICATION)
    event["args"] |= args
    op = operator(0, 1, "record_param_comms")
    op["args"] |= args
    assert columns_of_events(event, op).num_collectives == 1


def test_damaged_json_keeps_its_links(tmp_path: Path) -> None:
    events = [kernel(0, 1), named(kernel(10, 20, COMMUNICATION), seq=7)]
    text = json.dumps(document(events, rank=0)).replace('"gemm"', '"ge"mm"')
    path = tmp_path / "t.json"
    path.write_text(text)
    (found,) = summaries_of(read(path, with_links=True), file="t.json", rank=0)
    assert found.events_lost == 1
    assert found.columns is not None
    assert found.columns.seq.tolist() == [7]


def test_timestamps_that_a_float_would_round_keep_their_links(tmp_path: Path) -> None:
    text = json.dumps(document([named(kernel(1, 20, COMMUNICATION), seq=7), kernel(50, 1)], rank=0))
    path = tmp_path / "t.json"
    path.write_text(
        text.replace('"ts": 1,', '"ts": 1712195495506161.337,').replace('"ts": 50,', '"ts": 1712195495506199,')
    )
    trace = read(path, with_links=True)
    assert trace.events.start_ns[0] == 1_712_195_495_506_161_337
    (found,) = summaries_of(trace, file="t.json", rank=0)
    assert found.columns is not None
    assert found.columns.seq.tolist() == [7]


def same(one: RankColumns, other: RankColumns) -> bool:
    scalars = ("rank", "device", "world_size", "num_steps", "step_times_ms", "messages", "num_dropped", "version")
    arrays = ("message", "seq", "step", "window", "start_ns", "end_ns", "host_wait_ns", "copy_ns")
    return (
        all(getattr(one, name) == getattr(other, name) for name in scalars)
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
        and np.array_equal(one.computation.at_ns, other.computation.at_ns)
        and np.array_equal(one.computation.covered_ns, other.computation.covered_ns)
        and np.array_equal(one.kernels.key, other.kernels.key)
        and np.array_equal(one.kernels.median_ns, other.kernels.median_ns)
        and (one.kernels.all_ns, one.kernels.num_steps) == (other.kernels.all_ns, other.kernels.num_steps)
    )


def test_columns_travel_as_bytes() -> None:
    (found, _) = columns(simulate(Job(num_ranks=2, jitter_ratio=0.05, counted=True)))
    assert same(found, unpacked(packed(found)))
    assert same(found, fitted(found))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"[]"])
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(TraceError, match=r"cannot be read"):
        unpacked(content)


def test_columns_of_another_version_are_refused() -> None:
    found = replace(columns_of_events(kernel(0, 1)), version=99)
    with pytest.raises(TraceError, match=r"version 99, expected 3"):
        unpacked(packed(found))


def large(num_collectives: int) -> RankColumns:
    """Columns with random times: nothing in them can be compressed well."""
    chance = np.random.default_rng(1)
    gaps_ns = chance.integers(1_000, 1_000_000, 4 * num_collectives)
    edges_ns = np.cumsum(gaps_ns)
    small = columns_of_events(kernel(0, 1), named(kernel(1, 1, COMMUNICATION)), step(3, 0, 1))
    starts_ns, ends_ns = edges_ns[::4], edges_ns[3::4]
    return replace(
        small,
        num_steps=10,
        message=np.zeros(num_collectives, np.int32),
        seq=np.arange(num_collectives),
        step=np.full(num_collectives, 3),
        window=np.zeros(num_collectives, np.int32),
        start_ns=starts_ns,
        end_ns=ends_ns,
        host_wait_ns=np.stack((starts_ns, ends_ns)) // 7,
        copy_ns=np.stack((starts_ns, ends_ns)) // 5,
        computation=cover(edges_ns[1::4], edges_ns[2::4]).within(starts_ns, ends_ns),
    )


def test_large_columns_are_made_to_fit_from_their_end() -> None:
    whole = large(20_000)
    found = fitted(whole)
    assert len(packed(found)) <= MAX_PACKED_BYTES
    assert found.num_collectives + found.num_dropped == 20_000
    assert found.seq.tolist()[-1] == 19_999
    assert found.num_steps == pytest.approx(10 * found.num_collectives / 20_000)


def test_many_short_steps_are_made_to_fit_with_what_is_said_of_each() -> None:
    (whole, _) = columns(simulate(Job(num_ranks=2, num_steps=8_000, segments=(0,), num_kernels=1, jitter_ratio=0.05)))
    found = fitted(whole)
    assert len(packed(whole)) > MAX_PACKED_BYTES >= len(packed(found))
    assert found.num_collectives == len(found.step_times_ms) > 1_000
    assert found.step.tolist() == whole.step.tolist()[-found.num_collectives :]


def test_coarser_computation_is_wrong_by_less_than_the_tolerance() -> None:
    whole = large(2_000).computation
    moments_ns = np.linspace(0, whole.at_ns[-1], 10_000).astype(np.int64)
    for tolerance_ns in (20_000, 200_000, 2_000_000):
        coarse = whole.coarser(tolerance_ns)
        assert len(coarse.at_ns) < len(whole.at_ns)
        assert np.abs(coarse.until(moments_ns) - whole.until(moments_ns)).max() < tolerance_ns


def test_the_latest_collectives_are_those_of_the_end() -> None:
    (found, _) = columns(simulate(Job(num_ranks=2, counted=True)))
    last = latest(found, 10)
    assert last.seq.tolist() == found.seq[-10:].tolist()
    assert last.num_steps == pytest.approx(1.0)
    assert last.step.tolist() == [5] * 10
    assert last.step_times_ms == found.step_times_ms[-1:]
    inside = last.computation.between(last.start_ns, last.end_ns)
    assert inside.tolist() == found.computation.between(found.start_ns, found.end_ns)[-10:].tolist()


def test_collectives_belong_to_the_step_that_launched_them() -> None:
    def at(start: float, number: int) -> list[TraceEvent]:
        event = told(named(kernel(start + 100, 5, COMMUNICATION), seq=number), correlation=number)
        return [launch(start, 1, number), event]

    found = columns_of_events(
        *at(0, 1), *at(10, 2), *at(29, 3), *at(30, 4), *at(60, 5), step(7, 10, 20), step(8, 40, 10)
    )
    assert found.step.tolist() == [-1, 7, 7, -1, -1]  # before, inside, inside, at its end, after the last


def test_steps_of_a_second_window_that_counts_anew_are_others() -> None:
    one, other = (replace(columns_of_events(named(kernel(0, 5, COMMUNICATION))), step=np.array([n])) for n in (4, 3))
    assert joined(one, other, 100_000).step.tolist() == [4, 5]
    assert joined(other, one, 100_000).step.tolist() == [3, 4]
    assert joined(one, replace(other, step=np.array([-1])), 100_000).step.tolist() == [4, -1]


def test_windows_of_a_profile_are_put_one_after_the_other() -> None:
    one = columns_of_events(kernel(0, 10), named(kernel(10, 5, COMMUNICATION), seq=1), kernel(12, 2))
    other = columns_of_events(kernel(0, 20), named(kernel(20, 5, COMMUNICATION), seq=9, name="broadcast"))
    both = joined(one, other, 100_000)
    assert both.start_ns.tolist() == [10_000, 120_000]
    assert both.window.tolist() == [0, 1]
    assert operations(both) == ["all_reduce", "broadcast"]
    assert both.computation.until(both.start_ns).tolist() == [10_000, 32_000]
    assert both.computation.between(both.start_ns, both.end_ns).tolist() == [2_000, 0]
    assert (both.kernels.count.tolist(), both.kernels.median_ns.tolist()) == ([3], [(10_000 * 2 + 20_000) // 3])


def test_tables_of_many_long_kernels_do_not_overflow() -> None:
    century_us = 100 * 365 * 86_400 * 1_000_000
    long = columns_of_events(*(kernel(start, century_us) for start in range(5)))
    both = joined(long, long, 1 << 62).kernels
    assert both.total_ns.tolist() == [pytest.approx(10_000 * century_us)]
    assert both.all_ns == pytest.approx(10_000 * century_us)
    assert both.median_ns.tolist() == [pytest.approx(1_000 * century_us)]
