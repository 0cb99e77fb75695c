"""How surely a slow rank is found, and a healthy run names nobody: real trainings, one rank slowed by 5 % of the step.

Bars: the spread of the median step over the healthy runs is at most 1 %; the slowed rank is named with its kind in at
least 19 of 20 runs; of the healthy runs none names anybody.

    python benchmarks/sensitivity.py [--runs 10] [--share 0.05] [--config overlap_stress_h200] [--gpus 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pytest_aorta.trace.ranks import summarize

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE.parent / "workloads"
SLOW_RANK = 1
WARM_UP_STEPS = 10
STEPS = 30
KINDS = {"host": "host", "kernels": "compute", "pinned": "host"}
"""What the late rank's kind should be, by how it was slowed."""

PROFILED = (
    f"training.max_steps={STEPS}", f"scheduler.total_steps={STEPS}", "profiling.enabled=true", "profiling.wait=20",
    "profiling.warmup=2", "profiling.active=6", "profiling.tensorboard=true", "profiling.chrome_trace=false",
)  # fmt: skip


def main() -> int:
    """Measure and print; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="runs of each sort")
    parser.add_argument("--share", type=float, default=0.05, help="share of the step by which a rank is slowed")
    parser.add_argument("--config", default="overlap_stress_h200", help="configuration of the bundled trainer")
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of this machine to train on")
    parser.add_argument("--how", nargs="*", default=list(KINDS), choices=list(KINDS), help="ways to slow a rank")
    options = parser.parse_args()
    healthy = [_run(options, "none", 0.0) for _ in range(options.runs)]
    medians = [median_ms for median_ms, _ in healthy]
    spread = (max(medians) - min(medians)) / statistics.median(medians)
    named = [straggler for _, straggler in healthy if straggler is not None]
    missed = _line("healthy: spread of the median step", f"{spread:.2%}", "<= 1%", holds=spread <= 0.01)
    missed += _line("healthy: runs that name somebody", f"{len(named)} of {options.runs}", "0", holds=not named)
    slow_ms = statistics.median(medians) * options.share
    for how in options.how:
        found = [_run(options, how, slow_ms) for _ in range(options.runs)]
        right = sum(s is not None and (s.rank, s.kind) == (SLOW_RANK, KINDS[how]) for _, s in found)
        told = ", ".join(f"rank {s.rank} {s.kind}" if s is not None else "nobody" for _, s in found)
        what = f"{how}, {slow_ms:.1f} ms a step: right rank and kind"
        missed += _line(what, f"{right} of {options.runs}", ">= 95%", holds=right >= 0.95 * options.runs)
        print(f"  named: {told}; median step {statistics.median(ms for ms, _ in found):.1f} ms")
    return int(missed > 0)


def _run(options: argparse.Namespace, how: str, slow_ms: float) -> tuple[float, Any]:
    """Train once; give the median of the unprofiled steps and whom the traces name."""
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as folder:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(options.gpus)]
        slowed = [str(HERE / "workload_slowed.py"), how, str(SLOW_RANK), str(slow_ms)]
        config = str(WORKLOADS / f"config/{options.config}.yaml")
        command = [sys.executable, *launcher, *slowed, config, f"training.output_dir={folder}", *PROFILED]
        environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-4000:]}")
        lines = [json.loads(line) for line in (Path(folder) / "rank_00_metrics.jsonl").read_text("utf-8").splitlines()]
        steady = [
            line["step_ms"]
            for line in lines
            if "step_ms" in line and line["global_step"] > WARM_UP_STEPS and not line["profiled"]
        ]
        lateness = summarize(Path(folder), with_lateness=True).lateness
        return statistics.median(steady), lateness.straggler if lateness is not None else None


def _line(what: str, found: str, bar: str, *, holds: bool) -> int:
    print(f"{what:<52} {found:>12} {bar:>8}  {'ok' if holds else 'MISSED'}", flush=True)
    return int(not holds)


if __name__ == "__main__":
    raise SystemExit(main())
