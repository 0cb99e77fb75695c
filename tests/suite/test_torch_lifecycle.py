"""The shipped local configuration with the real trainer: green, a rank that fails, a rank that hangs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.shipped import shipped

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch

LOCAL = f"--aorta-config={shipped('configs/local_cpu.json')}"


def inject(**fault: Any) -> list[str]:
    return [f"--aorta-set=training_overrides.fault_injection.{name}={value}" for name, value in fault.items()]


def test_shipped_local_configuration_is_green(rig: Any) -> None:
    output = rig.pytest(LOCAL, code=0)

    assert rig.letters() == "PPSPPSPPPP"
    assert "PASSED: 3 of 3 gates held" in output
    execution = rig.record()["products"]["Execution"]
    assert execution["ranks_seen"] == [0, 1]
    result = rig.record()["products"]["Result"]
    assert result["source"] == "CPU steps of raw traces (no GPU events)"
    assert result["num_profiled_steps"] == 3
    metrics = json.loads((rig.folder / "metrics.json").read_text("utf-8"))["metrics"]
    assert metrics["step_time_ms_median"]["value"] > 0
    assert metrics["computation_time_us"]["value"] is None


def test_failed_rank_is_named_with_its_exit_code(rig: Any) -> None:
    rig.pytest(LOCAL, *inject(kind="exit", rank=1, step=10, exit_code=13), code=1)

    assert "rank 1 exited 13" in rig.reason("test_run_benchmark")
    assert rig.reason("test_run_benchmark").startswith("measured, bad: ")
    assert rig.outcomes()["test_teardown"] == "passed"


def test_rank_that_raises_is_named_with_its_error(rig: Any) -> None:
    rig.pytest(LOCAL, *inject(kind="raise", rank=0, step=5), code=1)

    reason = rig.reason("test_run_benchmark")
    assert "rank 0 exited" in reason
    assert "fault_injection: raised on rank 0 at step 5" in reason


def test_killed_rank_is_named_with_its_signal(rig: Any) -> None:
    rig.pytest(LOCAL, *inject(kind="kill", rank=1, step=5), code=1)

    assert "rank 1 was ended by SIGKILL" in rig.reason("test_run_benchmark")


@pytest.mark.parametrize(
    ("kind", "said"),
    [("nan", "the loss is nan on rank 1 at step 9, expected"), ("oom", "out of memory on rank 1 in step 9")],
)
def test_rank_that_cannot_go_on_is_named_in_the_trainers_words(rig: Any, kind: str, said: str) -> None:
    rig.pytest(LOCAL, *inject(kind=kind, rank=1, step=9), code=1)

    reason = rig.reason("test_run_benchmark")
    assert reason.startswith("measured, bad: ")
    assert f"rank 1 exited 1: {said}" in reason
    assert reason.endswith("(1 more rank ended after it)")


def test_hanging_rank_is_shown_with_the_stacks_of_all(rig: Any) -> None:
    rig.pytest(LOCAL, *inject(kind="hang", rank=1, step=10), "--aorta-set=stall_seconds=20", code=1)

    reason = rig.reason("test_run_benchmark")
    told = re.search(
        r"no step for \d+ s after step (\d+): rank 1 \(\S+\) in .*\(fault.py:.*; rank 0 \(\S+\) in ", reason
    )
    assert told is not None, reason
    assert int(told[1]) in {9, 10}


WRONG = {"training.max_step": 5, "profiling.repeat": 20}


def test_wrong_overrides_are_refused_before_anything_starts(rig: Any) -> None:
    sets = [f"--aorta-set=training_overrides.{name}={value}" for name, value in WRONG.items()]

    output = rig.pytest(LOCAL, *sets, code=4)

    assert re.search(r"training_overrides.training.max_step \(.*\): unknown knob; did you mean max_steps\?", output)
    assert not (rig.path / "aorta_results").exists()


def test_an_override_is_named_in_one_word(rig: Any) -> None:
    rig.configure(workload=None, training_overrides={"training": {"max_steps": 20}})

    output = rig.run(code=4)

    assert 'training_overrides.training: is no knob, expected SECTION.KNOB in one word, such as "training.' in output


def test_an_override_that_no_program_takes_is_refused(rig: Any) -> None:
    rig.configure(
        workload=None, base_config="config/tiny_cpu.yaml", training_overrides={"optimizer.name": "x" * 200_000}
    )

    assert "training_overrides: a value is longer than a program takes as one argument" in rig.run(code=4)


def test_overrides_are_checked_with_the_trainers_other_arguments(rig: Any) -> None:
    short = {"training.max_steps": 3, "scheduler.total_steps": 3, "scheduler.warmup_steps": 1}
    sets = [f"--aorta-set=training_overrides.{name}={value}" for name, value in short.items()]

    assert "the run has 3; raise training.max_steps or record less" in rig.pytest(LOCAL, *sets, code=4)

    extra = ["--override", "profiling.wait=0", "profiling.warmup=0", "profiling.active=1"]
    sets.append(f"--aorta-set=multi_node.extra_train_args={json.dumps(extra)}")
    rig.pytest(LOCAL, *sets, "-k", "test_launch_container", code=0)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--override", "training.max_step=5"], "training.max_step: unknown knob; did you mean max_steps?"),
        (["--override", "training.max_steps=zz"], "training.max_steps: is 'zz', expected an integer"),
        (["--config", "/absent.yaml"], "/absent.yaml: cannot be read"),
        (["--foo"], "unrecognized arguments: --foo"),
        (["--check"], "--check trains nothing; leave it out"),
        (["-h"], "-h trains nothing; leave it out"),
    ],
)
def test_what_the_trainers_other_arguments_hold_wrong_is_told_of_them(rig: Any, extra: list[str], said: str) -> None:
    given = f"--aorta-set=multi_node.extra_train_args={json.dumps(extra)}"

    for more in ([], ["--aorta-set=training_overrides.training.max_steps=5"]):
        assert re.search(
            rf"multi_node\.extra_train_args .*: {re.escape(said)}", rig.pytest(LOCAL, given, *more, code=4)
        )


def test_configuration_for_gpus_where_there_is_none(rig: Any) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists():
        pytest.skip("this machine has GPUs")

    output = rig.pytest(f"--aorta-config={shipped('configs/local_gpu.json')}", code=1)

    reason = rig.reason("test_run_benchmark")
    assert "the trainer refuses its configuration: train.py: " in reason
    assert reason.endswith("(no GPU was found on the head host, so the CPU was taken)")
    assert "hint: [fatal] no GPU is to be seen" in output
    assert "next: check the driver, or use a configuration for the CPU" in output


TWO_HOSTS = {
    "schema_version": 1,
    "accelerator": "cpu",
    "gpus_per_node": 1,
    "base_config": "config/tiny_cpu.yaml",
    "cluster": {"transport": "local", "node_dict": {"n1": {"vpc_ip": "127.0.0.1"}, "n2": {"vpc_ip": "127.0.0.1"}}},
    "gates": [{"metric": "step_time_ms_median", "kind": "max", "value": 5000, "over": "each"}],
    "kernel_log": {"required": False},
}


def test_a_head_that_does_not_know_its_own_address_says_so_before_the_launch(rig: Any) -> None:
    cluster = {"transport": "local", "node_dict": {"n1": {"vpc_ip": "n1.invalid"}}}
    (rig.path / "config.json").write_text(json.dumps({**TWO_HOSTS, "cluster": cluster}), "utf-8")

    rig.run(code=1)

    reason = rig.reason("test_run_benchmark")
    assert re.match(r"could not measure: n1: cannot reach the rendezvous at n1\.invalid:\d+ on n1 \(the name ", reason)


def test_two_hosts_on_this_machine(rig: Any) -> None:
    (rig.path / "config.json").write_text(json.dumps(TWO_HOSTS), "utf-8")

    rig.run(code=0)

    assert rig.letters() == "PPPSPPSPPPP"
    assert {path.name for path in (rig.folder / "combined_traces").iterdir()} == {"node_0", "node_1"}
    labels = [check["label"] for check in rig.record()["stages"]["test_validate_thresholds"]["checks"]]
    assert labels == [f"[threshold] (metric=step_time_ms_median, rank={rank})" for rank in (0, 1)]
    assert (rig.reports / "aorta_distributed.xml").is_file()


def test_failed_rank_of_another_host_names_that_host_only(rig: Any) -> None:
    (rig.path / "config.json").write_text(json.dumps(TWO_HOSTS), "utf-8")

    rig.run(*inject(kind="exit", rank=1, step=10, exit_code=13), code=1)

    reason = rig.reason("test_run_benchmark")
    assert reason == "measured, bad: n2: rank 1 exited 13 (1 more host ended after it)"
    verdict = json.loads((rig.folder / "verdict.json").read_text("utf-8"))
    assert [host["host"] for host in verdict["hosts"]] == ["n2"]
