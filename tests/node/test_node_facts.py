"""Facts of the machine these tests run on, compared with other sources."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pytest_aorta.fleet.ask import Answer

AskNode = Callable[..., Answer]


def test_facts_agree_with_what_python_says(ask: AskNode) -> None:
    facts = ask("facts")
    assert facts["hostname"] == socket.gethostname()
    assert (facts["uid"], facts["gid"]) == (os.getuid(), os.getgid())
    assert facts["kernel"] == platform.release()
    assert facts["python"] == platform.python_version()
    assert facts["cpu_count"] == len(os.sched_getaffinity(0))
    total_kb = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
    assert abs(facts["memory_bytes"] - total_kb * 1024) < 1024**2
    assert facts["kfd"] == Path("/dev/kfd").exists()
    assert facts["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert set(facts["group_ids"]) == {"video", "render"}
    assert all(isinstance(facts[name], list) for name in ("dri", "nvidia", "infiniband"))


def test_clocks_run_forward(ask: AskNode) -> None:
    before = time.time_ns()
    first, second = ask("clock"), ask("clock")
    after = time.time_ns()
    assert before <= first["wall_ns"] <= second["wall_ns"] <= after
    assert 0 < first["uptime_s"] <= second["uptime_s"]


def test_it_runs_with_the_python_of_its_host(ask: AskNode) -> None:
    assert ask("facts")["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
