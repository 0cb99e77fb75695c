"""A straggler through a whole run: named in the notes, measured in metrics.json, judged by gates."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

from tests.trace import synthetic
from tests.trace.simulated import Job, Planted, simulate

GATE = {"metric": "caused_delay_ms_per_step", "kind": "max", "value": 0.5, "over": "each"}


def traces_of(rig: Any, *planted: Planted) -> None:
    """A workload that hands out traces made before."""
    made: Path = rig.path / "made"
    for rank, content in enumerate(simulate(Job(num_ranks=2, jitter_ratio=0.01, planted=planted))):
        synthetic.write(made / f"rank{rank}" / "trace.json", content)
    copy = f"import shutil; shutil.copytree({str(made)!r}, 'out/torch_profiler', copy_function=shutil.copyfile)"
    rig.configure(workload={"command": [sys.executable, "-c", copy], "traces": "out/torch_profiler/*/*"}, gates=[GATE])


def metrics(rig: Any) -> dict[str, Any]:
    return dict(json.loads((rig.folder / "metrics.json").read_text("utf-8"))["metrics"])


def test_a_late_rank_is_named_and_fails_its_gate(rig: Any) -> None:
    traces_of(rig, Planted(1, "compute", 0.1))
    output = rig.run(code=1)
    assert "[threshold] (metric=caused_delay_ms_per_step, rank=1)" in output
    assert "[threshold] (metric=caused_delay_ms_per_step, rank=0)" not in rig.reason("test_validate_thresholds")
    host = socket.gethostname()
    assert f"caused_delay_ms_per_step of rank 1 on {host} 1.0" in output
    (named,) = json.loads((rig.reports / "verdict.json").read_text("utf-8"))["hosts"]
    assert (named["host"], named["action"]) == (host, "inspect")
    assert (rig.reports / "failing_nodes.txt").read_text("utf-8") == ""  # another one may be what it waited for
    assert "drain, in a Slurm cluster" not in output
    assert "gates: 1 of 3 failed" in output
    (note,) = [note for note in rig.record()["products"]["Result"]["notes"] if "is late" in note]
    assert note.startswith("rank 1 is late (kind: compute): the others wait 1.0")
    assert metrics(rig)["matched_ratio"]["value"] == 1.0


def test_equal_ranks_pass_and_nobody_is_named(rig: Any) -> None:
    traces_of(rig)
    rig.run(code=0)
    assert not any("is late" in note for note in rig.record()["products"]["Result"]["notes"])
    assert metrics(rig)["caused_delay_ms_per_step"]["value"] < 0.5
