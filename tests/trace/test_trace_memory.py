"""Memory does not follow the size of the file."""

import json
import subprocess
import sys
from pathlib import Path

from pytest_aorta.trace.synthetic import kernel, operator

READ = """
import pathlib, resource, sys
from pytest_aorta.trace.reading import read
found = read(pathlib.Path(sys.argv[1]))
print(len(found.events.kind), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
ROOT = Path(__file__).parents[2]
EVENTS = [operator(i, 1, f"aten::mm_{i}_" + "x" * 200) for i in range(1000)] + [kernel(i, 1) for i in range(20)]


def peak(path: Path, num_copies: int) -> tuple[int, int]:
    text = json.dumps(EVENTS).encode()[1:-1]
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [' + text)
        for _ in range(num_copies - 1):
            file.write(b", " + text)
        file.write(b"]}")
    result = subprocess.run([sys.executable, "-c", READ, path], cwd=ROOT, capture_output=True, text=True, check=True)
    path.unlink()
    num_events, peak_bytes = result.stdout.split()
    return int(num_events), int(peak_bytes)


def test_peak_memory_grows_with_the_gpu_events_only(tmp_path: Path) -> None:
    small_events, small_bytes = peak(tmp_path / "t.json", 4)
    large_events, large_bytes = peak(tmp_path / "t.json", 250)
    assert (small_events, large_events) == (80, 5000)
    assert large_bytes - small_bytes < (64 << 20) + 64 * large_events
