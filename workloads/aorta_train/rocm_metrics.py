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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TOOLS = (
    ("rocm-smi", "--showuse", "--showmemuse", "--showtemp", "--showpower", "--showclocks", "--json"),
    ("amd-smi", "metric", "--usage", "--power", "--clock", "--temperature", "--json"),
)
INTERVAL_SECONDS = 10.0
TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.1
SECONDS_AFTER_THE_END = 2.0


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
        thread.join(2 * SECONDS_AFTER_THE_END)  # a tool that cannot be killed holds nobody up


def _sample_until(file: Path, interval_s: float, timeout_s: float, left: threading.Event) -> None:
    with file.open("w", encoding="utf-8", buffering=1) as lines:
        more = True
        while more:
            lines.write(json.dumps(take_sample(timeout_s, left)) + "\n")
            more = not left.wait(interval_s)


def take_sample(timeout_s: float, left: threading.Event) -> dict[str, Any]:
    """Run the first tool that is installed; gives its exit code, output and stderr, or the error.

    It is killed when it takes longer than `timeout_s`, or than `SECONDS_AFTER_THE_END` once the training has `left`.
    """
    taken = {"time_s": round(time.time(), 3)}
    command = next((tool for tool in TOOLS if shutil.which(tool[0])), None)
    if command is None:
        return {**taken, "rocm_smi_error": "neither rocm-smi nor amd-smi is on PATH"}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return {**taken, "rocm_smi_error": f"{command[0]} cannot be started: {error.strerror}"}
    give_up_at_s = time.monotonic() + timeout_s
    why = f"did not answer within {timeout_s:g} s"
    while (now_s := time.monotonic()) < give_up_at_s:
        if left.is_set() and now_s + SECONDS_AFTER_THE_END < give_up_at_s:
            give_up_at_s = now_s + SECONDS_AFTER_THE_END
            why = "had not answered when the training ended"
        try:
            output, errors = process.communicate(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        answer = {"rocm_smi_exit_code": process.returncode, "rocm_smi_output": output, "rocm_smi_stderr": errors}
        return {**taken, **answer}
    process.kill()
    with suppress(subprocess.TimeoutExpired):  # one that waits for its device cannot be killed
        process.communicate(timeout=POLL_SECONDS)
    return {**taken, "rocm_smi_error": f"{command[0]} {why}"}
