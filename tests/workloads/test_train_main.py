"""What a user got wrong: one sentence on stderr, exit 2, no traceback, nothing started."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from aorta_train.main import SECONDS_TO_SAY_IT

pytestmark = pytest.mark.torch
pytest.importorskip("torch", reason="the workload needs torch")

Start = Callable[..., subprocess.CompletedProcess[str]]


def test_faults_are_sentences_before_torch_is_there(start_alone: Start, tiny_config: Path, tmp_path: Path) -> None:
    ended = start_alone(
        tmp_path, "--config", str(tiny_config), "--override", "training.bach_size=2", "--override", "optimizer.lr=-1"
    )
    assert ended.returncode == 2
    assert sorted(ended.stderr.splitlines()) == [
        "train.py: --override optimizer.lr: is -1.0, expected more than 0",
        "train.py: --override training.bach_size: unknown knob; did you mean batch_size?",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["fsdp.limit_all_gathers=true"], "fsdp.limit_all_gathers: does nothing on cpu"),
        (["training.output_dir=/proc/none"], "training.output_dir: /proc/none cannot be made"),
        (
            ["training.max_steps=4"],
            "profiling: (wait 1 + warmup 1 + active 3) x repeat 1 needs 5 steps, but the run has 4",
        ),
        (["distributed.device=gpu"], "distributed.device: is gpu, but torch sees none"),
    ],
)
def test_what_does_not_fit_the_machine_or_the_run_is_one_sentence(
    start_alone: Start, tiny_config: Path, tmp_path: Path, overrides: list[str], sentence: str
) -> None:
    ended = start_alone(tmp_path, "--config", str(tiny_config), "--override", *overrides, CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    lines = ended.stderr.splitlines()
    assert len(lines) == 1
    assert sentence in lines[0]


def test_a_cpu_that_nobody_asked_for_is_told_before_what_does_not_fit_it(
    start_alone: Start, tree: Path, tmp_path: Path
) -> None:
    config = str(tree / "config/profile_overlap_2gpu.yaml")
    ended = start_alone(tmp_path, "--config", config, CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    first, *others = ended.stderr.splitlines()
    assert "sees no GPU, so distributed.device auto is the CPU" in first
    assert any("does nothing on cpu" in fault for fault in others)


MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", **MASTER}


def test_another_rank_of_a_node_says_it_when_the_first_has_not(start_alone: Start, tmp_path: Path) -> None:
    begin = time.monotonic()
    ended = start_alone(tmp_path, "--config", "none.yaml", **RANK_1)
    assert time.monotonic() - begin >= SECONDS_TO_SAY_IT
    assert ended.returncode == 2
    assert ended.stderr.startswith("train.py: none.yaml")
    assert len(ended.stderr.splitlines()) == 1


def test_under_a_launcher_the_sentence_is_said_once_and_never_lost(
    start_ranks: Start, tree: Path, tmp_path: Path
) -> None:
    for _ in range(3):
        ended = start_ranks(tmp_path, tree / "train.py", "--config", "none.yaml", num_ranks=3)
        assert ended.stderr.count("train.py: none.yaml") == 1


def test_wrong_arguments_are_told_once_under_a_launcher(start_ranks: Start, tree: Path, tmp_path: Path) -> None:
    ended = start_ranks(tmp_path, tree / "train.py", "--konfig", "x")
    assert ended.stderr.count("usage: train.py") == 1


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ("flight_recorder", "flight_recorder cannot be made: File exists"),
        ("torch_profiler", "torch_profiler/rank0 cannot be made: Not a directory"),
        ("rank_00_metrics.jsonl/", "rank_00_metrics.jsonl is a folder, expected a file or nothing"),
        ("rank_00_metrics.jsonl|", "rank_00_metrics.jsonl is a pipe, expected a file or nothing"),
    ],
)
def test_an_output_folder_that_cannot_hold_the_output_is_refused(
    start_alone: Start, tiny_config: Path, tmp_path: Path, made: str, sentence: str
) -> None:
    place = tmp_path / "out" / made.rstrip("/|")
    place.parent.mkdir(parents=True)
    make = {"/": os.mkdir, "|": os.mkfifo}.get(made[-1], Path.touch)
    make(place)
    ended = start_alone(tmp_path, "--config", str(tiny_config), "--override", "training.output_dir=out")
    assert ended.returncode == 2
    assert ended.stderr.startswith("train.py: training.output_dir: ")
    assert sentence in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("num_bytes", [75, 76])
def test_a_temporary_folder_too_long_for_sockets_is_refused(
    start_alone: Start, tiny_config: Path, tmp_path: Path, num_bytes: int
) -> None:
    short = ["training.max_steps=2", "profiling.enabled=false"]
    with TemporaryDirectory(dir="/tmp") as base:
        folder = Path(base) / ("x" * (num_bytes - len(base) - 1))
        folder.mkdir()
        arguments = ["--config", str(tiny_config), "--override", *short]
        ended = start_alone(tmp_path, *arguments, "dataloader.num_workers=1", TMPDIR=str(folder))
        without = start_alone(tmp_path, *arguments, "dataloader.num_workers=0", TMPDIR=str(folder))
    assert without.returncode == 0, without.stderr
    if num_bytes == 75:
        assert ended.returncode == 0, ended.stderr
    else:
        assert ended.returncode == 2
        assert "has 76 bytes; the processes that make samples put sockets there, expected at most 75" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_a_home_that_is_not_there_is_refused(start_alone: Start, tiny_config: Path, tmp_path: Path) -> None:
    where = "training.output_dir=~no_such_user/x"
    ended = start_alone(tmp_path, "--config", str(tiny_config), "--override", where)
    assert ended.returncode == 2
    assert ended.stderr == "train.py: training.output_dir: ~no_such_user/x: no such home folder; name another\n"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("compile.backend=nosuch", "compile.backend: is 'nosuch', expected one of "),
        ("compile.mode=nosuch", "compile.mode: is 'nosuch', expected one of default, "),
        ('compile.options={"nosuch":1}', "compile.options: 'nosuch' is no option of inductor"),
        ('compile.options={"max_autotune":"on"}', "compile.options: 'max_autotune' is 'on': Unexpected type"),
    ],
)
def test_what_the_compiler_does_not_know_is_refused(
    start_alone: Start, tiny_config: Path, tmp_path: Path, override: str, sentence: str
) -> None:
    ended = start_alone(tmp_path, "--config", str(tiny_config), "--override", "compile.enabled=true", override)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"train.py: {sentence}")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("what", ["rank_00_metrics.jsonl", "stdout"])
def test_lines_that_cannot_be_written_end_the_run_with_a_sentence(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path, what: str
) -> None:
    (tmp_path / "out").mkdir()
    if what != "stdout":
        (tmp_path / "out" / what).symlink_to("/dev/full")
    command = [*train_command, "--config", str(tiny_config), "--override", "training.output_dir=out"]
    with Path("/dev/full" if what == "stdout" else "/dev/null").open("w") as stdout:
        ended = subprocess.run(
            command, cwd=tmp_path, env=rank_environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert f"{what} cannot be written: No space left on device" in ended.stderr


def test_what_went_wrong_first_is_told_although_the_last_line_cannot_be_written(
    start_alone: Start, tiny_config: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/rank_00_metrics.jsonl").symlink_to("/dev/full")
    overrides = ["training.output_dir=out", "profiling.enabled=false", "fault_injection.kind=raise"]
    ended = start_alone(tmp_path, "--config", str(tiny_config), "--override", *overrides)
    assert ended.returncode == 1
    assert "rank_00_metrics.jsonl cannot be written: No space left on device" in ended.stderr
    assert "Error: fault_injection" in ended.stderr


def test_a_torch_that_is_too_old_is_refused(start_alone: Start, tiny_config: Path, tmp_path: Path) -> None:
    about = tmp_path / "torch-2.3.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.3.1\n")
    ended = start_alone(tmp_path, "--config", str(tiny_config), PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.startswith("train.py: torch 2.3.1 is installed for ")
    assert ended.stderr.endswith(", expected 2.4 or newer\n")


def test_a_trace_that_cannot_be_written_fails_the_run(
    train_command: list[str], rank_environment: dict[str, str], tiny_config: Path, tmp_path: Path
) -> None:
    limited = ["sh", "-c", 'ulimit -f 64; exec "$@"', "sh", *train_command]
    command = [*limited, "--config", str(tiny_config), "--override", "training.output_dir=out"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=rank_environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "train.py: the trace cannot be written to out/torch_profiler/rank0: " in ended.stderr
    assert list((tmp_path / "out/torch_profiler/rank0").iterdir()) == []
    last = json.loads((tmp_path / "out/rank_00_metrics.jsonl").read_text().splitlines()[-1])
    assert (last["final"], last["exit"]) == (True, "failed")


def test_wrong_arguments_show_the_usage(start_alone: Start, tmp_path: Path) -> None:
    ended = start_alone(tmp_path, "--konfig", "x")
    assert ended.returncode == 2
    assert "usage: train.py" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("override", "code", "said"),
    [
        ("training.max_steps=5", 0, ""),
        ("training.max_step=5", 2, "train.py: --override training.max_step: unknown knob; did you mean max_steps?\n"),
    ],
)
def test_options_are_checked_without_training(
    start_alone: Start, tmp_path: Path, tiny_config: Path, override: str, code: int, said: str
) -> None:
    ended = start_alone(tmp_path, "--config", str(tiny_config), "--check", "--override", override)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", said)
    assert list(tmp_path.iterdir()) == []


def test_options_are_listed_without_a_configuration(start_alone: Start, tmp_path: Path) -> None:
    ended = start_alone(tmp_path, "--list-options")
    assert ended.returncode == 0
    assert "| `training.batch_size` |" in ended.stdout
