"""What a user got wrong: one sentence on stderr, exit 2, no traceback, nothing started."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

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


RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


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


def test_wrong_arguments_show_the_usage(start_alone: Start, tmp_path: Path) -> None:
    ended = start_alone(tmp_path, "--konfig", "x")
    assert ended.returncode == 2
    assert "usage: train.py" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_options_are_listed_without_a_configuration(start_alone: Start, tmp_path: Path) -> None:
    ended = start_alone(tmp_path, "--list-options")
    assert ended.returncode == 0
    assert "| `training.batch_size` |" in ended.stdout
