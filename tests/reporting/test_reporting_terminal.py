from __future__ import annotations

from dataclasses import replace

from pytest_aorta.checks import Bound, Check
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.model import RunView, StageRow
from pytest_aorta.reporting.terminal import Cadence, Pulse, headline, progress_text, stamped, summary


def gate(number: int, *, failed: bool = False) -> Check:
    return Check(
        label=f"[threshold] (metric=gate_{number})",
        state="failed" if failed else "passed",
        actual=20.0,
        unit="ms",
        gate=Bound(kind="max", limit=10, unit="ms"),
    )


def test_progress_says_what_is_known_and_nothing_else() -> None:
    assert progress_text(Pulse("test_run_benchmark", 3.4)) == "test_run_benchmark 3 s"
    pulse = Pulse("test_run_benchmark", 190, 900, 2, 2, 12, 60, 2.30259, 41.25, 180)
    assert progress_text(pulse) == (
        "test_run_benchmark 190 s of 900 s, 2 of 2 hosts alive, step 12 of 60, loss 2.3026, 41.2 ms a step, "
        "no new step for 180 s"
    )


def test_stamped_line_is_one_clean_line() -> None:
    assert stamped("a\n\x1b[2Jb", 123.44) == "[aorta +123.4s] a b"


def test_cadence_writes_changes_of_words_at_once_and_numbers_every_period() -> None:
    cadence = Cadence(period_s=30)
    assert cadence.due("step 1 of 60, loss 2.30", 0)
    assert not cadence.due("step 2 of 60, loss 2.2e-05", 1)
    assert not cadence.due("step 900 of 60, loss -12", 29.9)
    assert cadence.due("step 30 of 60, loss 1.9", 30)
    assert not cadence.due("step 31 of 60, loss 1.9", 31)
    assert cadence.due("step 31 of 60, loss nan", 32)
    assert cadence.due("collecting", 33)


def test_summary_names_verdict_gates_cause_next_step_and_paths_failed_gates_first() -> None:
    view = RunView(
        "r",
        "aorta_single",
        "failed",
        "1 of 2 gates failed",
        stages=(StageRow("test_validate_thresholds", "failed", checks=(gate(1), gate(22, failed=True))),),
        first_cause="gate_22",
        next_step="look",
        not_judged=("kernel log",),
        paths=(("report", "aorta_reports/aorta_single.html"),),
        drain=("scontrol update nodename=a state=drain",),
    )
    assert summary(view) == (
        "FAILED: 1 of 2 gates failed",
        "first cause: gate_22",
        "gates: 1 of 2 failed",
        "  failed     gate_22  20.00 ms (max 10 ms)",
        "  passed     gate_1   20.00 ms (max 10 ms)",
        "not judged: kernel log",
        "next: look",
        "drain, in a Slurm cluster: scontrol update nodename=a state=drain",
        "report: aorta_reports/aorta_single.html",
    )


def test_summary_is_at_most_25_lines_whatever_there_is() -> None:
    gates = tuple(gate(number, failed=number == 99) for number in range(100))
    view = RunView(
        "r",
        "aorta_single",
        "failed",
        "x\ny\x1b[1m",
        stages=(StageRow("s", "failed", checks=gates),),
        first_cause="c\nd",
        next_step="n",
        not_judged=tuple(f"g{number}" for number in range(1000)),
        paths=tuple((f"p{number}", "x") for number in range(100)),
    )
    lines = summary(view)
    assert len(lines) == 25
    assert all("\n" not in line and "\x1b" not in line and len(line) < 450 for line in lines)
    assert any("gate_99" in line for line in lines)
    assert "  and 90 more in the report" in lines


def test_summary_has_room_for_the_rest_whatever_is_drained() -> None:
    view = RunView(
        "r", "aorta_single", "failed", "x", drain=tuple(f"scontrol {n}" for n in range(9)), paths=(("a", "b"),)
    )
    lines = summary(view)
    assert lines[-2:] == ("drain: and 5 more such commands in the report", "a: b")
    assert sum(line.startswith("drain, in a Slurm cluster: scontrol") for line in lines) == 4


def test_summary_tells_gates_that_were_not_measured_from_failed_ones() -> None:
    unmeasured = gate(3).model_copy(update={"state": "failed", "actual": None, "reason": "not measured: no GPU"})
    stages = (StageRow("s", "failed", checks=(gate(1), gate(2, failed=True), unmeasured)),)
    lines = summary(RunView("r", "aorta_single", "failed", "x", stages=stages))
    assert "gates: 1 of 3 failed, 1 of 3 unmeasured" in lines
    assert "  unmeasured gate_3  n/a (max 10 ms): not measured: no GPU" in lines


def test_the_ranks_of_a_gate_count_as_one_gate_which_failed_if_any_did() -> None:
    ranks = [gate(1, failed=number > 0).model_copy(update={"label": f"[threshold] (metric=gate_1, rank={number})"})
             for number in range(3)]  # fmt: skip
    ranks[1] = ranks[1].model_copy(update={"actual": None})
    other = gate(1).model_copy(update={"gate": Bound(kind="max", limit=30, unit="ms")})
    unmeasured = gate(2, failed=True).model_copy(update={"actual": None})
    stages = (StageRow("s", "failed", checks=(*ranks, other, unmeasured)),)
    lines = summary(RunView("r", "aorta_single", "failed", "x", stages=stages))
    assert "gates: 1 of 3 failed, 1 of 3 unmeasured" in lines


def test_of_many_ranks_that_missed_a_gate_the_worst_stand_first() -> None:
    ranks = tuple(
        gate(1, failed=True).model_copy(
            update={"label": f"[threshold] (metric=gate_1, rank={rank})", "actual": 11.0 + rank}
        )
        for rank in range(64)
    )
    lines = summary(RunView("r", "aorta_single", "failed", "x", stages=(StageRow("s", "failed", checks=ranks),)))
    assert [line.split()[2] for line in lines[2:12]] == [f"rank={rank}" for rank in range(63, 53, -1)]


def test_gates_of_one_limit_over_different_ranks_count_as_two() -> None:
    mean, largest = gate(1), gate(1, failed=True)
    largest = largest.model_copy(update={"gate": Bound(kind="max", limit=10, unit="ms", over="max")})
    stages = (StageRow("s", "failed", checks=(mean, largest)),)
    lines = summary(RunView("r", "aorta_single", "failed", "x", stages=stages))
    assert "gates: 1 of 2 failed" in lines
    assert any("(max 10 ms, largest rank)" in line for line in lines)


def test_a_long_sentence_leaves_room_for_the_next_host_and_the_step_is_whole() -> None:
    steps = [f"add it by `ssh-keyscan {host} >> {'k' * 150}` when it is right" for host in ("n1", "n2")]
    sentence = "; ".join(f"n{number}: its host key is not known; {step}" for number, step in enumerate(steps, 1))
    lines = summary(RunView("r", "aorta_distributed", "could_not_measure", sentence, next_step="; ".join(steps)))
    assert lines == (
        "COULD NOT MEASURE: n1: its host key is not known; n2: its host key is not known",
        f"next: {'; '.join(steps)}",
    )


def test_summary_without_gates_is_short() -> None:
    view = RunView("r", "aorta_single", "could_not_measure", "no host answered")
    assert summary(view) == ("COULD NOT MEASURE: no host answered",)
    assert headline(view) == "COULD NOT MEASURE: no host answered"


def test_where_no_gate_was_judged_the_foremost_metrics_stand() -> None:
    def metric(value: float | None, unit: str = "") -> Metric:
        return Metric(value=value, unit=unit, source="traces")

    metrics = {
        "avg_overlap_ratio": metric(0.5), "true_overlap_ratio": metric(None), "time_variance_ratio": metric(0.1488),
        "step_time_ms_median": metric(26.957, "ms"), "samples_per_second": metric(148.4, "samples/s"),
        "avg_compute_ratio": metric(None), "step_time_ms_max": metric(40.0, "ms"),
    }  # fmt: skip
    view = RunView("r", "aorta_single", "passed", "not judged: thresholds (off)", metrics=metrics)
    assert summary(view)[1:] == (
        "measured:",
        "  step_time_ms_median  26.96 ms",
        "  samples_per_second   148.40 samples/s",
        "  avg_overlap_ratio    0.5000",
        "  time_variance_ratio  0.1488",
    )
    judged = summary(replace(view, stages=(StageRow("s", "passed", checks=(gate(1),)),)))
    assert "measured:" not in judged


def test_what_the_sentence_names_already_is_not_told_again() -> None:
    view = RunView("r", "aorta_single", "passed", "no gate was judged; not judged: thresholds (off)")
    lines = summary(replace(view, not_judged=("thresholds (off)", "kernel log")))
    assert [line for line in lines if line.startswith("not judged")] == ["not judged: kernel log"]
