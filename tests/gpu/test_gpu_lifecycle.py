"""The shipped local configuration on real GPUs: green, its times read again plainly, and each way a rank can fail."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.shipped import shipped
from tests.trace.plain_reading import times_us

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

LOCAL = f"--aorta-config={shipped('configs/local_gpu.json')}"
ON_TWO = pytest.mark.gpu(2)


def inject(**fault: Any) -> list[str]:
    return [f"--aorta-set=training_overrides.fault_injection.{name}={value}" for name, value in fault.items()]


@pytest.mark.parametrize("num_gpus", [1, pytest.param(2, marks=ON_TWO)])
def test_shipped_local_configuration_is_green(rig: Any, num_gpus: int) -> None:
    output = rig.pytest(LOCAL, f"--aorta-set=gpus_per_node={num_gpus}", code=0)

    assert rig.letters() == "PPSPPSPPPP", output
    record = rig.record()
    assert record["products"]["Execution"]["ranks_seen"] == list(range(num_gpus))
    assert record["products"]["Result"]["source"] == "Timeline of raw traces"
    metrics = json.loads((rig.folder / "metrics.json").read_text("utf-8"))["metrics"]
    assert 0 < metrics["avg_compute_ratio"]["value"] <= 1
    assert metrics["step_time_ms_median"]["value"] > 0
    found = json.loads(rig.aorta("traces", str(rig.folder), "--json", code=0))
    assert [rank["rank"] for rank in found["ranks"]] == list(range(num_gpus))
    for rank in found["ranks"]:
        assert (rank["num_comm_kernels"] > 0) == (num_gpus > 1)
        assert rank["events_lost"] == 0
        (path,) = rig.folder.rglob(f"rank{rank['rank']}/*.json*")
        plain = times_us(path)
        assert {name: rank[name] for name in plain} == pytest.approx(plain, abs=1e-3)
    if num_gpus > 1:
        assert found["matched_ratio"] == 1


@ON_TWO
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "kill", "rank": 1, "step": 20}, "rank 1 was ended by SIGKILL"),
        ({"kind": "exit", "rank": 1, "step": 20, "exit_code": 13}, "rank 1 exited 13"),
        ({"kind": "nan", "rank": 0, "step": 20}, "rank 0 exited 1: the loss is nan on rank 0 at step 20"),
        ({"kind": "oom", "rank": 1, "step": 20}, "rank 1 exited 1: out of memory on rank 1 in step 20"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_rank_that_fails_is_named(rig: Any, fault: dict[str, Any], said: str) -> None:
    rig.pytest(LOCAL, *inject(**fault), code=1)

    assert rig.reason("test_run_benchmark").startswith("measured, bad: ")
    assert said in rig.reason("test_run_benchmark")
    assert rig.outcomes()["test_teardown"] == "passed"


@ON_TWO
def test_a_rank_that_hangs_is_ended_and_shown(rig: Any) -> None:
    rig.pytest(LOCAL, *inject(kind="hang", rank=1, step=20), "--aorta-set=stall_seconds=15", code=1)

    assert re.search(r"[:;] rank 1 \(\S+\) in _hang_on_purpose ", rig.reason("test_run_benchmark"))


@ON_TWO
def test_both_exports_of_the_profiler_hold_the_same(rig: Any) -> None:
    exports = ("profiling.tensorboard=true", "profiling.chrome_trace=true")
    rig.pytest(LOCAL, *(f"--aorta-set=training_overrides.{export}" for export in exports), code=0)

    for rank in (0, 1):
        (folder,) = (path for path in rig.folder.rglob(f"torch_profiler/rank{rank}") if path.is_dir())
        first, second = sorted(folder.iterdir())
        assert {Path(name).suffixes[-3:] == [".pt", ".trace", ".json"] for name in (first.name, second.name)} == {
            True,
            False,
        }
        assert first.read_bytes() == second.read_bytes()
