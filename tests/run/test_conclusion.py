"""The conclusion: the first failure first, and what to do with its path."""

from __future__ import annotations

from pathlib import Path

from pytest_aorta.checks import Bound, Check
from pytest_aorta.gates.thresholds import tally
from pytest_aorta.reporting.model import without_cause
from pytest_aorta.run.conclusion import conclude, drain, next_step, not_judged
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.record import HostRecord, StageRecord
from tests.reporting.deck_runs import begin

FOLDER = RunFolder(Path("/runs/01a2"))
SKIPPED = "a prior lifecycle stage failed: test_launch_container: a: no answer: Permission denied"
SLOW = Check(label="[threshold] (metric=x)", state="failed", actual=2.0, gate=Bound(kind="max", limit=1.0))


def failed(name: str, reason: str, *checks: Check) -> dict[str, StageRecord]:
    return {name: StageRecord(name=name, outcome="failed", reason=reason, failure="measured", checks=checks)}


def test_a_failure_is_told_before_what_stopped_pytest() -> None:
    stages = failed("test_validate_thresholds", "measured, bad: 1 of 1 gates failed: x", SLOW)
    verdict, sentence = conclude(stages, (), cut_short="pytest stopped before test_generate_report")
    assert verdict == "interrupted"
    told = "test_validate_thresholds: 1 of 1 gates failed: x 2.0000 (max 1)"
    assert sentence == f"{told}; pytest stopped before test_generate_report"


def test_the_first_gate_that_failed_is_told_with_its_worst_value_and_its_limit() -> None:
    each = Bound(kind="min", limit=5, unit="ms", over="each")
    ranks = [SLOW.model_copy(update={"label": f"[threshold] (metric=b_x, rank={rank})", "actual": 4.5 - rank,
                                     "unit": "ms", "gate": each}) for rank in range(3)]  # fmt: skip
    lost = ranks[0].model_copy(update={"actual": None})
    for checks, told in (
        ((lost, *ranks), "1 of 1 gates failed: b_x, rank=2 2.50 ms (min 5 ms, each rank)"),
        ((SLOW, *ranks), "2 of 2 gates failed: x, b_x; x 2.0000 (max 1)"),
        ((lost,), "1 of 1 gates could not be measured: b_x"),
    ):
        _, sentence = conclude(failed("test_validate_thresholds", f"measured, bad: {tally(checks)}", *checks), ())
        assert sentence == f"test_validate_thresholds: {told}"


def test_the_next_step_has_the_path() -> None:
    gates = failed("test_validate_thresholds", "measured, bad: x", SLOW)
    assert "/runs/01a2/metrics.json" in next_step(gates, FOLDER)
    assert "/runs/01a2/metrics.json" in next_step(gates, RunFolder(FOLDER.path, judgement="20260101"))
    error = failed("test_parse_results", "could not measure: unexpected")
    assert next_step(error, FOLDER) == "read what test_parse_results said in /runs/01a2"
    assert next_step(error, FOLDER, "reports/aorta.log").endswith(" in reports/aorta.log")
    told = failed("test_clone_aorta", "could not measure: a: /x is no folder there; set aorta_path to where it is")
    told["test_clone_aorta"] = told["test_clone_aorta"].model_copy(update={"failure": "unmeasured"})
    assert next_step(told, FOLDER) == "set aorta_path to where it is"
    several = failed("test_clone_aorta", "could not measure: a: /x is absent; set aorta_path; b: /x is absent")
    several["test_clone_aorta"] = several["test_clone_aorta"].model_copy(update={"failure": "unmeasured"})
    assert next_step(several, FOLDER).startswith("read what test_clone_aorta said in ")
    folder = failed("test_launch_container", "could not measure: a: the folder /x cannot be written: Permission denied")
    assert next_step(folder, FOLDER).startswith("set work_dir, or HOME")


def test_what_a_sentence_says_to_do_about_its_host_comes_before_what_a_hint_says() -> None:
    said = "its host key is not known: seen A, expected a known one; add it by `ssh-keyscan {0}` when it is right"
    refused = tuple(
        Check(label=f"[container] (host={host})", state="failed", host=host, fault="rig", subtest=False,
              reason=f"{host}: {said.format(host)}")
        for host in ("n1", "n2", "n3", "n4", "n5")
    )  # fmt: skip
    told = failed(
        "test_launch_container", "could not measure: " + "; ".join(check.reason for check in refused), *refused
    )
    told["test_launch_container"] = told["test_launch_container"].model_copy(update={"failure": "unmeasured"})
    assert next_step(told, FOLDER) == "add it by `ssh-keyscan n1` when it is right (likewise for n[2-5])"


def test_of_many_steps_the_first_are_told() -> None:
    lacking = tuple(
        Check(label=f"[container] (host=n{number})", state="failed", host=f"n{number}", fault="rig", subtest=False,
              reason=f"n{number}: no device; install {device}")
        for number, device in enumerate("abcde")
    )  # fmt: skip
    told = failed("test_launch_container", "could not measure: no devices", *lacking)
    told["test_launch_container"] = told["test_launch_container"].model_copy(update={"failure": "unmeasured"})
    assert next_step(told, FOLDER) == "install a; install b; install c; and so on, 2 more in the report"


def test_what_a_sentence_about_all_hosts_says_to_do_counts_where_those_of_the_hosts_say_nothing() -> None:
    absent = tuple(
        Check(
            label=f"[container] (host={host})", state="failed", host=host, fault="rig", subtest=False, reason="absent"
        )
        for host in ("n1", "n2")
    )
    reason = "could not measure: the container has to run everywhere and does not: n1, n2: absent; start it"
    told = failed("test_launch_container", reason, *absent)
    told["test_launch_container"] = told["test_launch_container"].model_copy(update={"failure": "unmeasured"})
    assert next_step(told, FOLDER) == "start it"


def test_both_ways_to_use_an_engine_are_offered_not_only_the_one_that_a_hint_knows() -> None:
    step = "add the user to the group docker, or allow `NOPASSWD: /usr/bin/docker` in sudoers"
    reason = f"n1: this user may not use docker, and sudo does not help: sudo: a password is required; {step}"
    told = failed("test_launch_container", f"could not measure: {reason}")
    told["test_launch_container"] = told["test_launch_container"].model_copy(update={"failure": "unmeasured"})
    assert next_step(told, FOLDER) == step


def test_a_cause_is_told_once_and_named_elsewhere() -> None:
    assert without_cause(SKIPPED) == "a prior lifecycle stage failed: test_launch_container"
    assert without_cause("skip_rccl_build=true: x: y") == "skip_rccl_build=true: x: y"
    stages = {
        "test_validate_thresholds": StageRecord(name="test_validate_thresholds", outcome="skipped", reason=SKIPPED)
    }
    assert list(not_judged(stages)) == ["thresholds (a prior lifecycle stage failed: test_launch_container)"]


def test_hosts_that_failed_for_one_reason_are_drained_by_one_command_and_others_by_their_own(tmp_path: Path) -> None:
    run = begin(tmp_path, hosts=[f"n{number}" for number in range(1, 6)], ranks_per_host=2)
    run.keeper.hosts({f"n{number}": HostRecord(work_dir="/w", state_dir="/s") for number in range(1, 6)})
    reasons = {"n1": "n1: Xid 79", "n2": "n2 shows 1 GPU", "n3": "n3 shows 1 GPU", "n4": "n4: not readable"}
    found = tuple(
        Check(label=f"[evidence] (host={host})", state="failed", host=host, reason=reason,
              fault="rig" if host == "n4" else "cluster")
        for host, reason in reasons.items()
    )  # fmt: skip
    late = SLOW.model_copy(update={"host": "n5"})
    run.stage("test_run_benchmark", "failed", "measured, bad: n1: Xid 79", (*found, late))

    told = [command.partition(f"{run.record.run_id[:13]}: ") for command in drain(run.record)]

    assert [(start.split()[2].strip("'"), why) for start, _, why in told] == [
        ("nodename=n1", "Xid 79'"), ("nodename=n[2-3]", "shows 1 GPU'"),
    ]  # fmt: skip
