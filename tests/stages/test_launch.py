"""The launch stage, of hosts that answer from a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.run.products import LogWindow
from pytest_aorta.stages.launch import launch_containers
from tests.run.test_context import context

FACTS: dict[str, Any] = {
    "hostname": "a", "os": "Linux", "kernel": "6.1", "cpu_count": 2, "kfd": False, "nvidia": [], "dri": [],
    "boot_id": "b", "pid_namespace": "p", "uptime_s": 5.5,
}  # fmt: skip


def test_the_window_of_the_kernel_log_begins_before_anything_is_made(tmp_path: Path) -> None:
    host = ScriptedTransport(
        [
            Reply("facts", FACTS),
            Reply("devices", {"machine": {}, "pci": [], "counters": {}}),
            Reply("prepare", {"path": "/w", "free_bytes": 2**40, "writable": True}),
            Reply("kernel_log", {"status": "read", "boot_id": "b", "lines": [], "dropped": 0}),
            Reply("clock", {"wall_ns": 1, "uptime_s": 99.0, "boot_id": "b"}),
        ]
    )
    fleet = Fleet({"a": host})
    cluster = {"transport": "local", "node_dict": {"a": {"vpc_ip": "127.0.0.1"}}}
    workload = {"command": ["./train"], "launcher": "none", "traces": "out/*"}
    run = context(tmp_path, fleet, cluster=cluster, workload=workload, accelerator="cpu")

    launched = launch_containers(run)
    fleet.close()

    assert launched.log_windows == {"a": LogWindow(boot_id="b", since_uptime_s=5.5)}
