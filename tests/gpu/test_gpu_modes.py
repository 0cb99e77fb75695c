"""Every mode in every precision on real GPUs, by the trainer's own command line."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu(2), pytest.mark.torch]

TREE = Path(__file__).parents[2] / "workloads"
STEPS = 8


def train(folder: Path, *overrides: str) -> list[dict[str, Any]]:
    """Train on two GPUs and give the lines of rank 0."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--log-dir", str(folder / "l")]
    given = ["distributed.device=gpu", f"training.max_steps={STEPS}", f"training.output_dir={folder}", *overrides]
    ended = subprocess.run(
        [sys.executable, *launcher, str(TREE / "train.py"), "--config", str(TREE / "config/tiny_cpu.yaml"),
         "--override", "profiling.enabled=false", *given],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads(line) for line in (folder / "rank_00_metrics.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("precision", ["none", "bf16", "fp16"])
def test_modes_train_alike(tmp_path: Path, precision: str) -> None:
    losses: dict[str, list[float]] = {}
    for mode in ("fsdp", "fsdp2", "ddp"):
        folder = tmp_path / mode
        folder.mkdir()
        *steps, end = train(folder, f"distributed.mode={mode}", f"training.mixed_precision={precision}")
        assert (end["exit"], end["mode"], end["device"]) == ("completed", mode, "cuda")
        assert end["dtype"] == {"none": "fp32"}.get(precision, precision)
        losses[mode] = [step["loss"] for step in steps]
        assert len(losses[mode]) == STEPS
        assert all(math.isfinite(loss) for loss in losses[mode])
    exact = precision == "none"
    for mode in ("fsdp2", "ddp"):
        assert losses[mode] == pytest.approx(losses["fsdp"], rel=1e-5 if exact else 2e-2)


@pytest.mark.parametrize("mode", ["fsdp", "fsdp2"])
def test_layers_that_share_a_unit_train_as_those_that_do_not(tmp_path: Path, mode: str) -> None:
    found = []
    for layers_per_unit in (1, 2):
        folder = tmp_path / str(layers_per_unit)
        folder.mkdir()
        *steps, end = train(folder, f"distributed.mode={mode}", f"fsdp.layers_per_unit={layers_per_unit}")
        assert end["exit"] == "completed"
        found.append([step["loss"] for step in steps])
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize(
    ("mode", "compile_mode"),
    [("fsdp2", "default"), ("fsdp", "max-autotune"), ("fsdp2", "max-autotune"), ("ddp", "max-autotune")],
)
def test_compiled_layers_train_as_eager_ones(tmp_path: Path, mode: str, compile_mode: str) -> None:
    """The mode max-autotune, the default, records CUDA graphs, whose inputs must stay where they are."""
    found = []
    for compiled in ("false", "true"):
        folder = tmp_path / compiled
        folder.mkdir()
        *steps, end = train(
            folder,
            f"distributed.mode={mode}",
            f"compile.enabled={compiled}",
            f"compile.mode={compile_mode}",
            "model.dropout=0",
        )
        assert end["compile"] == {"false": "off", "true": "compiled"}[compiled]
        found.append([step["loss"] for step in steps])
    assert found[1] == pytest.approx(found[0], rel=2e-2)
