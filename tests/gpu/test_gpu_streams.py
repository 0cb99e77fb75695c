"""Streams of collectives and their timing, as two ranks on two GPUs see them; `stream_ranks.py` measures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the workload needs torch")
pytestmark = [pytest.mark.gpu(2), pytest.mark.torch]

SCRIPT = Path(__file__).with_name("stream_ranks.py")
TREE = Path(__file__).parents[2] / "workloads"
MODES = ("fsdp", "fsdp2", "ddp")


def start(folder: Path, script: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--log-dir", str(folder / "logs")]
    return subprocess.run(
        [*launcher, "--nproc_per_node", "2", str(script), *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **extra},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def seen_by_ranks(folder: Path, what: str) -> list[dict[str, Any]]:
    ended = start(folder, SCRIPT, str(folder), what)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(("priority", "value"), [("high", -1), ("normal", 0)])
def test_collectives_run_with_the_priority_and_never_on_the_default_stream(
    tmp_path: Path, priority: str, value: int
) -> None:
    for rank in seen_by_ranks(tmp_path, priority):
        assert rank["option"] == (priority == "high")
        for mode in MODES:
            assert rank[mode]["priorities"] == ([] if mode == "ddp" else [value])
            assert rank[mode]["collectives"]
            assert len(rank[mode]["default"]) == 1
            assert not set(rank[mode]["collectives"]) & set(rank[mode]["default"])


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Steps of every mode under every timer; a step in which the host waits raises there."""
    return seen_by_ranks(tmp_path_factory.mktemp("timing"), "none")


@pytest.mark.parametrize("mode", MODES)
def test_timing_changes_no_result(timed: list[dict[str, Any]], mode: str) -> None:
    for rank in timed:
        plain = rank["timing"][f"{mode}_off"]["loss"]
        assert rank["timing"][f"{mode}_off"]["profile"] is None
        for level in ("light", "full"):
            assert rank["timing"][f"{mode}_{level}"]["loss"] == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("mode", MODES)
def test_light_gives_phases_that_follow_each_other(timed: list[dict[str, Any]], mode: str) -> None:
    for rank in timed:
        profile = rank["timing"][f"{mode}_light"]["profile"]
        once = ["data", "forward", "backward"]
        assert [one["tag"] for one in profile["ranges"]] == [*once, *once, "clip", "optimizer"]
        times = [time for one in profile["ranges"] for time in (one["start_ms"], one["end_ms"])]
        assert [0, *times, profile["total_ms"]] == sorted([0, *times, profile["total_ms"]])
        assert profile["overlap"]["per_stream_ms"]["allgather"] is None


@pytest.mark.parametrize("mode", MODES)
def test_full_gives_each_part_and_each_collective(timed: list[dict[str, Any]], mode: str) -> None:
    for rank in timed:
        profile = rank["timing"][f"{mode}_full"]["profile"]
        parts = ["stem", "layer0", "layer1", "head"]
        batch = [f"forward.{part}" for part in parts] + [f"backward.{part}" for part in reversed(parts)]
        assert [one["tag"] for one in profile["ranges"] if one["stream"] == "compute"] == batch * 2
        counts = Counter(one["stream"] for one in profile["ranges"])
        if mode == "ddp":
            assert counts["allreduce"] >= 1
        else:
            assert counts["reducescatter"] == 3
            assert counts["allgather"] >= 2 * 3
        assert all(-1 <= one["start_ms"] <= one["end_ms"] <= profile["total_ms"] + 1 for one in profile["ranges"])
        assert profile["overlap"]["per_stream_ms"]["compute"] > 0


def test_fsdp_prefetches_when_asked(timed: list[dict[str, Any]]) -> None:
    for rank in timed:
        seen = rank["prefetching"]
        assert seen["fsdp.backward_prefetch=BACKWARD_PRE"]["pre_backward"] >= 3
        for other in ("BACKWARD_POST", "none"):
            assert seen[f"fsdp.backward_prefetch={other}"]["pre_backward"] == 0
        for other in ("BACKWARD_PRE", "none"):
            assert seen[f"fsdp.backward_prefetch={other}"]["post_backward"] == 0
        assert seen["fsdp.forward_prefetch=true"]["pre_forward"] >= 3
        assert seen["fsdp.forward_prefetch=false"]["pre_forward"] == 0


def test_the_host_waits_when_all_gathers_are_limited(timed: list[dict[str, Any]]) -> None:
    for rank in timed:
        limited, free = (rank["prefetching"][f"fsdp.limit_all_gathers={value}"] for value in ("true", "false"))
        assert limited["waits"] > free["waits"]


def test_fsdp2_gathers_as_far_ahead_as_asked(timed: list[dict[str, Any]]) -> None:
    for rank in timed:
        for knob, first in (("forward", "F"), ("backward", "B")):
            near, far = (rank["prefetching"][f"fsdp.{knob}_prefetch_depth={depth}"] for depth in (1, 2))
            assert near != far
            assert sorted(near) == sorted(far)
            assert gathers_in_a_row(far, first) > gathers_in_a_row(near, first)


def gathers_in_a_row(order: str, first: str) -> int:
    """Give the longest run of gathers after the first part of a pass."""
    passed = order[order.index(first) :]
    rest = passed[: passed.index("B")] if first == "F" else passed
    return max(len(run) for run in re.split("[^g]", rest))


def test_stress_waits_for_what_it_adds_up_and_leaves_the_default_stream(timed: list[dict[str, Any]]) -> None:
    for rank in timed:
        assert rank["stress"]["sums"] == [[2.0, 2.0], [2.0, 2.0], [3.0, 3.0]]
        assert rank["stress"]["collectives"]
        assert not set(rank["stress"]["collectives"]) & set(rank["stress"]["default"])


def test_a_range_reaches_to_the_end_of_its_collective(timed: list[dict[str, Any]]) -> None:
    for rank in timed:
        assert rank["end"]["bytes"] == 1 << 28
        assert rank["end"]["range_ms"] >= 0.8 * rank["end"]["kernel_ms"] > 0


def test_a_run_drops_the_variable_and_writes_profiles(tmp_path: Path) -> None:
    overrides = [
        "distributed.device=gpu",
        "profiling.enabled=false",
        "profiling.stream_timing=full",
        "streams.comm_priority=normal",
        "benchmark.measure_peak=true",
        "training.max_steps=4",
        "training.output_dir=out",
    ]
    config = TREE / "config" / "tiny_cpu.yaml"
    ended = start(
        tmp_path,
        TREE / "train.py",
        "--config",
        str(config),
        "--override",
        *overrides,
        TORCH_NCCL_HIGH_PRIORITY="1",
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "TORCH_NCCL_HIGH_PRIORITY is removed from the environment" in ended.stderr
    for rank in range(2):
        text = (tmp_path / "out" / f"rank_0{rank}_metrics.jsonl").read_text()
        *steps, end = [json.loads(line) for line in text.splitlines()]
        assert [line["profile"]["index"] for line in steps] == [0, 1, 2, 3]
        assert all(line["utilization"] > 0 for line in steps)
        assert (end["exit"], end["peak_source"]) == ("completed", "measured")
