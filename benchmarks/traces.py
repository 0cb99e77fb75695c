"""What reading traces costs beside the tools people use: ratios of interleaved runs, and peak memory.

Bars, on a trace of 500 MB unless said: 30 times TraceLens' full report, 8 times its loading and GPU timeline, 25 times
HolisticTraceAnalysis on 100 MB, 6 times a json.load scan, 30 % of the speed at which simdjson only parses, two
processes 1.7 times one on eight ranks; memory grows by at most 64 MB + 64 B a GPU event from a tenth of the file.
Tools that are not installed are left out and named.

A ratio is that of the fastest runs, which others on the machine disturbed least; the ratios of runs next to each other
are given beside it. When ours had a processor for less than 90 % of its fastest run, that is said.

    python benchmarks/traces.py [--mb 500] [--runs 3] [--ranks 8 --rank-mb 500] [--trace FILE] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
REAL = ROOT.parent / "shared/traces/public/mi300x_resnet_act_checkpoint.json.gz"
GROWTH_BYTES, GROWTH_BYTES_PER_EVENT = 64 << 20, 64


@dataclass(frozen=True, slots=True)
class Rival:
    """Something to be measured beside ours, and the bar: how many times its seconds ours must fit into."""

    reader: str
    package: str
    what: str
    bar: float
    max_mb: float = float("inf")


RIVALS = (
    Rival("json", "json", "json.load scan", 6),
    Rival("simdjson", "simdjson", "simdjson, same blocks, only parsed", 0.30),
    Rival("tracelens-timeline", "TraceLens", "TraceLens from_file + gpu_timeline", 8),
    Rival("tracelens-report", "TraceLens", "TraceLens full report", 30),
    Rival("hta", "hta", "HolisticTraceAnalysis", 25, max_mb=100),
)


@dataclass(slots=True)
class Outcome:
    """What a rival and ours took, a run each, one after the other; `ratios`: rival's seconds to ours."""

    ratios: list[float] = field(default_factory=list)
    rival_s: list[float] = field(default_factory=list)
    ours_s: list[float] = field(default_factory=list)
    parse_s: list[float] = field(default_factory=list)
    cpu_share: float = 1.0
    rival_bytes: int = 0
    ours_bytes: int = 0


class Table:
    """Lines with a bar each; `missed` counts those below it."""

    def __init__(self) -> None:
        self.missed = 0
        print(f"{'what':<44} {'ours':>16} {'other':>16} {'ratio':>22} {'bar':>8}")

    def add(self, what: str, cells: tuple[str, str, str], bar: str, *, holds: bool) -> None:
        """Print a line."""
        self.missed += not holds
        print(f"{what:<44} {cells[0]:>16} {cells[1]:>16} {cells[2]:>22} {bar:>8}  {'ok' if holds else 'MISSED'}")


def main() -> int:
    """Measure and print; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=500, help="size of the trace, MB of 1,000,000 bytes")
    parser.add_argument("--runs", type=int, default=3, help="interleaved runs of everything")
    parser.add_argument("--ranks", type=int, default=8, help="ranks of the side-by-side reading; 0 leaves it out")
    parser.add_argument("--rank-mb", type=float, default=500, help="size of each rank's trace")
    parser.add_argument("--trace", type=Path, default=None, help="real trace to scale")
    parser.add_argument("--folder", type=Path, default=None, help="where the large files are made; removed afterwards")
    options = parser.parse_args()
    trace = options.trace or _real_trace()
    print(f"{trace.name}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, {options.runs} runs")
    table = Table()
    with tempfile.TemporaryDirectory(prefix="aorta-bench-", dir=options.folder) as folder:
        _measure_file(table, trace, Path(folder), options.mb, options.runs)
        if options.ranks:
            _measure_ranks(table, trace, Path(folder), options)
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    absent = sorted({rival.package for rival in RIVALS if not _is_installed(rival)})
    if absent:
        print(f"not installed, so not measured: {', '.join(absent)}")
    return int(table.missed > 0)


def _measure_file(table: Table, trace: Path, folder: Path, size_mb: float, runs: int) -> None:
    small, small_made = _scaled(trace, folder, size_mb / 10)
    files = {size_mb: _scaled(trace, folder, size_mb)}
    rivals = [rival for rival in RIVALS if _is_installed(rival)]
    for rival in rivals:
        if rival.max_mb not in files and rival.max_mb < size_mb:
            files[rival.max_mb] = _scaled(trace, folder, rival.max_mb)
    outcomes = {rival.reader: Outcome() for rival in rivals}
    for _ in range(runs):
        for rival in rivals:
            _compare(outcomes[rival.reader], rival, files[min(size_mb, rival.max_mb)][0])
    for rival in rivals:
        path, _ = files[min(size_mb, rival.max_mb)]
        _add_ratio(table, f"{rival.what}, {path.stat().st_size / 1e6:.0f} MB", outcomes[rival.reader], rival.bar)
    path, made = files[size_mb]
    one, large = _run("ours", small), _run("ours", path)
    allowed = GROWTH_BYTES + GROWTH_BYTES_PER_EVENT * large["num_gpu_events"]
    growth = large["peak_bytes"] - one["peak_bytes"]
    table.add(
        f"peak memory, {small.stat().st_size / 1e6:.0f} to {path.stat().st_size / 1e6:.0f} MB",
        (_mb(large["peak_bytes"]), _mb(one["peak_bytes"]), f"grows {_mb(growth)}"),
        _mb(allowed),
        holds=growth <= allowed,
    )
    per_copy = [found["computation_us"] / scaled["copies"] for found, scaled in ((one, small_made), (large, made))]
    same = round(per_copy[0] * 1000) == round(per_copy[1] * 1000)
    cells = (f"{per_copy[1]:.3f} us", f"{per_copy[0]:.3f} us", "")
    table.add(f"computation a copy, of {made['copies']} and {small_made['copies']}", cells, "equal", holds=same)


def _measure_ranks(table: Table, trace: Path, folder: Path, options: argparse.Namespace) -> None:
    root = folder / "ranks"
    for rank in range(options.ranks):
        _scaled(trace, root / f"rank{rank}", options.rank_mb, rank)
    outcome = Outcome()
    for _ in range(options.runs):
        two, one = (_run("ranks", root, str(jobs)) for jobs in (2, 1))
        if two["num_ranks"] != options.ranks or two["errors"]:
            raise SystemExit(f"{two['num_ranks']} of {options.ranks} ranks were read: {two['errors']}")
        _add(outcome, one, two)
    what = f"one process, {options.ranks} ranks of {options.rank_mb:.0f} MB (ours: two)"
    _add_ratio(table, what, outcome, 1.7, is_alone=False)


def _compare(outcome: Outcome, rival: Rival, path: Path) -> None:
    """Run ours and a rival one after the other."""
    mine, theirs = _run("ours", path), _run(rival.reader, path)
    _add(outcome, theirs, mine)


def _add(outcome: Outcome, theirs: dict[str, Any], mine: dict[str, Any]) -> None:
    outcome.ratios.append(theirs["seconds"] / mine["seconds"])
    outcome.rival_s.append(theirs["seconds"])
    outcome.ours_s.append(mine["seconds"])
    if mine["seconds"] == min(outcome.ours_s):
        outcome.cpu_share = mine["cpu_s"] / mine["seconds"]
    if "parse_s" in theirs:
        outcome.parse_s.append(theirs["parse_s"])
    outcome.rival_bytes = max(outcome.rival_bytes, theirs["peak_bytes"])
    outcome.ours_bytes = max(outcome.ours_bytes, mine["peak_bytes"])


def _add_ratio(table: Table, what: str, outcome: Outcome, bar: float, *, is_alone: bool = True) -> None:
    ratio = min(outcome.rival_s) / min(outcome.ours_s)
    spread = f"{ratio:.2f} ({min(outcome.ratios):.2f}-{max(outcome.ratios):.2f})"
    mine, theirs = (
        f"{min(seconds):.2f} s {_mb(peak_bytes)}"
        for seconds, peak_bytes in ((outcome.ours_s, outcome.ours_bytes), (outcome.rival_s, outcome.rival_bytes))
    )
    table.add(what, (mine, theirs, spread), f"{bar:g}", holds=ratio >= bar)
    if is_alone and outcome.cpu_share < 0.9:
        print(f"  disturbed: ours had a processor for {outcome.cpu_share:.0%} of its fastest run")
    if outcome.parse_s:
        alone = min(outcome.parse_s) / min(outcome.ours_s)
        print(f"{'  its parse calls alone, without reading':<44} {'':>33} {alone:>22.2f}")


def _run(reader: str, path: Path, *more: str) -> dict[str, Any]:
    """Run a reader in a process of its own."""
    return _json_of([str(HERE / "trace_readers.py"), reader, str(path), *more])


def _scaled(trace: Path, folder: Path, size_mb: float, rank: int | None = None) -> tuple[Path, dict[str, Any]]:
    """Make a trace of a size, and read it once so that the disk plays no part."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"trace_{size_mb:g}MB.json"
    of_rank = [] if rank is None else ["--rank", str(rank)]
    made = _json_of([str(HERE / "trace_scaler.py"), str(trace), str(path), str(size_mb), *of_rank])
    for _ in _pieces(path):
        pass
    return path, made


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def _json_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Run a Python file of this folder and give the JSON of its last line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _real_trace() -> Path:
    """Give the trace that the bars are meant for, else one that is committed for the tests."""
    found = [REAL, *sorted((ROOT / "tests").rglob("trace.json.gz"))]
    for path in found:
        if path.is_file():
            return path
    raise SystemExit("there is no real trace here; name one with --trace")


def _is_installed(rival: Rival) -> bool:
    return importlib.util.find_spec(rival.package) is not None


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f} MB"


if __name__ == "__main__":
    raise SystemExit(main())
