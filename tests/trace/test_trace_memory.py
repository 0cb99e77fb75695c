"""Memory does not follow the size of the file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trace.synthetic import kernel, operator

READ = """
import pathlib, re, sys
from pytest_aorta.trace.reading import read
found = read(pathlib.Path(sys.argv[1]))
peak_kib = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]  # rusage keeps the parent's
print(len(found.events.kind), int(peak_kib) * 1024)
"""
ROOT = Path(__file__).parents[2]
EVENTS = [operator(i, 1, f"aten::mm_{i}_" + "x" * 200) for i in range(1000)] + [kernel(i, 1) for i in range(20)]


def peak(path: Path, size_mb: int) -> tuple[int, int]:
    """Read a file of at least this size in a process of its own; give its number of GPU events and the peak memory."""
    text = json.dumps(EVENTS).encode()[1:-1]
    num_copies = -(-size_mb * 1_000_000 // len(text))
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [' + text)
        for _ in range(num_copies - 1):
            file.write(b", " + text)
        file.write(b"]}")
    result = subprocess.run([sys.executable, "-c", READ, path], cwd=ROOT, capture_output=True, text=True, check=True)
    path.unlink()
    num_events, peak_bytes = result.stdout.split()
    return int(num_events), int(peak_bytes)


@pytest.mark.parametrize(
    ("small_mb", "large_mb"),
    [pytest.param(1, 85, id="1-85MB"), pytest.param(50, 500, id="50-500MB", marks=pytest.mark.slow)],
)
def test_peak_memory_grows_with_the_gpu_events_only(tmp_path: Path, small_mb: int, large_mb: int) -> None:
    small_events, small_bytes = peak(tmp_path / "t.json", small_mb)
    large_events, large_bytes = peak(tmp_path / "t.json", large_mb)
    assert 0 < small_events < large_events
    assert large_bytes - small_bytes < (64 << 20) + 64 * large_events
