"""TraceLens: AMD's tool on raw traces, each rank falling back to the basic scan when it fails.

It is not on the package index, where something else has its name: what is installed is accepted by what it offers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.sources import tracelens_program
from pytest_aorta.trace.sources.basic import scan_file, summary_of
from pytest_aorta.trace.sources.raw import summary_with
from pytest_aorta.trace.sources.rows import times_us
from pytest_aorta.trace.summary import RankSummary

DEADLINE_S = 3600
_MEMORY_FACTOR = 16  # of the decoded file; 7 to 13 were measured
_GZIP_FACTOR = 12
_INSTALL = "install it from its own repository (AMD-AGI/TraceLens), or choose another analysis.parser"


def find() -> str:
    """Give the file that TraceLens was found in.

    Raises:
        TraceError: it is not installed here, cannot be imported, or is another package of this name.
    """
    return str(_run({})["origin"])


def summarize_file(path: Path, name: str) -> tuple[RankSummary, ...]:
    """Summarize one trace file, which is called `name`: by TraceLens, else by the basic scan, with the reason.

    Raises:
        TraceError: nothing in the file can be read.
    """
    trace, scan = scan_file(path)
    try:
        times = _times_us(path)
    except TraceError as error:
        return (summary_of(trace, scan, name, (f"{trace.file}: basic scan instead of TraceLens, because {error}",)),)
    return (summary_with(trace, name, "tracelens", times),)


def num_jobs(paths: Sequence[Path]) -> int:
    """Give how many traces TraceLens can read side by side in the memory that is free, at least one."""
    sizes = [path.stat().st_size * (_GZIP_FACTOR if path.suffix == ".gz" else 1) for path in paths if path.is_file()]
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fitting = free_bytes // (_MEMORY_FACTOR * max(sizes, default=0) + 1)
    return max(1, min(len(os.sched_getaffinity(0)), fitting))


def _times_us(path: Path) -> dict[str, float]:
    times = times_us(_run({"trace": str(path.absolute())})["rows"], "TraceLens' table")
    if not times["total_time_us"]:
        raise TraceError("TraceLens found no time at all")
    return times


def _run(asked: dict[str, str]) -> dict[str, Any]:
    """Run TraceLens in a process of its own and give what it answered."""
    with tempfile.TemporaryDirectory(prefix="aorta-tracelens-") as folder:
        answer = Path(folder) / "answer.json"
        request = json.dumps({**asked, "folder": str(Path(folder) / "tables"), "answer": str(answer)})
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in sys.path if place)}
        command = [sys.executable, "-P", str(tracelens_program.__file__), request]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TraceError(f"TraceLens did not end within {DEADLINE_S} s") from error
        if done.returncode != 0 or not answer.is_file():
            raise TraceError(_why_ended(done.returncode, done.stderr.decode("utf-8", "replace")))
        found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    if "refused" in found:
        raise TraceError(f"{found['origin']} is not AMD's TraceLens: {found['refused']}; {_INSTALL}")
    return found


def _why_ended(code: int, stderr: str) -> str:
    last = (stderr.strip().splitlines() or [""])[-1][:300]
    if last.endswith(f"No module named '{tracelens_program.PACKAGE}'"):
        return f"TraceLens is not installed here; {_INSTALL}"
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    return f"TraceLens {how}{f' ({last})' if last else ''}"
