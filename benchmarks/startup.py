"""What the plugin costs: before the workload starts, after it ends, and in a pytest run that has nothing to do with it.

Bars: at most 2 s from the start of pytest to the launch, at most 3 s from the workload's exit to pytest's end (small
traces), at most 20 ms added to an unrelated run.

    python benchmarks/startup.py [--runs N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNRELATED_RUNS = 15


def main() -> int:
    """Measure and print; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of the whole lifecycle")
    runs = parser.parse_args().runs
    before, after = zip(*(_lifecycle() for _ in range(runs)), strict=True)
    with_plugin, without = _unrelated()
    added_ms = (statistics.median(with_plugin) - statistics.median(without)) * 1000
    rows = (
        ("pytest start to launch of torchrun, s", statistics.median(before), max(before), 2.0),
        ("workload's exit to pytest's end, s", statistics.median(after), max(after), 3.0),
        ("added to an unrelated run, ms", added_ms, added_ms, 20.0),
    )
    print(f"{'what':<40} {'median':>8} {'worst':>8} {'bar':>6}")
    for what, median, worst, bar in rows:
        print(f"{what:<40} {median:8.2f} {worst:8.2f} {bar:6.1f}  {'ok' if median <= bar else 'MISSED'}")
    return int(any(median > bar for _, median, _, bar in rows))


def _lifecycle() -> tuple[float, float]:
    """Run the shipped local configuration once; give the seconds before its launch and after its exit."""
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as folder:
        command = [sys.executable, "-m", "pytest", "-q", f"--aorta-config={ROOT / 'configs/local_cpu.json'}"]
        start = time.time()
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        end = time.time()
        if result.returncode != 0:
            raise SystemExit(result.stdout + result.stderr)
        last = json.loads((Path(folder) / "aorta_reports/last_run.json").read_text("utf-8"))
        record = json.loads((Path(last["folder"]) / "run.json").read_text("utf-8"))
        execution = record["products"]["Execution"]
        return execution["launched_at_s"] - start, end - execution["ended_at_s"]


def _unrelated() -> tuple[list[float], list[float]]:
    """Run a one-test project with and without the plugin, interleaved; give the seconds of each."""
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as folder:
        (Path(folder) / "test_one.py").write_text("def test_one():\n    assert True\n", "utf-8")
        seconds: dict[str, list[float]] = {"": [], "no:aorta": []}
        for _ in range(UNRELATED_RUNS):
            for without, found in seconds.items():
                block = ["-p", without] if without else []
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", *block], cwd=folder, capture_output=True, check=True
                )
                found.append(time.perf_counter() - start)
        return seconds[""], seconds["no:aorta"]


if __name__ == "__main__":
    raise SystemExit(main())
