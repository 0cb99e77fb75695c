"""`--enable-rocm-metrics`: what rocm-smi says of the GPUs while the ranks train, from one rank a node.

A thread asks at an interval, never the step loop. A tool that is missing, fails or hangs is written down like any other
sample, and never ends a run.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOOLS = (
    ("rocm-smi", "--showuse", "--showmemuse", "--showtemp", "--showpower", "--showclocks", "--json"),
    ("amd-smi", "metric", "--usage", "--power", "--clock", "--temperature", "--json"),
)
INTERVAL_SECONDS = 10.0
TIMEOUT_SECONDS = 10.0


@contextmanager
def sampling(file: Path, interval_s: float = INTERVAL_SECONDS, timeout_s: float = TIMEOUT_SECONDS) -> Iterator[None]:
    """Write a JSON line a sample to `file`: the first at once, then one an interval, none that begins after the end."""
    left = threading.Event()
    arguments = (file, interval_s, timeout_s, left)
    thread = threading.Thread(target=_sample_until, args=arguments, name="rocm-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def _sample_until(file: Path, interval_s: float, timeout_s: float, left: threading.Event) -> None:
    with file.open("w", encoding="utf-8", buffering=1) as lines:
        more = True
        while more:
            lines.write(json.dumps(take_sample(timeout_s)) + "\n")
            more = not left.wait(interval_s)


def take_sample(timeout_s: float) -> dict[str, Any]:
    """Run the first tool that is installed; gives its exit code, output and stderr, or the error."""
    taken = {"time_s": round(time.time(), 3)}
    command = next((tool for tool in TOOLS if shutil.which(tool[0])), None)
    if command is None:
        return {**taken, "rocm_smi_error": "neither rocm-smi nor amd-smi is on PATH"}
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {**taken, "rocm_smi_error": f"{command[0]} did not answer within {timeout_s:g} s"}
    except OSError as error:
        return {**taken, "rocm_smi_error": f"{command[0]} cannot be started: {error.strerror}"}
    return {
        **taken,
        "rocm_smi_exit_code": ended.returncode,
        "rocm_smi_output": ended.stdout,
        "rocm_smi_stderr": ended.stderr,
    }
