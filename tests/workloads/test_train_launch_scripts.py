"""The launch scripts: they print what they start, forward every argument, and refuse a machine without devices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = ("launch_rocm.sh", "launch_cuda.sh")
SPY = """#!/bin/sh
printf '%s\\n' "$@" >arguments
echo "HIP=$HIP_VISIBLE_DEVICES CONNECTIONS=$CUDA_DEVICE_MAX_CONNECTIONS" >variables
"""


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def launch(
    tree: Path, script: str, folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{folder}:/usr/bin:/bin", **variables}
    command = ["bash", str(tree / "scripts" / script), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_argument_reaches_train_py(tree: Path, tmp_path: Path, script: str) -> None:
    python = str(write_program(tmp_path / "spy", SPY))
    given = ["my config.yaml", "--override", "a.b=[1, 2]", "c.d=$HOME 'x'", "--override", "e.f="]
    ended = launch(tree, script, tmp_path, *given, NPROC="3", PYTHON=python)
    assert ended.returncode == 0, ended.stderr
    train = str(tree / "train.py")
    assert (tmp_path / "arguments").read_text().splitlines() == [
        *["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "3", train, "--config"],
        *given,
    ]
    assert ended.stdout.startswith(f"{python} -m torch.distributed.run --standalone --nproc_per_node 3 ")
    assert "my\\ config.yaml" in ended.stdout


def test_devices_are_counted_by_what_is_visible(tree: Path, tmp_path: Path) -> None:
    python = str(write_program(tmp_path / "spy", SPY))
    for script, name in (("launch_rocm.sh", "HIP_VISIBLE_DEVICES"), ("launch_cuda.sh", "CUDA_VISIBLE_DEVICES")):
        launch(tree, script, tmp_path, "c.yaml", PYTHON=python, **{name: "4,5,6,7"})
        assert (tmp_path / "arguments").read_text().splitlines()[4] == "4"


def test_devices_are_counted_by_the_vendors_tool(tree: Path, tmp_path: Path) -> None:
    python = str(write_program(tmp_path / "spy", SPY))
    write_program(tmp_path / "rocminfo", "#!/bin/sh\nprintf '  Device Type:             %s\\n' CPU GPU GPU\n")
    write_program(tmp_path / "nvidia-smi", "#!/bin/sh\nprintf 'GPU %s: NVIDIA H200\\n' 0 1 2\n")
    launch(tree, "launch_rocm.sh", tmp_path, "c.yaml", PYTHON=python)
    assert (tmp_path / "arguments").read_text().splitlines()[4] == "2"
    assert (tmp_path / "variables").read_text() == "HIP=0,1 CONNECTIONS=\n"
    launch(tree, "launch_cuda.sh", tmp_path, "c.yaml", PYTHON=python)
    assert (tmp_path / "arguments").read_text().splitlines()[4] == "3"
    assert (tmp_path / "variables").read_text() == "HIP= CONNECTIONS=1\n"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_machine_without_devices_is_refused(tree: Path, tmp_path: Path, script: str) -> None:
    python = str(write_program(tmp_path / "spy", "#!/bin/sh\necho 0\n"))
    ended = launch(tree, script, tmp_path, "c.yaml", PYTHON=python)
    assert ended.returncode == 2
    assert "expected at least one" in ended.stderr
    assert "or set NPROC" in ended.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_a_configuration_the_usage_is_shown(tree: Path, tmp_path: Path, script: str) -> None:
    ended = launch(tree, script, tmp_path)
    assert (ended.returncode, ended.stderr[:6]) == (2, "usage:")


@pytest.mark.torch
def test_a_run_is_really_started(tree: Path, tiny_config: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the workload needs torch")
    overrides = ["profiling.enabled=false", "distributed.mode=ddp", "training.max_steps=2"]
    arguments = [str(tiny_config), "--override", *overrides]
    ended = launch(tree, "launch_rocm.sh", tmp_path, *arguments, NPROC="2", PYTHON=sys.executable, OMP_NUM_THREADS="1")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count('{"aorta": "step"') == 2
    assert (tmp_path / "artifacts" / "tiny_cpu" / "rank_01_metrics.jsonl").is_file()


@pytest.mark.parametrize(
    ("visible", "count"),
    [("0,-1,1", "1"), ("-1", None), ("", None), ("NoDevFiles", None), ("GPU-12ab-34cd,GPU-56ef-78ab", "2")],
)
def test_devices_that_are_named_but_not_seen_do_not_count(
    tree: Path, tmp_path: Path, visible: str, count: str | None
) -> None:
    python = str(write_program(tmp_path / "spy", SPY))
    ended = launch(tree, "launch_cuda.sh", tmp_path, "c.yaml", PYTHON=python, CUDA_VISIBLE_DEVICES=visible)
    if count is None:
        assert ended.returncode == 2
        assert "found '0' NVIDIA GPUs" in ended.stderr
    else:
        assert (tmp_path / "arguments").read_text().splitlines()[4] == count


@pytest.mark.parametrize("script", SCRIPTS)
def test_odd_starts_are_refused(tree: Path, tmp_path: Path, script: str) -> None:
    assert "usage: " in launch(tree, script, tmp_path, "--help").stderr
    assert (
        "NPROC is '99999999999999999999', expected a number of ranks"
        in launch(tree, script, tmp_path, "c.yaml", NPROC="99999999999999999999").stderr
    )
