"""Who is named late, and why: planted lateness is found, and nothing else is."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_aorta.trace.collectives import RankColumns
from pytest_aorta.trace.lateness import Candidate, Lateness, analyze
from pytest_aorta.trace.lateness_metrics import lateness_quantities
from pytest_aorta.trace.packing import packed, unpacked
from pytest_aorta.trace.ranks import summarize
from tests.trace import synthetic
from tests.trace.simulated import Job, Planted, columns, simulate
from tests.trace.simulated import Lateness as Kind
from tests.trace.synthetic import COMMUNICATION, document, kernel, launch

TRACES = Path(__file__).parents[3] / "shared" / "traces"
EXPECTED = TRACES / "expected.json"
corpus = pytest.mark.skipif(not EXPECTED.is_file(), reason="the corpus of traces (../shared/traces) is not here")
KINDS: tuple[Kind, ...] = ("host", "device", "compute", "copy")


def late_ranks() -> dict[str, Any]:
    found = dict(json.loads(EXPECTED.read_text())["late_ranks"]) if EXPECTED.is_file() else {}
    return {name: entry for name, entry in found.items() if not name.startswith("_")}


def lateness_of(job: Job) -> Lateness:
    return analyze(columns(simulate(job)))


def named(found: Lateness) -> tuple[int | None, str] | None:
    return None if found.straggler is None else (found.straggler.rank, found.straggler.kind)


@corpus
@pytest.mark.parametrize("name", late_ranks())
def test_real_traces_name_whom_they_should(name: str) -> None:
    expected = late_ranks()[name]
    found = summarize(TRACES / name, with_lateness=True).lateness
    assert found is not None
    straggler = None if found.straggler is None else {"rank": found.straggler.rank, "kind": found.straggler.kind}
    assert straggler == expected["straggler"]
    assert found.matched_ratio == 1.0
    # The figures there count kernels without metadata too, and memset not as computation.
    tolerance_ms = 0.2
    for rank, delay_ms, share in zip(
        found.ranks, expected["caused_delay_ms_per_step"], expected["share_last"], strict=True
    ):
        assert rank.caused_delay_ms_per_step == pytest.approx(delay_ms, abs=tolerance_ms)
        assert rank.share_last == pytest.approx(share, abs=0.03)


@corpus
def test_nothing_of_a_real_transfer_is_hidden_although_overlap_says_so() -> None:
    found = summarize(TRACES / "h200_fsdp2", with_lateness=True)
    assert found.lateness is not None
    assert found.ranks[0].true_overlap_ratio == pytest.approx(0.18, abs=0.01)
    assert found.lateness.ranks[0].hidden_transfer_ratio == 0.0


@pytest.mark.parametrize("num_ranks", [2, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_planted_lateness_is_found_with_its_kind(kind: Kind, num_ranks: int) -> None:
    found = lateness_of(Job(num_ranks=num_ranks, jitter_ratio=0.01, planted=(Planted(1, kind, 0.1),)))
    assert named(found) == (1, kind)
    # A tenth of 10 segments of 4 kernels of 250 µs is 1 ms a step.
    assert found.ranks[1].caused_delay_ms_per_step == pytest.approx(1.0, rel=0.1)
    assert found.straggler == found.largest_candidate
    assert found.why == ""
    assert found.straggler is not None
    assert found.straggler.steady_ms == ()
    assert f"it is the last in {found.straggler.share_last:.1%} of its collectives" in found.straggler.told


def test_two_causes_of_one_size_are_no_kind_and_both_are_told() -> None:
    planted = (Planted(1, "host", 0.05), Planted(1, "compute", 0.05))
    found = lateness_of(Job(planted=planted))
    assert named(found) == (1, "unknown")
    assert found.straggler is not None
    causes = found.straggler.causes
    assert causes == pytest.approx({"host": 0.5, "compute": 0.5, "device": 0.0, "copy": 0.0}, abs=0.02)
    assert re.search(r"; of its lateness (its host|more computation) explains \d\d%, (its|more) ", found.straggler.told)


def slower_alone(rank: RankColumns, ratio: float) -> RankColumns:
    """Let the kernels that ran beside no communication have taken longer, as after a wait that cooled the others."""
    median_ns = (rank.kernels.median_ns * ratio).astype(np.int64)
    return replace(rank, kernels=replace(rank.kernels, median_ns=median_ns))


def test_more_work_is_not_taken_for_a_slow_device_whose_kernels_are_slower_where_they_can_be_compared() -> None:
    """Seen on two H200 at their power cap: 15 ms more kernels a step, and those beside no communication 9 % slower."""
    everyone = ((0, 1),)
    planted = (Planted(1, "compute", 1.2, in_group=0),)
    job = Job(num_ranks=2, num_steps=6, segments=ONCE, groups=(everyone,) * len(ONCE), jitter_ratio=0.01)
    healthy, late = columns(simulate(replace(job, planted=planted)))
    assert named(analyze([healthy, slower_alone(late, 1.09)])) == (1, "compute")


def test_what_neither_more_work_nor_slow_kernels_explain_has_no_kind() -> None:
    (one, late) = columns(simulate(Job(num_ranks=2, planted=(Planted(1, "device", 0.1),))))
    hidden = slower_alone(late, 1 / 1.1)  # as if only kernels beside communication had been slow
    assert named(analyze([one, late])) == (1, "device")
    assert named(analyze([one, hidden])) == (1, "unknown")


def renamed(rank: RankColumns, number: int) -> RankColumns:
    """Have a rank run kernels that only ranks of the same number run, as stages of a pipeline do."""
    return replace(rank, kernels=replace(rank.kernels, key=rank.kernels.key + number))


@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_work_of_another_stage_is_no_more_work(num_stages: int) -> None:
    job = Job(num_ranks=8, planted=(Planted(6, "device", 0.3),))
    ranks = [renamed(rank, place * num_stages // 8) for place, rank in enumerate(columns(simulate(job)))]
    assert named(analyze(ranks)) == (6, "device")


@pytest.mark.parametrize(
    ("kind", "one_in", "said"),
    [
        ("compute", 3, "compute"),
        ("device", 3, "unknown"),
        ("host", 3, "host"),
        ("compute", 1, "unknown"),
        ("device", 1, "unknown"),
        ("host", 1, "host"),
    ],
)
def test_a_rank_with_other_kernels_has_more_work_if_most_in_common_are_as_fast(
    kind: Kind, one_in: int, said: str
) -> None:
    """One in so many of its kernels has another grid; a small part in common may be of another kind than the rest."""
    job = Job(num_ranks=4, num_kernels=12, jitter_ratio=0.01, planted=(Planted(2, kind, 0.3),))
    ranks = columns(simulate(job))
    kernels = ranks[2].kernels
    common = np.flatnonzero(np.isin(kernels.key, ranks[0].kernels.key))
    changed = np.isin(np.arange(len(kernels.key)), common[1::one_in])
    ranks[2] = replace(ranks[2], kernels=replace(kernels, key=kernels.key + np.where(changed, 1000, 0)))
    assert named(analyze(ranks)) == (2, said)


def test_a_stage_that_shares_little_with_another_is_not_compared_with_it() -> None:
    """The first stage runs one kernel only, the second runs it for a tenth of its time: none has more work."""
    ranks = columns(simulate(Job(num_ranks=2, num_kernels=10, kernel_us=100, planted=(Planted(1, "device", 0.3),))))
    kernels = ranks[0].kernels
    alone = replace(
        kernels, key=kernels.key[:1], total_ns=kernels.total_ns[:1] * 10, count=kernels.count[:1] * 10,
        median_ns=kernels.median_ns[:1],
    )  # fmt: skip
    found = analyze([replace(ranks[0], kernels=alone), ranks[1]])
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.causes["compute"]) == (1, 0.0)


def test_a_rank_whose_kernels_nobody_else_runs_has_no_kind_by_its_computation() -> None:
    ranks = columns(simulate(Job(num_ranks=4, planted=(Planted(2, "device", 0.3),))))
    assert named(analyze([renamed(rank, place) for place, rank in enumerate(ranks)])) == (2, "unknown")


def test_kernels_outside_of_the_steps_are_no_more_work() -> None:
    """A window that is cut later on one rank has more kernels, but no more a step."""
    documents = simulate(Job(num_ranks=2, planted=(Planted(1, "device", 0.1),)))
    before = documents[1]["traceEvents"]
    begin_us = min(event["ts"] for event in before if "ts" in event)
    extra = []
    for number in range(40):
        at_us = begin_us - 20_000 + 400 * number
        extra += [launch(at_us, 3.0, 900_000 + number), kernel(at_us + 4, 300, "gemm_0")]
        extra[-1]["args"]["correlation"] = 900_000 + number
    documents[1]["traceEvents"] = [*extra, *before]
    assert named(analyze(columns(documents))) == (1, "device")


def test_a_slower_device_shows_in_its_kernels() -> None:
    found = lateness_of(Job(planted=(Planted(5, "device", 0.1),)))
    slowdowns = [rank.kernel_slowdown_ratio for rank in found.ranks]
    assert slowdowns == pytest.approx([1.0] * 5 + [1.1] + [1.0] * 2)


def test_imbalance_is_the_step_without_waiting_over_the_median() -> None:
    # 10 segments of 1 ms and 0.2 ms of transfer are 12 ms, with a tenth more computation 13 ms.
    found = lateness_of(Job(planted=(Planted(5, "compute", 0.1),)))
    assert found.rank_imbalance_ratio == pytest.approx(1 / 12, rel=0.01)
    assert found.ranks[5].exposed_wait_ms == pytest.approx(0.0, abs=0.01)
    assert found.ranks[0].exposed_wait_ms == pytest.approx(1.0, rel=0.01)
    assert found.ranks[0].exposed_transfer_ms == pytest.approx(2.0)


def test_equal_ranks_name_nobody_but_give_the_largest_candidate_with_its_cost() -> None:
    found = lateness_of(Job(jitter_ratio=0.02))
    assert found.straggler is None
    assert found.largest_candidate is not None
    assert 0 < found.largest_candidate.caused_delay_ms_per_step < 0.24
    assert "under 2% of the median step" in found.why


def test_ranks_that_are_late_in_turn_name_nobody() -> None:
    found = lateness_of(Job(num_ranks=2, jitter_ratio=0.3))
    assert found.straggler is None
    assert "which chance alone gives" in found.why


ONCE = tuple(range(20))  # as many segments a step, told apart by their number


def once_a_step(num_ranks: int, *planted: Planted, **more: Any) -> Lateness:
    """A step of 20 segments of 1 ms and 0.2 ms of transfer: 24 ms; what is planted comes in the first segment only."""
    everyone = (tuple(range(num_ranks)),)
    job = Job(num_ranks=num_ranks, segments=ONCE, groups=(everyone,) * len(ONCE), jitter_ratio=0.01, planted=planted)
    return lateness_of(replace(job, **more))


@pytest.mark.parametrize("num_ranks", [2, 8])
@pytest.mark.parametrize("kind", ["host", "compute", "copy"])  # no device is slow once a step
def test_a_rank_that_is_late_once_a_step_is_found_with_its_kind(kind: Kind, num_ranks: int) -> None:
    found = once_a_step(num_ranks, Planted(1, kind, 1.2, in_group=0), num_steps=6)
    assert named(found) == (1, kind)
    assert found.ranks[1].caused_delay_ms_per_step == pytest.approx(1.2, rel=0.2)
    assert found.straggler is not None
    assert found.straggler.share_last < 0.7  # of two ranks by chance alone, but for the one collective


def test_a_host_that_held_its_rank_up_once_a_step_is_named_in_real_traces() -> None:
    """Two H200, overlap_stress_h200: rank 1 waited for its device in every step and then slept 15 ms (see gpu-runs.md).

    The traces are cut down to what lateness needs: GPU events, the calls that launched them, collectives and steps.
    """
    found = summarize(Path(__file__).parent / "data" / "h200_late_once_a_step", with_lateness=True).lateness
    assert found is not None
    assert found.matched_ratio == 1.0
    assert named(found) == (1, "host")
    assert found.ranks[1].caused_delay_ms_per_step == pytest.approx(17.95, abs=0.01)
    assert found.ranks[1].share_last == pytest.approx(0.42, abs=0.01)
    assert found.straggler is not None
    assert found.straggler.steady_ms == found.ranks[1].caused_delay_ms_by_step
    assert len(found.straggler.steady_ms) == 6
    assert "about the same in each of 6 steps (17.30 to 18.89 ms)" in found.straggler.told
    bandwidth = lateness_quantities(found)
    assert bandwidth["reduce_scatter_bus_bandwidth_gbps"].value == pytest.approx(196.5, abs=0.1)
    # The only all-reduces are of the 4 bytes of a norm.
    assert bandwidth["all_reduce_bus_bandwidth_gbps"].value is None
    assert "no all_reduce of 1 MiB or more" in bandwidth["all_reduce_bus_bandwidth_gbps"].why


def test_a_rank_that_was_late_in_one_step_of_many_is_not_named() -> None:
    found = once_a_step(2, Planted(1, "compute", 9.0, in_group=0, in_step=2), num_steps=6)
    assert found.straggler is None
    assert found.largest_candidate is not None
    assert found.largest_candidate.rank == 1
    assert found.largest_candidate.caused_delay_ms_per_step > 0.02 * 24
    assert "comparing its delay step by step" in found.why


@pytest.mark.parametrize("num_kept", [1, 3])
@pytest.mark.parametrize("ranks_without", [(), (0,)])
def test_per_step_is_of_the_steps_that_are_marked(num_kept: int, ranks_without: tuple[int, ...]) -> None:
    job = Job(num_ranks=2, num_steps=12, jitter_ratio=0.01, planted=(Planted(1, "host", 0.1),))
    documents = simulate(job)
    for rank, content in enumerate(documents):
        marks = [event for event in content["traceEvents"] if event["name"].startswith("ProfilerStep")]
        for mark in marks if rank in ranks_without else marks[:-num_kept]:
            content["traceEvents"].remove(mark)
    found = analyze(columns(documents))
    assert found.num_steps == num_kept
    assert found.ranks[1].caused_delay_ms_per_step == pytest.approx(1.0, rel=0.1)
    assert len(found.ranks[1].caused_delay_ms_by_step) == num_kept


def test_no_cause_is_named_for_a_delay_that_came_before_the_first_collective() -> None:
    found = once_a_step(2, Planted(1, "host", 3.0, in_group=0), num_steps=1)
    assert found.largest_candidate is not None
    assert (found.largest_candidate.rank, found.largest_candidate.kind) == (1, "unknown")


def test_two_steps_are_too_few_to_call_a_delay_the_same_each_time() -> None:
    found = once_a_step(2, Planted(1, "host", 1.2, in_group=0), num_steps=2, jitter_ratio=0.05)
    assert found.straggler is None
    assert "comparing its delay step by step" in found.why


def test_of_eight_ranks_or_more_a_straggler_must_stand_out() -> None:
    # In a step ranks 1 to 7 are late once each, by 1.0 to 2.2 ms; rank 0 nine times by 0.3 ms, which are 2.7 ms.
    # The median of the others is 1.6 ms, their scaled MAD 0.59: to stand out takes more than 3.4 ms.
    everyone = (tuple(range(8)),)
    planted = [Planted(rank, "compute", 0.8 + 0.2 * rank, in_group=rank - 1) for rank in range(1, 8)]
    planted += [Planted(0, "compute", 0.3, in_group=segment) for segment in range(7, 16)]
    job = Job(segments=tuple(range(16)), groups=(everyone,) * 16, planted=tuple(planted))
    found = lateness_of(job)
    assert found.straggler is None
    assert found.largest_candidate is not None
    assert (found.largest_candidate.rank, found.largest_candidate.share_last) == (0, 9 / 16)
    assert found.why == "the largest candidate is not more than 3 scaled MADs above the other ranks"
    less = [replace(one, ratio=one.ratio / 4) if one.rank else one for one in planted]
    assert named(lateness_of(replace(job, planted=tuple(less)))) == (0, "compute")


def test_clocks_of_hosts_do_not_enter() -> None:
    job = Job(jitter_ratio=0.02, planted=(Planted(3, "host", 0.1),))
    offsets = {rank: 10_000_000.0 * rank for rank in range(8)}
    assert lateness_of(replace(job, clock_offset_us=offsets)) == lateness_of(job)


@pytest.mark.parametrize("counted", [True, False])
def test_windows_cut_at_different_collectives_do_not_fool_it(counted: bool) -> None:
    job = Job(num_steps=5, jitter_ratio=0.02, planted=(Planted(3, "compute", 0.1),), counted=counted)
    found = lateness_of(replace(job, num_cut={0: 1, 2: 3, 3: 2}))
    assert named(found) == (3, "compute")
    assert found.matched_ratio is not None
    assert 0.9 <= found.matched_ratio < 1


def test_below_nine_tenths_matched_nothing_is_said() -> None:
    found = lateness_of(Job(planted=(Planted(3, "compute", 0.1),), num_cut={0: 15}))
    assert found.matched_ratio == pytest.approx(8 * 15 / (7 * 30 + 15))
    assert (found.straggler, found.largest_candidate, found.rank_imbalance_ratio) == (None, None, None)
    assert found.ranks[3].caused_delay_ms_per_step is None
    assert found.why == "only 53% of the collectives could be matched between ranks, expected 90% or more"


NO_OPERATION = "no trace says which operation its communication is"


def test_without_metadata_nobody_is_named() -> None:
    found = lateness_of(Job(planted=(Planted(3, "compute", 0.1),), named=False))
    assert (found.straggler, found.matched_ratio) == (None, 1.0)
    assert found.why == f"{NO_OPERATION}, so it was matched by the names of kernels only"
    assert found.by_name_only
    assert found.num_unnamed == found.num_matchable > 0


def test_one_rank_without_metadata_is_seen_in_the_ratio() -> None:
    job = Job(planted=(Planted(3, "compute", 0.1),))
    bare = simulate(replace(job, named=False))[0]
    found = analyze(columns([bare, *simulate(job)[1:]]))
    assert (found.num_unnamed, named(found)) == (30, (3, "compute"))


# Four ranks: pairs (0, 1), (2, 3) meet often, pairs (0, 2), (1, 3) seldom.
TWO_WAYS = (((0, 1), (2, 3)), ((0, 2), (1, 3)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_late_in_one_group_waits_in_another_and_is_not_blamed_for_it(kind: Kind) -> None:
    job = Job(num_ranks=4, num_steps=4, segments=(0, 0, 0, 1) * 3, groups=TWO_WAYS, jitter_ratio=0.01)
    found = lateness_of(replace(job, planted=(Planted(3, kind, 0.1, in_group=0),)))
    assert named(found) == (3, kind)
    # Rank 2 comes late to rank 0 only because it waited for rank 3: its own part stays small.
    delays_ms = [rank.caused_delay_ms_per_step or 0.0 for rank in found.ranks]
    assert delays_ms[2] < 0.05 * delays_ms[3]


def test_the_order_of_ranks_changes_nothing() -> None:
    found = columns(simulate(Job(jitter_ratio=0.02, planted=(Planted(3, "device", 0.1),))))
    assert analyze(found[::-1]) == analyze(found)


def test_columns_that_travelled_as_bytes_give_the_same() -> None:
    found = columns(simulate(Job(jitter_ratio=0.02, planted=(Planted(3, "copy", 0.1),))))
    assert analyze([unpacked(packed(rank)) for rank in found]) == analyze(found)


@pytest.mark.parametrize(
    ("events", "num_ranks", "why"),
    [
        pytest.param([kernel(0, 10)], 1, "lateness needs the traces of two ranks or more", id="one rank"),
        pytest.param([kernel(0, 10)], 2, "no process group with two observed ranks has a collective", id="none"),
        pytest.param(
            [kernel(0, 10), kernel(10, 5, COMMUNICATION)],
            2,
            f"{NO_OPERATION}, so it was matched by the names of kernels only",
            id="unnamed",
        ),
    ],
)
def test_what_cannot_be_said_has_a_reason(events: Sequence[Any], num_ranks: int, why: str) -> None:
    found = analyze(columns(document(events, rank=rank) for rank in range(num_ranks)))
    assert (found.straggler, found.why) == (None, why)


def test_without_steps_nothing_is_given_per_step() -> None:
    documents = simulate(Job(num_ranks=2))
    for content in documents:
        content["traceEvents"] = [event for event in content["traceEvents"] if event["cat"] != "user_annotation"]
    assert "no profiler steps" in analyze(columns(documents)).why


def test_ranks_of_traces_are_judged_when_asked(tmp_path: Path) -> None:
    job = Job(num_ranks=3, jitter_ratio=0.01, planted=(Planted(2, "host", 0.1),))
    for rank, content in enumerate(simulate(job)):
        synthetic.write(tmp_path / f"rank{rank}" / "trace.json.gz", content)
    plain, asked = summarize(tmp_path), summarize(tmp_path, jobs=2, with_lateness=True)
    assert plain.lateness is None
    assert asked.ranks == plain.ranks
    assert asked.lateness is not None
    assert named(asked.lateness) == (2, "host")
    assert asked.lateness == analyze(columns(simulate(job)))


def test_the_windows_of_a_profile_count_together(tmp_path: Path) -> None:
    for seed in (1, 2):
        job = Job(num_ranks=2, jitter_ratio=0.01, planted=(Planted(1, "compute", 0.1),), seed=seed)
        late_us = dict.fromkeys(range(2), 1_000_000.0 * seed)
        for rank, content in enumerate(simulate(replace(job, clock_offset_us=late_us))):
            synthetic.write(tmp_path / f"rank{rank}" / f"trace_{seed}.json", content)
    found = summarize(tmp_path, with_lateness=True)
    assert found.errors == ()
    assert found.lateness is not None
    assert (found.lateness.num_matched, found.lateness.num_steps) == (2 * 2 * 30, 6)
    assert named(found.lateness) == (1, "compute")
    assert found.lateness.ranks[1].caused_delay_ms_per_step == pytest.approx(1.0, rel=0.1)


def test_lateness_is_not_measured_on_other_sources(tmp_path: Path) -> None:
    for rank, content in enumerate(simulate(Job(num_ranks=2))):
        synthetic.write(tmp_path / f"rank{rank}" / "trace.json", content)
    found = summarize(tmp_path, parser="basic", with_lateness=True).lateness
    assert found is not None
    assert found.why == "lateness is measured on the timeline of raw traces only, not by: Basic raw-trace scan"


def verdicts(num_ranks: int, num_trials: int, jitter_ratio: float, *planted: Planted) -> Counter[int | None]:
    jobs = (
        Job(num_ranks=num_ranks, jitter_ratio=jitter_ratio, planted=planted, seed=seed) for seed in range(num_trials)
    )
    found: Counter[int | None] = Counter()
    for job in jobs:
        straggler: Candidate | None = lateness_of(job).straggler
        found[None if straggler is None else straggler.rank] += 1
    return found


# (ranks, trials): some each time, all of them at night (-m slow).
FEW = [pytest.param(8, 20, id="8-ranks"), pytest.param(64, 2, id="64-ranks")]
MANY = [pytest.param(num_ranks, 100, id=f"{num_ranks}-ranks-all", marks=pytest.mark.slow) for num_ranks in (8, 64)]
JITTER = (
    0.02  # of each kernel, four before each collective; with 0.04 it is 94 of 100 of 64 ranks, whose luck is larger
)


@pytest.mark.parametrize(("num_ranks", "num_trials"), FEW + MANY)
def test_equal_ranks_with_jitter_name_nobody(num_ranks: int, num_trials: int) -> None:
    for jitter_ratio in (JITTER / 2, JITTER, 5 * JITTER):
        assert verdicts(num_ranks, num_trials, jitter_ratio)[None] >= 0.99 * num_trials


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_ranks", "num_trials"), FEW + MANY)
def test_a_rank_slowed_by_a_twentieth_is_named(num_ranks: int, num_trials: int, kind: Kind) -> None:
    assert verdicts(num_ranks, num_trials, JITTER, Planted(3, kind, 0.05))[3] >= 0.95 * num_trials
