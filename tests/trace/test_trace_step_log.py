"""The workload's step log and the performance of its steady steps."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.trace.step_log import Performance, performance, read_step_logs


def line(rank: int, number: int, step_ms: float, **more: Any) -> dict[str, Any]:
    counts = {"samples": 4, "tokens": 512}
    return {"rank": rank, "world_size": 2, "step": number, "global_step": number, "step_ms": step_ms, **counts, **more}


def write(root: Path, rank: int, lines: list[Any], tail: str = "") -> None:
    root.mkdir(exist_ok=True)
    text = "".join(json.dumps(document) + "\n" for document in lines)
    (root / f"rank_{rank:02d}_metrics.jsonl").write_text(text + tail)


def job(root: Path, num_steps: int, profiled: tuple[int, ...] = (), **more: Any) -> Performance:
    for rank in (0, 1):
        steps = [
            line(rank, number, 100 + rank, profiled=rank == 0 and number in profiled, **more)
            for number in range(num_steps)
        ]
        write(root, rank, steps)
    return performance(read_step_logs(root))


def test_a_log_is_read_with_its_last_line(tmp_path: Path) -> None:
    final = {"final": True, "rank": 1, "world_size": 2, "weights_checksum": "ab12", "exit": "completed"}
    write(tmp_path / "b", 1, [line(1, 0, 5.5, profiled=True), final])
    write(tmp_path / "a", 0, [line(0, 0, 7)], tail='{"rank": 0, "step": 1, "step')
    cut, whole = read_step_logs(tmp_path)
    assert (whole.rank, whole.world_size, whole.weights_checksum, whole.num_lost) == (1, 2, "ab12", 0)
    assert [(step.number, step.step_ms, step.profiled, step.samples, step.tokens) for step in whole.steps] == [
        (0, 5.5, True, 4, 512)
    ]
    assert (cut.rank, len(cut.steps), cut.num_lost, dict(cut.final), cut.weights_checksum) == (0, 1, 1, {}, None)
    assert cut.file == "a/rank_00_metrics.jsonl"


@pytest.mark.parametrize(
    "bad", ["[1]", "7", '{"rank": 0}', '{"step": 1, "step_ms": NaN}', '{"step": -1, "step_ms": 1}', "\x00", "[" * 9999]
)
def test_lines_that_are_no_step_are_counted(tmp_path: Path, bad: str) -> None:
    write(tmp_path, 3, [], tail=f"\n{bad}\n" + json.dumps(line(3, 1, 5)))
    (log,) = read_step_logs(tmp_path)
    assert (log.rank, len(log.steps), log.num_lost) == (3, 1, 1)


def test_copies_of_a_log_count_once_and_different_logs_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder, 0, [line(0, 0, 5)])
    assert len(read_step_logs(tmp_path)) == 1
    write(tmp_path / "b", 0, [line(0, 0, 6)])
    assert performance(read_step_logs(tmp_path)).why == (
        "rank 0 has several different step logs (a/rank_00_metrics.jsonl, b/rank_00_metrics.jsonl)"
    )


def test_performance_is_that_of_the_slowest_rank_in_each_step(tmp_path: Path) -> None:
    # Steps 5 to 44 are steady; rank 0 is the slower one in every fourth of them.
    write(tmp_path, 0, [line(0, number, 120 if number % 4 == 0 else 80) for number in range(45)])
    write(tmp_path, 1, [line(1, number, 100) for number in range(45)])
    found = performance(read_step_logs(tmp_path))
    assert (found.num_steps, found.num_steady_steps, found.num_ranks, found.why) == (45, 40, 2, "")
    assert (found.step_time_ms_median, found.step_time_ms_p95, found.step_time_ms_max) == (100, 120, 120)
    assert dict(found.rank_step_time_ms_median) == {0: 80, 1: 100}
    assert found.samples_per_second == 2 * 4 / 0.1
    assert found.tokens_per_second_per_gpu == 512 / 0.1


def test_warmup_is_the_first_five_steps_or_the_first_tenth(tmp_path: Path) -> None:
    assert job(tmp_path, 30).num_steady_steps == 25
    assert job(tmp_path, 95).num_steady_steps == 85


def test_steps_of_any_ranks_profiler_and_the_step_after_are_left_out(tmp_path: Path) -> None:
    found = job(tmp_path, 40, profiled=(3, 10, 11, 12))
    assert found.num_steady_steps == 40 - 5 - 4
    assert (found.step_time_ms_median, found.why) == (101, "")


def test_too_few_steady_steps_are_not_judged(tmp_path: Path) -> None:
    assert job(tmp_path, 25).why == ""
    found = job(tmp_path, 24)
    assert found.step_time_ms_median is None
    assert found.why.startswith("19 of 24 steps are steady")


def test_what_was_not_counted_is_not_measured(tmp_path: Path) -> None:
    found = job(tmp_path, 30, tokens=None)
    assert found.tokens_per_second_per_gpu is None
    assert found.samples_per_second is not None


def test_missing_logs_are_told(tmp_path: Path) -> None:
    assert performance(()).why == "no step log (rank_<n>_metrics.jsonl) was found where the traces are looked for"
    write(tmp_path, 0, [line(0, number, 5) for number in range(50)])
    assert performance(read_step_logs(tmp_path)).why == "only 1 of 2 ranks wrote a step log"


def test_a_step_told_twice_is_not_measured(tmp_path: Path) -> None:
    write(tmp_path, 0, [line(0, number, 5000) for number in range(40)] + [line(0, number, 10) for number in range(40)])
    found = performance(read_step_logs(tmp_path))
    assert found.step_time_ms_median is None
    assert found.why.startswith("rank_00_metrics.jsonl tells step 0 more than once")


def test_numbers_that_no_step_can_have_are_lost(tmp_path: Path) -> None:
    good = [line(0, number, 10) for number in range(40)]
    bad = [{**line(0, 40 + at, 10), "step_ms": value} for at, value in enumerate((10**400, 1.7e308, 5e-324, -1))]
    odd = [{**line(0, 50 + at, 10), "samples": value} for at, value in enumerate((10**400, 1.5e308))]
    write(tmp_path, 0, [*good, *bad, *odd])
    (log,) = read_step_logs(tmp_path)
    assert log.num_lost == len(bad)
    assert [step.samples for step in log.steps[-2:]] == [None, None]


def test_a_world_of_more_ranks_than_can_be_counted_is_lost(tmp_path: Path) -> None:
    write(tmp_path, 0, [{**line(0, 0, 10), "world_size": 10**400}, {**line(0, 1, 10), "world_size": 10**12}])
    (log,) = read_step_logs(tmp_path)
    assert (log.world_size, log.num_lost, len(log.steps)) == (10**12, 1, 1)


def test_losses_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    lines = [{**line(0, at, 10), "loss": loss} for at, loss in enumerate((0.5, None, float("nan"), 0.4))]
    write(tmp_path, 0, [*lines, line(0, 4, 10)])
    assert read_step_logs(tmp_path)[0].num_bad_losses == 2


def test_a_log_that_does_not_say_what_was_profiled_is_told_from_one_that_does(tmp_path: Path) -> None:
    write(tmp_path, 0, [line(0, at, 10) for at in range(40)])
    assert performance(read_step_logs(tmp_path)).profiled_unknown
    write(tmp_path, 0, [line(0, at, 10, profiled=False) for at in range(40)])
    assert not performance(read_step_logs(tmp_path)).profiled_unknown
