"""Ends that nobody planned: signals, faults, a launcher that is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.workloads.vanishing import vanishes

pytest.importorskip("torch", reason="the workload needs torch")
pytestmark = pytest.mark.torch

Start = Callable[..., subprocess.CompletedProcess[str]]
SLOW = """
import sys, time
sys.path.insert(0, sys.argv[1])
from aorta_train.loop import Steps
from aorta_train.main import main

take = Steps.take

def take_a_second(self, *given):
    time.sleep(1)
    return take(self, *given)

Steps.take = take_a_second
sys.exit(main(sys.argv[2:]))
"""
"""The trainer with steps of a second."""
ENDLESS = ["profiling.enabled=false", "training.max_steps=1000000", "training.output_dir=out", "distributed.mode=ddp"]


@contextmanager
def running(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a session of its own; whatever a test does, nothing of it stays."""
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for pid in [*children_of(process.pid), process.pid]:
            kill(pid)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def rank_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(variable.partition("=")[::2] for variable in variables)["RANK"]


def wait_for_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith('{"aorta"') and json.loads(line)["step"] >= step:
            return
    pytest.fail(f"the run ended before step {step}")


def last_lines(folder: Path, num_ranks: int) -> list[dict[str, Any]]:
    files = [folder / "out" / f"rank_0{rank}_metrics.jsonl" for rank in range(num_ranks)]
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def arguments(tiny_config: Path, *overrides: str) -> list[str]:
    return ["--config", str(tiny_config), "--override", *ENDLESS, *overrides]


def test_sigterm_to_one_rank_ends_all_after_the_same_step(
    torchrun_command: list[str], rank_environment: dict[str, str], tree: Path, tiny_config: Path, tmp_path: Path
) -> None:
    command = [*torchrun_command, "2", str(tree / "train.py"), *arguments(tiny_config)]
    with running(command, tmp_path, rank_environment) as process:
        wait_for_step(process, 3)
        one = next(pid for pid in children_of(process.pid) if rank_of(pid) == "1")
        os.kill(one, signal.SIGTERM)
        process.communicate(timeout=60)
    ends = last_lines(tmp_path, 2)
    assert [end["exit"] for end in ends] == ["terminated", "terminated"]
    assert ends[0]["steps"] == ends[1]["steps"] >= 3
    report = (tmp_path / "stderr").read_text()
    assert "exitcode  : 143" in report
    assert report.count("stopped by SIGTERM after step") == 1
    assert report.count("ended because rank 1 got SIGTERM, after step") == 1


def test_sigterm_finishes_the_step_and_exits_143(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    command = [*train_command, *arguments(tiny_config, "dataloader.num_workers=1")]
    with running(command, tmp_path, rank_environment) as process:
        wait_for_step(process, 2)
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 143
    steps = [json.loads(line) for line in (tmp_path / "out" / "rank_00_metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["exit"] == "terminated"
    assert steps[-1]["steps"] == steps[-2]["global_step"]


def test_the_grace_is_one_of_each_step_and_not_of_all_that_is_left(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    slow = [train_command[0], str(tmp_path / "slow.py"), str(Path(train_command[1]).parent)]
    command = [*slow, *arguments(tiny_config, "training.stop_grace_seconds=1.5")]
    with running(command, tmp_path, rank_environment) as process:
        wait_for_step(process, 2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert last_lines(tmp_path, 1)[0]["exit"] == "terminated"


def test_a_stop_within_a_cycle_writes_the_trace_as_far_as_it_came(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    command = [*train_command, *arguments(tiny_config, "profiling.enabled=true", "profiling.active=999000")]
    with running(command, tmp_path, rank_environment) as process:
        wait_for_step(process, 6)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    (trace,) = (tmp_path / "out" / "torch_profiler" / "rank0").iterdir()
    assert "ProfilerStep#3" in trace.read_text()


def test_an_interrupt_before_the_steps_ends_the_run_at_once_without_a_traceback(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    with running([*train_command, *arguments(tiny_config)], tmp_path, rank_environment) as process:
        while not (tmp_path / "out/flight_recorder").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT
    assert (tmp_path / "stderr").read_text() == ""


def test_a_rank_that_starts_after_its_launcher_went_leaves(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    # in a session of its own, as torchrun starts it
    going = ["sh", "-c", 'setsid "$@" >/dev/null & echo $!', "sh", *train_command, *arguments(tiny_config)]
    with (tmp_path / "stderr").open("w") as errors:
        started = subprocess.run(
            going, cwd=tmp_path, env={**rank_environment, **rank, **address}, stdout=subprocess.PIPE, stderr=errors,
            text=True, timeout=60, check=True,
        )  # fmt: skip
    pid = int(started.stdout)
    try:
        if orphans_have_a_python_program_above_them():
            pytest.skip("orphans are adopted by a Python program here, which could be a launcher")
        assert vanishes(pid)
    finally:
        kill(pid)
    assert (tmp_path / "stderr").read_text() == "train.py: the launcher of this rank is gone; leaving\n"


def orphans_have_a_python_program_above_them() -> bool:
    started = subprocess.run(["sh", "-c", "sleep 30 >&- & echo $!"], stdout=subprocess.PIPE, text=True, check=True)
    orphan = pid = int(started.stdout)
    commands = []
    while pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]):
        commands.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    kill(orphan)
    return any(b"python" in command or b"torch" in command for command in commands)


PATIENT = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from aorta_train.stop import StopSignals

with StopSignals(0.2, 0) as signals:
    if sys.argv[2] == "writes":
        signals.suspend()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
"""


@pytest.mark.parametrize(("what", "code"), [("writes", 0), ("hangs", 143)])
def test_a_trace_is_written_to_its_end_however_long_that_takes(tree: Path, what: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", PATIENT, str(tree), what], capture_output=True, check=False)
    assert ended.returncode == code, ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a first process")
def test_a_rank_that_is_the_first_process_of_a_container_ends_before_its_steps(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    alone = ["unshare", "--pid", "--fork", "--mount-proc", *train_command]
    with running([*alone, *arguments(tiny_config)], tmp_path, rank_environment) as process:
        while not (tmp_path / "out/flight_recorder").exists():
            assert process.poll() is None
        (rank,) = children_of(process.pid)
        os.kill(rank, signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert (tmp_path / "stderr").read_text() == ""


def test_a_tool_that_makes_a_session_may_stand_between_a_rank_and_its_launcher(
    torchrun_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tree: Path, tmp_path: Path
) -> None:
    script = tmp_path / "apart"
    script.write_text('setsid -w "$@"\nexit $?\n')
    rank = ["sh", str(script), sys.executable, str(tree / "train.py"), *arguments(tiny_config)]
    with running([*torchrun_command, "1", "--no-python", *rank], tmp_path, rank_environment) as process:
        wait_for_step(process, 3)
        ((pid,),) = (children_of(shell) for shell in children_of(process.pid))
        kill(process.pid)
        assert vanishes(pid)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("bash", '"$@"\nexit $?\n'),
        (sys.executable, "import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n"),
    ],
)
def test_a_script_may_stand_between_a_rank_and_its_launcher(
    torchrun_command: list[str],
    rank_environment: dict[str, str],
    tiny_config: Path,
    tree: Path,
    tmp_path: Path,
    program: str,
    text: str,
) -> None:
    script = tmp_path / "bind"
    script.write_text(text)
    rank = [program, str(script), sys.executable, str(tree / "train.py"), *arguments(tiny_config)]
    with running([*torchrun_command, "2", "--no-python", *rank], tmp_path, rank_environment) as process:
        wait_for_step(process, 3)
        scripts = children_of(process.pid)
        ranks = [child for pid in scripts for child in children_of(pid)]
        assert len(ranks) == 2
        kill(process.pid)
        for pid in ranks:
            assert vanishes(pid)


def test_a_hanging_rank_shows_its_stacks_and_leaves_when_told_to_stop(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    hang = ["fault_injection.kind=hang", "fault_injection.step=3", "training.stop_grace_seconds=0.2"]
    command = [*train_command, *arguments(tiny_config, *hang, "dataloader.num_workers=1")]
    with TemporaryDirectory(dir="/tmp") as place:  # the names of sockets in it may not be long
        with running(command, tmp_path, {**rank_environment, "TMPDIR": place}) as process:
            wait_for_step(process, 2)
            wait_until_asleep(process, tmp_path)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            assert process.returncode == 143
        assert list(Path(place).glob("pymp-*")) == []
    errors = (tmp_path / "stderr").read_text()
    assert "rank 0: no step ended for 0.2 s after SIGTERM; stacks follow\n" in errors


def wait_until_asleep(process: subprocess.Popen[str], folder: Path) -> None:
    """Ask for stacks, not too often, until they show the place where the rank hangs."""
    while "_hang_on_purpose" not in (folder / "stderr").read_text():
        assert process.poll() is None
        time.sleep(0.5)
        process.send_signal(signal.SIGUSR1)


def test_a_rank_outlives_no_launcher(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    launcher = ["sh", "-c", '"$@" & wait', "launcher", *train_command, *arguments(tiny_config)]
    with running(launcher, tmp_path, {**rank_environment, **rank, **address}) as process:
        wait_for_step(process, 2)
        (child,) = children_of(process.pid)
        kill(process.pid)
        assert process.stdout is not None
        process.stdout.read()
        assert vanishes(child)
    assert "the launcher of this rank is gone; leaving" in (tmp_path / "stderr").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process that cannot see its parent")
def test_a_rank_that_cannot_see_its_launcher_trains(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    launched = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    alone = ["unshare", "--pid", "--fork", "--mount-proc", *train_command]
    short = ["profiling.enabled=false", "training.max_steps=2"]
    ended = subprocess.run(
        [*alone, "--config", str(tiny_config), "--override", *short],
        cwd=tmp_path,
        env={**rank_environment, **launched, **address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_rank_that_raises_ends_the_job_with_its_traceback(
    start_ranks: Start, tree: Path, tiny_config: Path, tmp_path: Path
) -> None:
    fault = ["fault_injection.kind=raise", "fault_injection.rank=1", "fault_injection.step=3"]
    ended = start_ranks(tmp_path, tree / "train.py", *arguments(tiny_config, *fault, "distributed.mode=fsdp"))
    assert ended.returncode == 1
    assert "[rank1]: Traceback" in ended.stderr
    assert "RuntimeError: fault_injection: raised on rank 1 at step 3, as configured" in ended.stderr
    end = last_lines(tmp_path, 2)[1]
    assert (end["exit"], end["steps"], end["weights_checksum"]) == ("failed", 2, None)


def test_a_loss_that_is_no_number_ends_the_job_with_one_sentence(
    start_ranks: Start, tree: Path, tiny_config: Path, tmp_path: Path
) -> None:
    fault = ["fault_injection.kind=nan", "fault_injection.rank=1", "fault_injection.step=4"]
    ended = start_ranks(tmp_path, tree / "train.py", *arguments(tiny_config, *fault, "training.grad_clip_norm=0"))
    assert ended.returncode == 1
    sentences = {line for line in ended.stderr.splitlines() if line.startswith("train.py: ")}
    advice = "expected a finite number; lower optimizer.lr or check the device"
    own = f"train.py: the loss is nan on rank 1 at step 4, {advice}"
    assert sentences == {own, "train.py: ended because rank 1 failed"}
    assert [(end["exit"], end["steps"]) for end in last_lines(tmp_path, 2)] == [("failed", 5), ("failed", 5)]
    lines = (tmp_path / "out" / "rank_01_metrics.jsonl").read_text().splitlines()
    step = json.loads(lines[3])
    assert (step["global_step"], step["loss"], step["grad_norm"]) == (4, None, None)


def test_want_of_memory_ends_the_job_with_one_sentence(
    start_ranks: Start, tree: Path, tiny_config: Path, tmp_path: Path
) -> None:
    fault = ["fault_injection.kind=oom", "fault_injection.rank=1", "fault_injection.step=4"]
    ended = start_ranks(tmp_path, tree / "train.py", *arguments(tiny_config, *fault))
    assert ended.returncode == 1
    (sentence,) = [line for line in ended.stderr.splitlines() if line.startswith("train.py: ")]
    assert sentence.startswith("train.py: out of memory on rank 1 in step 4: ")
    assert "[rank1]: Traceback" not in ended.stderr
    end = last_lines(tmp_path, 2)[1]
    assert (end["exit"], end["steps"]) == ("failed", 3)


def test_a_collective_that_takes_too_long_ends_the_job(
    start_ranks: Start, tree: Path, tiny_config: Path, tmp_path: Path
) -> None:
    hang = ["fault_injection.kind=hang", "fault_injection.rank=1", "fault_injection.step=3"]
    overrides = [*hang, "distributed.mode=fsdp", "distributed.timeout_seconds=3"]
    ended = start_ranks(tmp_path, tree / "train.py", *arguments(tiny_config, *overrides))
    assert ended.returncode == 1
    assert "[rank0]: Traceback" in ended.stderr
    assert [end["steps"] for end in last_lines(tmp_path, 1)] == [2]


def test_a_killed_rank_ends_the_others(start_ranks: Start, tree: Path, tiny_config: Path, tmp_path: Path) -> None:
    fault = ["fault_injection.kind=kill", "fault_injection.rank=1", "fault_injection.step=4"]
    ended = start_ranks(tmp_path, tree / "train.py", *arguments(tiny_config, *fault, "distributed.mode=fsdp"))
    assert ended.returncode == 1
    assert "Signal 9 (SIGKILL)" in ended.stderr
    lines = (tmp_path / "out" / "rank_01_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["global_step"] for line in lines] == [1, 2, 3]


@pytest.mark.parametrize(("kind", "code"), [("exit", 21), ("kill", -signal.SIGKILL)])
def test_a_rank_can_be_made_to_exit_or_die(
    start_alone: Start, tiny_config: Path, tmp_path: Path, kind: str, code: int
) -> None:
    fault = [f"fault_injection.kind={kind}", "fault_injection.step=2", "fault_injection.exit_code=21"]
    ended = start_alone(tmp_path, *arguments(tiny_config, *fault))
    assert ended.returncode == code
    lines = (tmp_path / "out" / "rank_00_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["global_step"] for line in lines] == [1]
