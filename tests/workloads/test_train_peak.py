from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
from aorta_train.loading import load
from aorta_train.peak import Peak, measured_tflops, peak_of
from aorta_train.step_log import Work

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_of_every_type_have_a_rate(dtype: torch.dtype) -> None:
    assert measured_tflops(dtype, CPU) > 0


def test_the_configuration_says_where_the_peak_comes_from(tiny_config: Path) -> None:
    assert peak_of(load(tiny_config), CPU) == Peak(None, None)
    assert peak_of(load(tiny_config, ["benchmark.peak_tflops=800"]), CPU) == Peak(800.0, "given")
    assert peak_of(load(tiny_config, ["benchmark.measure_peak=true"]), CPU).source == "measured"


def test_utilization_is_the_share_of_the_peak() -> None:
    work = Work(flops_per_token=3 * 10**9, peak=Peak(600.0, "given"))
    assert work.tflops_per_s(tokens=50_000, seconds=0.5) == 300.0
    assert work.utilization(tokens=50_000, seconds=0.5) == 0.5
    assert Work(10**9, Peak()).utilization(tokens=1, seconds=1.0) is None
    assert work.utilization(tokens=1, seconds=0.0) is None


def test_a_run_holds_its_steps_against_a_measured_peak(start_alone: Start, tiny_config: Path, tmp_path: Path) -> None:
    overrides = ["profiling.enabled=false", "training.max_steps=3", "training.output_dir=out"]
    ended = start_alone(tmp_path, "--config", str(tiny_config), "--override", *overrides, "benchmark.measure_peak=true")
    assert ended.returncode == 0, ended.stderr
    *steps, end = [json.loads(line) for line in (tmp_path / "out" / "rank_00_metrics.jsonl").read_text().splitlines()]
    assert end["peak_source"] == "measured"
    for line in steps:
        tflops_per_s = line["model_flops"] / line["step_ms"] / 1e9
        assert line["utilization"] == pytest.approx(tflops_per_s / end["peak_tflops"], rel=1e-3, abs=1e-6)
    beats = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [beat["utilization"] for beat in beats] == [line["utilization"] for line in steps]
    assert [beat["model_tflops_per_s"] for beat in beats] == [line["model_tflops_per_s"] for line in steps]
