from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.workloads.vanishing import vanishes

STUCK = """
import multiprocessing, sys, threading
sys.path.insert(0, sys.argv[1])
from aorta_train.ending import leave_on_error

def sleep_for_ever():
    threading.Event().wait()

leave_on_error()
threading.Thread(target=sleep_for_ever).start()
child = multiprocessing.get_context("fork").Process(target=sleep_for_ever)
child.start()
print(child.pid, flush=True)
raise RuntimeError("this is the reason")
"""


def test_an_error_ends_the_process_whatever_still_runs_in_it(tree: Path) -> None:
    command = [sys.executable, "-c", STUCK, str(tree)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "RuntimeError: this is the reason" in ended.stderr
    assert vanishes(ended.stdout.strip())
