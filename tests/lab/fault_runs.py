"""Runs that are caught in the act: held or signalled where a stage says a sentence, and read when they have ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.lab.cluster import CHECKOUT, Cluster
from tests.lab.host import Host
from tests.lab.processes import wait_until
from tests.suite.conftest import WORKLOAD

END_S = 60
BAD = ("failed", "interrupted")
# A pytest plugin: waits where the log says a sentence, until the file `go` is there. Pings go on meanwhile.
HOLDER = """
import logging, pathlib, re, time

class Holder(logging.Handler):
    def emit(self, record):
        if re.search({moment!r}, record.getMessage()) and not pathlib.Path("held").exists():
            pathlib.Path("held").touch()
            while not pathlib.Path("go").exists():
                time.sleep(0.02)

def pytest_configure(config):
    logging.getLogger("pytest_aorta").addHandler(Holder())
"""
LONG: dict[str, Any] = {"training_overrides": {"training.max_steps": 100000, "scheduler.total_steps": 100000}}


TALK = "echo trains; exec {python} sample_workload.py --rank $(($(hostname | tr -cd 0-9) - 1)){arguments}"


def configure_light(cluster: Cluster, arguments: str = "", **fields: Any) -> None:
    """Configure a workload that needs no torch and says `trains` when it begins, in a checkout on every host.

    Each host has the rank of its number.
    """
    for host in cluster.lab.hosts:
        host.run(["mkdir", "-p", CHECKOUT], check=True)
        host.path(f"{CHECKOUT}/sample_workload.py").write_text(WORKLOAD.read_text("utf-8"), "utf-8")
    command = ["sh", "-c", TALK.format(python=sys.executable, arguments=arguments and f" {arguments}")]
    args = {"volumes": [f"{CHECKOUT}:/mnt"], **fields.pop("args", {})}
    defaults: dict[str, Any] = {
        "aorta_path": CHECKOUT,
        "container_mount_path": "/mnt",
        "container": {"runtime": {"args": args}, **fields.pop("container", {})},
        "workload": {"command": command, "traces": "out/torch_profiler/*/*"},
        "thresholds": {"max_avg_iteration_ms": 5000.0},
    }
    cluster.configure_cluster(**{**defaults, **fields})


@dataclass(frozen=True)
class Ending:
    """How a run ended, as a CI job and its reader see it."""

    code: int
    seconds: float
    letters: str
    sentence: str
    verdict: str
    fault: str
    hosts: list[str]
    failing: list[str]
    output: str
    reasons: dict[str, str]

    def __str__(self) -> str:
        said = "\n".join(f"  {name}: {reason}" for name, reason in self.reasons.items())
        return (
            f"{self.letters} exit {self.code} in {self.seconds:.1f} s, {self.verdict}/{self.fault}, "
            f"hosts {self.hosts}, failing {self.failing}\n  {self.sentence}\n{said}"
        )


class Caught:
    """A run that has been started; `end` reads how it ended."""

    def __init__(self, cluster: Cluster, child: subprocess.Popen[str]) -> None:
        self.cluster = cluster
        self.child = child
        self._began_s = time.monotonic()

    def release(self) -> None:
        """Let a run that is held go on."""
        self._began_s = time.monotonic()
        (self.cluster.path / "go").touch()

    def fault_begins(self) -> None:
        """Count the time from here."""
        self._began_s = time.monotonic()

    def end(self, timeout_s: float = END_S) -> Ending:
        """Wait for its end."""
        output, _ = self.child.communicate(timeout=timeout_s)
        return read(self.cluster, self.child.returncode, output, time.monotonic() - self._began_s)

    def kill(self) -> None:
        """End pytest as the kernel does when memory is short: nothing of it is there any more."""
        self.child.kill()
        self.child.wait()

    def trace_files(self) -> list[str]:
        """The folders in the run folder that have a trace, such as `rank0`."""
        return sorted(path.parent.name for path in self.cluster.folder.rglob("combined_traces/**/*.pt.trace.json"))


def read(cluster: Cluster, code: int, output: str, seconds: float) -> Ending:
    """Read what a run that has ended left on this machine."""
    verdict = json.loads((cluster.folder / "verdict.json").read_text("utf-8"))
    stages = cluster.record()["stages"]
    ending = Ending(
        code=code,
        seconds=seconds,
        letters=cluster.letters(),
        sentence=verdict["sentence"],
        verdict=verdict["verdict"],
        fault=verdict["fault"],
        hosts=[each["host"] for each in verdict["hosts"]],
        failing=(cluster.reports / "failing_nodes.txt").read_text("utf-8").split(),
        output=output,
        reasons={
            name: stage["reason"] for name, stage in stages.items() if stage["outcome"] in ("failed", "interrupted")
        },
    )
    print(ending)
    assert "\nTraceback (most recent call last)" not in output, output
    return ending


def start(cluster: Cluster, *arguments: str) -> Caught:
    """Start a run."""
    return Caught(cluster, cluster.start(*arguments))


def run_to_end(cluster: Cluster, *arguments: str) -> Ending:
    """Run to the end."""
    return start(cluster, *arguments).end()


def hold(cluster: Cluster, moment: str, *arguments: str, timeout_s: float = 45) -> Caught:
    """Start a run and hold it where its log says `moment`, a pattern."""
    (cluster.path / "holder.py").write_text(HOLDER.format(moment=moment), "utf-8")
    caught = start(cluster, "-p", "holder", *arguments)
    wait_until(lambda: (cluster.path / "held").exists() or has_ended(caught), f"the run to say {moment}", timeout_s)
    return caught


def has_ended(caught: Caught) -> bool:
    """Tell whether pytest has ended, and fail with what it said."""
    if caught.child.poll() is not None:
        raise AssertionError(f"pytest ended too early:\n{caught.child.communicate()[0]}")
    return False


def train(cluster: Cluster, *arguments: str, timeout_s: float = 45) -> Caught:
    """Start a run and wait until all its ranks have written their traces and train on."""
    caught = start(cluster, *arguments)
    wait_until(lambda: have_traces(cluster) or has_ended(caught), "traces of all ranks", timeout_s, pause_s=0.1)
    caught.fault_begins()
    return caught


def have_traces(cluster: Cluster) -> bool:
    """Tell whether each host has the trace of its rank, whole."""
    return all(trace_on(host) for host in cluster.lab.hosts)


def trace_on(host: Host) -> bool:
    cache = host.path("/root/.cache/pytest-aorta")
    return cache.is_dir() and any(cache.rglob("*.pt.trace.json"))


def node_programs(host: Host) -> list[int]:
    """The pids of the node programs on a host, of that in the container too."""
    return [
        process.pid
        for process in host.processes()
        if any(word.endswith("aorta-node.pyz") for word in process.argv) and "exec" not in process.argv
    ]


@contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    """Stop all node programs for a while: whoever asks waits."""
    pids = {host: [str(pid) for pid in node_programs(host)] for host in cluster.lab.hosts}
    for host, programs in pids.items():
        host.run(["kill", "-STOP", *programs], check=True)
    try:
        yield
    finally:
        for host, programs in pids.items():
            host.run(["kill", "-CONT", *programs], check=True)


def end_children(cluster: Cluster) -> None:
    """Kill what is left of the test's own runs."""
    for child in cluster.children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    cluster.lab.heal()
    for host in cluster.lab.hosts:
        host.run(["rm", "-rf", CHECKOUT], check=True)


def left_soon(cluster: Cluster, host: Host, timeout_s: float) -> None:
    """Wait until neither a process nor a container of ours is on a host; seen from outside, also behind a cut link."""
    wait_until(lambda: running_on(cluster, host) == [], f"{host.name} to be clean", timeout_s, pause_s=0.2)


def running_on(cluster: Cluster, host: Host) -> list[str]:
    """Name what of ours runs on a host: processes and containers, not folders."""
    return [each for each in cluster.left_on(host) if not each.startswith("folder ")]


def folders_on(cluster: Cluster, host: Host) -> list[str]:
    return [each for each in cluster.left_on(host) if each.startswith("folder ")]
