"""How surely a slow rank is found, and a healthy run names nobody: real trainings, one rank slowed by 5 % of the step.

Each round trains once in each way: healthy, and with one rank held up by its host or by extra kernels, on a run that
the GPUs bound (overlap_stress_h200); healthy, and with one rank's process pinned to a core that another process keeps
busy, on a run that the host bounds (profile_overlap_2gpu), where that costs time.

Bars: the spread of the median step over the healthy runs that the GPUs bound is at most 1 %; the slowed rank is named
with its kind in at least 19 of 20 runs; of the healthy runs none names anybody. A run that the host bounds has no such
bar: the speeds of two processes differ by some percent of themselves, which its traces rightly show.

    python benchmarks/sensitivity.py [--rounds 10] [--share 0.05] [--ways host kernels] [--within 540] [--runs FILE]

A round takes about two minutes; while one run trains, the interpreters of the next one start. A slowed run needs a
healthy one of its configuration before it, which is made where there is none yet. With `--runs` each run is noted in a
file, and the table is of all that it holds: what was cut off goes on where it was. `--keep` keeps the traces of every
run, in folders called by its way and its place in that file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pytest_aorta.trace.causes import Kind, explained_by
from pytest_aorta.trace.lateness import Lateness
from pytest_aorta.trace.ranks import summarize

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE.parent / "workloads"
SLOW_RANK = 1
WARM_UP_STEPS = 10
STEPS = 28
GPU_BOUND, HOST_BOUND = "overlap_stress_h200", "profile_overlap_2gpu"

PROFILED = (
    f"training.max_steps={STEPS}", f"scheduler.total_steps={STEPS}", "profiling.enabled=true", "profiling.wait=20",
    "profiling.warmup=2", "profiling.active=6", "profiling.tensorboard=true", "profiling.chrome_trace=false",
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a rank is slowed, on which configuration, and the kind that its lateness should be given."""

    slowed: str
    config: str
    kind: str | None


WAYS = {
    "healthy": Way("none", GPU_BOUND, None),
    "host": Way("host", GPU_BOUND, "host"),
    "kernels": Way("kernels", GPU_BOUND, "compute"),
    "healthy_host_bound": Way("none", HOST_BOUND, None),
    "pinned": Way("pinned", HOST_BOUND, "host"),
}


@dataclass(frozen=True)
class Run:
    """What one training gave: the median of its unprofiled steps, whom its traces name, or why they name nobody.

    `delay_ms`: what the rank named, or else the largest candidate, cost the others in a step; `causes`: the share of it
    that each component explains.
    """

    way: str
    median_ms: float
    rank: int | None
    kind: str | None
    delay_ms: float | None
    why: str
    causes: Mapping[Kind, float] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether the slowed rank is named with its kind, or nobody where none was slowed."""
        wanted = WAYS[self.way].kind
        return (self.rank, self.kind) == ((SLOW_RANK, wanted) if wanted else (None, None))

    @property
    def named(self) -> str:
        """Whom it names, in words."""
        if self.rank is None:
            return f"nobody: {self.why}"
        return f"rank {self.rank} {self.kind}, {self.delay_ms:.1f} ms; {explained_by(self.causes)}"


def main() -> int:
    """Measure and print; exit 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="runs of each way")
    parser.add_argument("--share", type=float, default=0.05, help="share of the step by which a rank is slowed")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), help="ways to take")
    parser.add_argument("--within", type=float, default=float("inf"), help="begin no run that would end after seconds")
    parser.add_argument("--runs", type=Path, help="file of the runs so far; new ones are added")
    parser.add_argument("--keep", type=Path, help="folder for the traces of every run")
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of this machine to train on")
    options = parser.parse_args()
    runs = _earlier(options.runs)
    ways = _planned(options.ways, options.rounds, runs)
    begin, longest = time.monotonic(), 0.0
    with ExitStack() as started:
        prepared = [_start(ways[0], options.gpus, started)]
        for following in [*ways[1:], None]:
            now = time.monotonic()
            if now - begin + longest > options.within:
                break
            if following:
                prepared.append(_start(following, options.gpus, started))
            training = prepared.pop(0)
            keep = options.keep / f"{training.way}_{len(runs)}" if options.keep else None
            runs.append(training.run(_slow_ms(runs, training.way, options.share), keep))
            training.end()
            longest = max(longest, time.monotonic() - now)
            _note(runs[-1], time.monotonic() - now, options.runs)
    return _table(runs)


def _start(way: str, num_gpus: int, started: ExitStack) -> Training:
    training = Training(way, num_gpus)
    started.callback(training.end)
    return training


def _planned(ways: list[str], rounds: int, runs: list[Run]) -> list[str]:
    """Give the ways of all rounds in order: of each configuration a healthy run comes first, which slowed ones need."""
    healthy = [way for way in WAYS if _is_healthy(way)]
    used = {WAYS[way].config for way in ways}
    known = {*ways, *(run.way for run in runs)}
    missing = [way for way in healthy if WAYS[way].config in used and way not in known]
    return [*missing, *sorted(ways, key=lambda way: way not in healthy) * rounds]


def _is_healthy(way: str) -> bool:
    return WAYS[way].slowed == "none"


def _slow_ms(runs: list[Run], way: str, share: float) -> float:
    """Give the share of a healthy step of the same configuration."""
    if _is_healthy(way):
        return 0.0
    healthy = [run.median_ms for run in runs if _is_healthy(run.way) and WAYS[run.way].config == WAYS[way].config]
    return statistics.median(healthy) * share


class Training:
    """One training by torchrun, started so far that only its beginning has to be allowed."""

    def __init__(self, way: str, num_gpus: int) -> None:
        self.way = way
        self._folder = tempfile.TemporaryDirectory(prefix="aorta-bench-")
        self._go = Path(self._folder.name) / "go"
        self._output = Path(self._folder.name) / "output"
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(num_gpus)]
        slowed = [str(HERE / "workload_slowed.py"), WAYS[way].slowed, str(SLOW_RANK), str(self._go)]
        config = str(WORKLOADS / f"config/{WAYS[way].config}.yaml")
        self._command = [sys.executable, *launcher, *slowed, config, f"training.output_dir={self._output}", *PROFILED]
        environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        self._said = (Path(self._folder.name) / "said").open("w+b")
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=subprocess.DEVNULL, stderr=self._said, start_new_session=True
        )

    def run(self, slow_ms: float, keep: Path | None) -> Run:
        """Let it train to its end and judge its traces; keep them in a folder that is not there yet."""
        self._go.write_text(f"{slow_ms}\n", "utf-8")
        if self._process.wait() != 0:
            self._said.seek(0)
            told = self._said.read()[-4000:].decode(errors="replace")
            raise SystemExit(f"{' '.join(self._command)} ended with {self._process.returncode}:\n{told}")
        if keep is not None:
            shutil.copytree(self._output, keep)
        lines = [json.loads(line) for line in (self._output / "rank_00_metrics.jsonl").read_text("utf-8").splitlines()]
        steady = [
            line["step_ms"]
            for line in lines
            if "step_ms" in line and line["global_step"] > WARM_UP_STEPS and not line["profiled"]
        ]
        found = summarize(self._output, with_lateness=True).lateness or Lateness(why="no lateness")
        late = found.largest_candidate
        return Run(
            way=self.way,
            median_ms=statistics.median(steady),
            rank=found.straggler.rank if found.straggler else None,
            kind=found.straggler.kind if found.straggler else None,
            delay_ms=late.caused_delay_ms_per_step if late else None,
            why=found.why,
            causes=late.causes if late else {},
        )

    def end(self) -> None:
        """Leave nothing behind; may be called again."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        self._said.close()
        self._folder.cleanup()


def _earlier(path: Path | None) -> list[Run]:
    if path is None or not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def _note(run: Run, seconds: float, path: Path | None) -> None:
    print(f"{run.way:<20} {run.median_ms:>8.2f} ms a step ({seconds:.0f} s)   {run.named}", flush=True)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(run)) + "\n")


def _table(runs: list[Run]) -> int:
    """Print each way's line; give 1 when a bar is missed."""
    missed = 0
    for way in (name for name in WAYS if any(run.way == name for run in runs)):
        mine = [run for run in runs if run.way == way]
        num_right = sum(run.is_right for run in mine)
        wanted = "nobody is named" if WAYS[way].kind is None else f"rank {SLOW_RANK} {WAYS[way].kind} is named"
        what, right = f"{way}: {wanted}", f"{num_right} of {len(mine)}"
        if way == "healthy_host_bound":
            print(f"{what:<52} {right:>12}")
        else:
            needed = 1.0 if WAYS[way].kind is None else 0.95
            missed += _line(what, right, f">= {needed:.0%}", num_right >= needed * len(mine))
        medians = [run.median_ms for run in mine]
        spread = (max(medians) - min(medians)) / statistics.median(medians)
        what = f"{way}: median step {statistics.median(medians):.1f} ms, spread"
        if way == "healthy":
            missed += _line(what, f"{spread:.2%}", "<= 1%", spread <= 0.01)
        else:
            print(f"{what:<52} {spread:>12.2%}")
    return int(missed > 0)


def _line(what: str, found: str, bar: str, holds: bool) -> int:
    print(f"{what:<52} {found:>12} {bar:>8}  {'ok' if holds else 'MISSED'}", flush=True)
    return int(not holds)


if __name__ == "__main__":
    raise SystemExit(main())
