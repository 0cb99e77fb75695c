"""A file among the traces that is too large is named with its size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = Path(__file__).with_name("sample_workload.py")


ALWAYS = "gave not all traces: {host}: out/torch_profiler/rank0/core (1024 GiB): at most 256 GiB are brought back; if"
IN_TIME = ": 5 files of 200 GiB, the largest out/torch_profiler/rank0/core (200 GiB); raise timeout_seconds, or narrow "


@pytest.mark.parametrize(("gib", "timeout_s", "told"), [(1024, 60, ALWAYS), (200, 2, IN_TIME)])
def test_a_huge_file_beside_the_traces_is_named(rig: Any, gib: int, timeout_s: int, told: str) -> None:
    script = f"{sys.executable} {WORKLOAD}; truncate -s {gib}G out/torch_profiler/rank0/core"
    workload = {"command": ["sh", "-c", script], "traces": "out/torch_profiler/*/*"}
    rig.configure(workload=workload, timeout_seconds=timeout_s)

    output = rig.run(code=1)

    assert "the workload wrote no profiler trace" not in output
    assert "next: narrow workload.traces to the traces" in output or "next: raise timeout_seconds, or narrow" in output
    (host,) = rig.record()["products"]["Artifacts"]["errors"]
    assert told.format(host=host) in rig.reason("test_collect_traces")
    assert rig.outcomes()["test_run_benchmark"] == "passed"
    (rig.path / "out" / "torch_profiler" / "rank0" / "core").unlink()
