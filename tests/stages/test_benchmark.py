"""The benchmark stage, of hosts that answer from a script."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.products import Containers, Execution, Fabric, LogWindow, Rccl, WorkloadTree
from pytest_aorta.stages.benchmark import run_benchmark
from pytest_aorta.stages.collect import collect_traces
from pytest_aorta.stages.inventory import read_inventory
from pytest_aorta.stages.rccl import build_rccl
from tests.run.test_context import context

XID_79 = "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus."
KERNEL_LOG = {
    "status": "read",
    "boot_id": "b",
    "lines": [{"stamp_s": 3.0, "facility": "kern", "level": "err", "text": XID_79}],
    "dropped": 0,
}
STUCK = {"stopped": {"benchmark": "killed", "rccl": "killed"}, "left": [77]}


def exited(name: str, exit_code: int = 0) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (("exited", {"name": name, "exit_code": exit_code, "signal": None, "seconds": 1.0}),)


@pytest.fixture
def host() -> ScriptedTransport:
    return ScriptedTransport(
        [
            Reply("find", {"files": [], "stale": 0, "too_deep": 0}),
            Reply("clock", {"wall_ns": 10**18, "uptime_s": 1.0, "boot_id": "b"}),
            Reply("start", events=exited("benchmark")),
            Reply("processes", {"groups": {}}, times=0),
            Reply("stop", STUCK),
            Reply("kernel_log", KERNEL_LOG),
        ],
        files={"/w/benchmark.log": b"step 1\n", "/w/rccl.log": b"make\n"},
    )


@pytest.fixture
def run(tmp_path: Path, host: ScriptedTransport) -> Iterator[RunContext]:
    fleet = Fleet({"a": host})
    workload = {"command": ["./train"], "launcher": "none", "traces": "out/*"}
    yield context(tmp_path, fleet, cluster=CLUSTER, workload=workload)
    fleet.close()


@pytest.fixture
def containers() -> Containers:
    windows = {"a": LogWindow(boot_id="b", since_uptime_s=1.0)}
    return Containers(engine="bare", by_host={}, work_dirs={"a": "/w"}, accelerator="cpu", log_windows=windows)


CLUSTER = {"transport": "local", "node_dict": {"a": {"vpc_ip": "127.0.0.1"}}}
TRACE = {"path": "t.json", "size": 3, "mtime_ns": 10**18, "print": "x"}
TREE = WorkloadTree(source="bundled", root={"a": "/w/tree"}, identity="x")


def benchmark(run: RunContext, containers: Containers) -> Execution:
    return run_benchmark(run, containers, TREE, Fabric(), Rccl())


def test_where_a_process_will_not_die_logs_and_kernel_log_are_read_all_the_same(
    run: RunContext, containers: Containers
) -> None:
    execution = benchmark(run, containers)

    stuck, fatal = execution.checks
    assert (stuck.state, stuck.host, stuck.fault) == ("failed", "a", "rig")
    assert stuck.reason == "a: benchmark: processes [77] would not die, though killed"
    assert "state D" in stuck.next_step
    assert XID_79 in fatal.reason
    assert execution.status == "failed"
    assert run.folder.phase_log("benchmark", 0).read_text("utf-8") == "step 1\n"


def test_where_the_earlier_files_cannot_be_listed_no_trace_is_taken(
    run: RunContext, containers: Containers, host: ScriptedTransport
) -> None:
    host.replies[0] = Reply("find", error=("failed", "/w/tree/out: Permission denied"))
    execution = benchmark(run, containers)
    host.replies.append(Reply("find", {"files": [TRACE], "stale": 0, "too_deep": 0}))

    (check,) = [each for each in collect_traces(run, execution).checks if each.host == "a"]
    assert check.failed
    assert check.reason == (
        "a: what was there before the launch could not be listed (/w/tree/out: Permission denied); which files are new "
        "is unknown"
    )


def test_a_folder_that_is_not_there_yet_has_no_earlier_files(
    run: RunContext, containers: Containers, host: ScriptedTransport
) -> None:
    host.replies[0] = Reply("find", error=("failed", "/w/tree/out: No such file or directory"))
    execution = benchmark(run, containers)
    inventory = read_inventory(run, "a")
    assert execution.unlisted == {}
    assert inventory is not None
    assert inventory.times == {}


def test_whether_the_built_library_was_loaded_is_not_judged(run: RunContext, containers: Containers) -> None:
    execution = run_benchmark(run, containers, TREE, Fabric(), Rccl(built=True, library="/mnt/rccl/librccl.so"))

    (check,) = [check for check in execution.checks if check.state == "not_judged"]
    assert check.reason == "whether the ranks loaded the RCCL that was built (/mnt/rccl/librccl.so)"


def test_a_second_attempt_has_its_own_time_of_launch(
    tmp_path: Path, host: ScriptedTransport, containers: Containers
) -> None:
    taken = {"name": "benchmark", "lines": ["DistNetworkError: port 4711: EADDRINUSE"]}
    stopped_at_s: list[float] = []

    def stopped(_: Any) -> dict[str, Any]:
        stopped_at_s.append(time.time())
        return {"stopped": {}, "left": []}

    host.replies = [
        *(Reply(do, {"port": 4711}, times=2) for do in ("offer", "withdraw")),
        Reply("reach", {"why": "", "peer": "10.0.0.1"}, times=2),
        *host.replies[:2],
        Reply("start", events=(("lines", taken), *exited("benchmark", 1))),
        Reply("start", events=exited("benchmark")),
        Reply("stop", stopped, times=2),
        Reply("kernel_log", KERNEL_LOG),
    ]
    fleet = Fleet({"a": host})
    workload = {"command": ["train.py"], "launcher": "torchrun", "traces": "out/*"}
    run = context(tmp_path, fleet, cluster=CLUSTER, workload=workload)

    execution = benchmark(run, containers)
    fleet.close()

    assert len(stopped_at_s) == 2
    assert stopped_at_s[0] <= execution.launched_at_s <= execution.ended_at_s <= time.time()


def test_a_build_that_will_not_die_is_told_with_its_log(
    run: RunContext, containers: Containers, host: ScriptedTransport
) -> None:
    host.replies = [Reply("start", events=exited("rccl")), Reply("stop", STUCK)]

    rccl = build_rccl(run, containers, TREE, Fabric())

    (stuck,) = rccl.checks
    assert stuck.reason == "a: rccl: processes [77] would not die, though killed"
    assert run.folder.phase_log("rccl", 0).read_text("utf-8") == "make\n"
