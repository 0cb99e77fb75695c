"""A workload without torch: counts steps, writes step logs and CPU traces like the real one, and can misbehave.

usage: sample_workload.py [--ranks N] [--steps N] [--step-ms MS] [--exit CODE] [--hang-at STEP] [--no-traces]
       [--pid-file FILE] [--ignore-term] [--rank RANK] [--early-traces]
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PROFILED = 4


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-ms", type=float, default=1.0)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--hang-at", type=int, default=-1)
    parser.add_argument("--no-traces", action="store_true")
    parser.add_argument("--pid-file", type=Path)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--rank", type=int, help="write for this one of the ranks only")
    parser.add_argument("--early-traces", action="store_true", help="write traces before the first step")
    options = parser.parse_args()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.pid_file:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        options.pid_file.write_text(f"{os.getpid()} {child.pid}", "utf-8")
    out = Path("out")
    ranks = range(options.ranks) if options.rank is None else [options.rank]
    logs = {rank: step_log(out, rank) for rank in ranks}
    if options.early_traces:
        write_traces(out, ranks, options.ranks)
    for step in range(options.steps):
        if step == options.hang_at:
            hang()
        time.sleep(options.step_ms / 1000)
        for rank, path in logs.items():
            add_step(path, rank, options.ranks, step, options.step_ms)
        beat = {"aorta": "step", "step": step, "max_steps": options.steps, "loss": 1 / (step + 1), "step_ms": 1.0}
        print(json.dumps(beat), flush=True)
    if not options.no_traces and not options.early_traces:
        write_traces(out, ranks, options.ranks)
    for rank, path in logs.items():
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"final": True, "rank": rank, "world_size": options.ranks, "exit": "completed"}))
            stream.write("\n")
    return int(options.exit)


def hang() -> None:
    while True:
        time.sleep(60)


def step_log(out: Path, rank: int) -> Path:
    path = out / f"rank_{rank:02d}_metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", "utf-8")
    return path


def add_step(path: Path, rank: int, ranks: int, step: int, step_ms: float) -> None:
    line = {
        "rank": rank,
        "world_size": ranks,
        "step": step,
        "global_step": step,
        "step_ms": step_ms + rank / 10,
        "samples": 8,
        "tokens": 64,
        "profiled": 2 <= step < 2 + PROFILED,
    }
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def write_traces(out: Path, ranks: Iterable[int], world_size: int) -> None:
    for rank in ranks:
        write_trace(out, rank, world_size)


def write_trace(out: Path, rank: int, ranks: int) -> None:
    folder = out / "torch_profiler" / f"rank{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{number}",
            "ts": 1000.0 * number,
            "dur": 990.0 + rank,
            "pid": 1,
            "tid": 1,
        }
        for number in range(PROFILED)
    ]
    info = {"rank": rank, "world_size": ranks}
    # As in a real trace, the times are of this run; two runs never write the same one.
    document = {"distributedInfo": info, "baseTimeNanoseconds": time.time_ns(), "traceEvents": events}
    (folder / f"sample_{rank}.pt.trace.json").write_text(json.dumps(document), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
