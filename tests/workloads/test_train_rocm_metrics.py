from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aorta_train.rocm_metrics import sampling, take_sample

Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a tool that runs a shell script in the place of all that is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(script: str, name: str = "rocm-smi") -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


def test_what_the_tool_says_is_a_sample(tool: Callable[[str], None]) -> None:
    tool('echo "{\\"card0\\": {}}"; echo careful >&2; exit 3')
    sample = take_sample(30, threading.Event())
    assert sample["rocm_smi_exit_code"] == 3
    assert json.loads(sample["rocm_smi_output"]) == {"card0": {}}
    assert sample["rocm_smi_stderr"] == "careful\n"
    assert "rocm_smi_error" not in sample


def test_the_newer_tool_is_asked_where_the_older_is_missing(tool: Callable[..., None]) -> None:
    tool("echo newer $1", name="amd-smi")
    assert take_sample(30, threading.Event())["rocm_smi_output"] == "newer metric\n"


def test_a_tool_that_hangs_is_written_down(tool: Callable[[str], None]) -> None:
    tool("exec /bin/sleep 600")
    assert take_sample(0.2, threading.Event())["rocm_smi_error"] == "rocm-smi did not answer within 0.2 s"


def test_a_missing_tool_is_written_down(tool: Callable[[str], None]) -> None:
    assert take_sample(30, threading.Event())["rocm_smi_error"] == "neither rocm-smi nor amd-smi is on PATH"


def test_a_tool_that_cannot_run_is_written_down(tool: Callable[[str], None], tmp_path: Path) -> None:
    tool("")
    (tmp_path / "bin" / "rocm-smi").write_text("#!/nowhere/at/all\n")
    assert (
        take_sample(30, threading.Event())["rocm_smi_error"] == "rocm-smi cannot be started: No such file or directory"
    )


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_samples_are_taken_beside_the_work_until_its_end(tool: Callable[[str], None], tmp_path: Path) -> None:
    tool("echo seen")
    file = tmp_path / "rocm_metrics_00.jsonl"
    with sampling(file, interval_s=0.01):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (not file.exists() or len(lines_of(file)) < 3):
            time.sleep(0.01)
    num_lines = len(lines_of(file))
    assert {line["rocm_smi_output"] for line in lines_of(file)} == {"seen\n"}
    assert num_lines == len(lines_of(file)) >= 3


def test_a_short_run_has_one_sample(tool: Callable[[str], None], tmp_path: Path) -> None:
    tool("echo seen")
    file = tmp_path / "rocm_metrics_00.jsonl"
    with sampling(file, interval_s=3600):
        pass
    assert [line["rocm_smi_output"] for line in lines_of(file)] == ["seen\n"]


def test_a_tool_that_hangs_does_not_hold_up_the_end(tool: Callable[[str], None], tmp_path: Path) -> None:
    tool("exec /bin/sleep 600")
    file = tmp_path / "rocm_metrics_00.jsonl"
    with sampling(file, timeout_s=600):
        pass
    assert [line["rocm_smi_error"] for line in lines_of(file)] == ["rocm-smi had not answered when the training ended"]


@pytest.mark.torch
def test_without_amd_gpus_a_sentence_says_so(start_alone: Start, tiny_config: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the workload needs torch")
    overrides = ["profiling.enabled=false", "training.max_steps=1", "training.output_dir=out"]
    ended = start_alone(
        tmp_path,
        "--config",
        str(tiny_config),
        "--enable-rocm-metrics",
        "--override",
        *overrides,
        CUDA_VISIBLE_DEVICES="",
    )
    assert ended.returncode == 0
    assert "--enable-rocm-metrics does nothing on cpu: rocm-smi knows AMD GPUs only" in ended.stderr
    assert list((tmp_path / "out").glob("rocm_metrics_*")) == []
