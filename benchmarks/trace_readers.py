"""Readers of traces, one of which is run in this process: ours and what it is measured beside.

    python benchmarks/trace_readers.py READER PATH [JOBS]

Prints one JSON line: seconds of the work (not of the imports), by the clock and of processor time, and the peak of
resident memory of this process.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')

Work = Callable[[], dict[str, Any]]


def ours(path: Path) -> Work:
    """Read a trace and give every metric of its ranks."""
    summaries_of = importlib.import_module("pytest_aorta.trace.summary").summaries_of
    read = importlib.import_module("pytest_aorta.trace.reading").read

    def work() -> dict[str, Any]:
        found = summaries_of(read(path), file=path.name, rank=0)
        return {
            "num_gpu_events": sum(rank.num_gpu_events for rank in found),
            "computation_us": sum(rank.computation_time_us or 0 for rank in found),
        }

    return work


def ours_of_ranks(path: Path, jobs: int) -> Work:
    """Summarize a folder of ranks with some processes."""
    summarize = importlib.import_module("pytest_aorta.trace.ranks").summarize

    def work() -> dict[str, Any]:
        found = summarize(path, jobs=jobs)
        return {"num_ranks": len(found.ranks), "errors": [error.error for error in found.errors]}

    return work


def json_load(path: Path) -> Work:
    """Load the whole document with the standard library and add up durations by category."""

    def work() -> dict[str, Any]:
        with path.open("rb") as file:
            document = json.load(file)
        sums: dict[str, float] = {}
        for event in document["traceEvents"]:
            category = event.get("cat", "")
            sums[category] = sums.get(category, 0.0) + event.get("dur", 0)
        return {"categories": len(sums)}

    return work


def simdjson_blocks(path: Path) -> Work:
    """Read the same blocks as ours, let simdjson parse them, and do nothing with what it finds."""
    parser = importlib.import_module("simdjson").Parser()
    blocks = importlib.import_module("pytest_aorta.trace.blocks").blocks
    pending = importlib.import_module("pytest_aorta.trace.pending").Pending()

    def work() -> dict[str, Any]:
        parse_s = 0.0
        for number, block in enumerate(blocks(path, print)):
            start = found.end() if number == 0 and (found := _EVENTS.search(block)) else 0
            pending.add(block[start:])
            array = pending.cut()
            if array is not None:
                begin = time.perf_counter()
                parser.parse(array)
                parse_s += time.perf_counter() - begin
        return {"parse_s": parse_s}

    return work


def tracelens_timeline(path: Path) -> Work:
    """Let TraceLens load a trace and give its GPU timeline."""
    analyzer = importlib.import_module("TraceLens").TreePerfAnalyzer
    return lambda: {"rows": len(analyzer.from_file(profile_filepath=str(path)).get_df_gpu_timeline())}


def tracelens_report(path: Path) -> Work:
    """Let TraceLens write its full report, next to the trace."""
    package = importlib.import_module("TraceLens")
    tables = str(path.parent / "tables")
    return lambda: {
        "sheets": len(package.generate_perf_report_pytorch(profile_json_path=str(path), output_csvs_dir=tables))
    }


def hta_breakdown(path: Path) -> Work:
    """Let HolisticTraceAnalysis load a trace and give its temporal breakdown."""
    analysis = importlib.import_module("hta.trace_analysis").TraceAnalysis
    files = {0: str(path)}
    return lambda: {"rows": len(analysis(trace_files=files).get_temporal_breakdown(visualize=False))}


READERS: dict[str, Callable[..., Work]] = {
    "ours": ours,
    "ranks": ours_of_ranks,
    "json": json_load,
    "simdjson": simdjson_blocks,
    "tracelens-timeline": tracelens_timeline,
    "tracelens-report": tracelens_report,
    "hta": hta_breakdown,
}


def main() -> int:
    """Run the reader that the command line names."""
    name, path, *jobs = sys.argv[1:]
    work = READERS[name](Path(path), *map(int, jobs))
    begin, begin_cpu = time.perf_counter(), time.process_time()
    found = work()
    times = {"seconds": time.perf_counter() - begin, "cpu_s": time.process_time() - begin_cpu}
    print(json.dumps({**times, "peak_bytes": _peak_bytes(), **found}))
    return 0


def _peak_bytes() -> int:
    """Give the peak of this process; that of getrusage would begin with the parent's."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
