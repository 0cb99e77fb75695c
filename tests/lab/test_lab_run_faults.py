"""Hosts, links and engines that fail before, during and after the benchmark of a run over two hosts.

After each: the run says which host and why, nothing of ours runs anywhere, and what the survivors wrote is kept.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import faults
from tests.lab.broken import USER_ID
from tests.lab.cluster import CHECKOUT, CONTAINER, Cluster
from tests.lab.conftest import python_folders
from tests.lab.fault_runs import (
    LONG,
    configure_light,
    end_children,
    folders_on,
    has_ended,
    hold,
    left_soon,
    node_programs,
    run_to_end,
    running_on,
    start,
    trace_on,
    train,
)
from tests.lab.lab import Lab
from tests.lab.processes import wait_until

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]

SHORT: dict[str, Any] = {"lease_seconds": 5, "failure_grace_seconds": 2}
A_MINUTE_S = 60  # a dead host is not waited for in vain, stage after stage
DOWN = "it is down or cut off"


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("torch", reason="torch is not installed")
    made = Cluster(tmp_path, lab=lab)
    yield made
    end_children(made)


def assert_clean_when_it_is_back(cluster: Cluster) -> None:
    """Require that a run names itself as not cleaned, that `aorta clean` does the rest, and that nothing is left."""
    cluster.aorta("clean", code=0)
    cluster.assert_nothing_left()
    assert "nothing to clean" in cluster.aorta("clean", code=0)


def test_host_down_before(cluster: Cluster) -> None:
    first, second = cluster.lab.hosts
    configure_light(cluster)
    with faults.power_off(second):
        ending = run_to_end(cluster)
        assert running_on(cluster, first) + folders_on(cluster, first) == []

    assert (ending.code, ending.letters) == (1, "FSSSSSSSSSP")
    assert (ending.verdict, ending.fault) == ("could_not_measure", "rig")
    assert ending.sentence.startswith("test_launch_container: node2: no SSH connection (node2 is ")
    assert "is the host up, and may this machine reach its SSH port?" in ending.sentence
    assert "node1" not in ending.sentence
    assert ending.seconds < A_MINUTE_S
    cluster.assert_nothing_left()


def test_host_down_during(cluster: Cluster) -> None:
    first, second = cluster.lab.hosts
    cluster.configure_cluster(**LONG, **SHORT)
    caught = train(cluster)
    with faults.power_off(second):
        ending = caught.end()
        assert running_on(cluster, first) + folders_on(cluster, first) == []

    assert (ending.code, ending.letters) == (1, "PPPSFFSPSPF")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("failed", "cluster", ["node2"], ["node2"])
    assert ending.sentence.startswith("test_run_benchmark: node2: nothing was heard from it for 5 s: it is down or cut")
    assert ending.sentence.endswith("node1 still ran 2 s after the first failure and was ended")
    assert ending.reasons["test_collect_traces"].endswith(
        f"no traces: node2: nothing was heard from it for 5 s: {DOWN}"
    )
    assert "node2 could not be asked to clean up" in ending.reasons["test_teardown"]
    assert ending.reasons["test_teardown"].count("node2") == 1
    assert caught.trace_files() == ["rank0"]
    assert (cluster.folder / "benchmark-node-0.log").exists()
    assert ending.seconds < A_MINUTE_S
    assert cluster.record()["uncleaned"] == ["node2"]
    assert "drain, in a Slurm cluster: scontrol update nodename=node2 state=drain 'reason=aorta " in ending.output
    assert "hint: [fatal] the host crashed, rebooted, lost power" in ending.output
    assert {path.name for path in (cluster.folder / "evidence" / "node2").iterdir()} >= {"summary.txt", "facts.json"}
    assert_clean_when_it_is_back(cluster)


def test_host_crashes_after_the_benchmark(cluster: Cluster) -> None:
    """Its traces are gone with it; those of the other host are collected and parsed."""
    first, second = cluster.lab.hosts
    cluster.configure_cluster(**SHORT)
    caught = hold(cluster, "^test_collect_traces begins")
    with faults.crash(second):
        caught.release()
        ending = caught.end()
        assert running_on(cluster, first) + folders_on(cluster, first) == []

    assert (ending.code, ending.letters) == (1, "PPPSPFSPSPF")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("failed", "cluster", ["node2"], ["node2"])
    assert "1 of 2 hosts gave no traces: node2: the channel broke: the connection to " in ending.sentence
    assert ending.sentence.endswith(DOWN)
    assert "node2 could not be asked to clean up" in ending.reasons["test_teardown"]
    assert caught.trace_files() == ["rank0"]
    assert_clean_when_it_is_back(cluster)


def test_host_down_before_teardown(cluster: Cluster) -> None:
    first, second = cluster.lab.hosts
    configure_light(cluster, **SHORT)
    caught = hold(cluster, "^test_teardown begins")
    with faults.power_off(second):
        caught.release()
        ending = caught.end()
        assert running_on(cluster, first) + folders_on(cluster, first) == []

    assert (ending.code, ending.letters) == (1, "PPPSPPSPPPF")
    assert (ending.verdict, ending.fault) == ("could_not_measure", "rig")
    assert ending.sentence.startswith("test_teardown: node2 could not be asked to clean up (")
    assert f"aorta clean {cluster.folder.name}" in ending.output
    assert ending.seconds < A_MINUTE_S
    assert_clean_when_it_is_back(cluster)


def test_ssh_session_lost(cluster: Cluster) -> None:
    """The host answers at once over a new connection: it is not to be drained, and is cleaned."""
    second = cluster.lab.hosts[1]
    configure_light(cluster, "--steps 100000 --step-ms 20", **SHORT)
    caught = hold(cluster, ": trains$")
    second.run(["pkill", "-KILL", "-f", "sshd: root"], check=True)
    caught.release()
    ending = caught.end()

    assert (ending.code, ending.letters) == (1, "PPPSFFSSSSP")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", ["node2"], [])
    assert "test_run_benchmark: node2: its SSH session ended (the connection to " in ending.sentence
    assert "and the host answers over a new one" in ending.sentence
    assert "sshd on that host was restarted, somebody ended or stopped the session" in ending.output
    assert "the host crashed" not in ending.output
    assert "drain" not in ending.output
    assert cluster.record()["uncleaned"] == []
    cluster.assert_nothing_left()


@pytest.mark.parametrize("stopped", ["node program", "session"])
def test_what_carries_the_channel_stands_still(cluster: Cluster, stopped: str) -> None:
    """The host is silent, but answers over a new connection: it is not to be drained, and is cleaned."""
    second = cluster.lab.hosts[1]
    configure_light(cluster, "--steps 100000 --step-ms 20", **SHORT)
    caught = hold(cluster, ": trains$")
    session = [each.pid for each in second.processes() if " ".join(each.argv).startswith("sshd: root")]
    pids = session if stopped == "session" else node_programs(second)
    second.run(["kill", "-STOP", *map(str, pids)], check=True)
    caught.release()
    ending = caught.end()

    assert (ending.code, ending.letters) == (1, "PPPSFFSSSSP")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", ["node2"], [])
    assert re.search(r"node2: nothing was heard from it for \d+ s, yet the host answers over a new", ending.sentence)
    assert "drain" not in ending.output
    assert cluster.record()["uncleaned"] == []
    second.run(["sh", "-c", f"kill -CONT {' '.join(map(str, pids))} || true"], check=True)
    left_soon(cluster, second, 10)
    cluster.assert_nothing_left()


def test_link_cut_and_healed(cluster: Cluster) -> None:
    """Whoever comes back within the lease has missed nothing."""
    overrides = {"training.max_steps": 120, "scheduler.total_steps": 120}
    cluster.configure_cluster(training_overrides=overrides, lease_seconds=15)
    caught = start(cluster)
    second = cluster.lab.hosts[1]
    wait_until(lambda: trace_on(second) or has_ended(caught), "a trace", 45, pause_s=0.1)
    with faults.cut_link(second):
        time.sleep(3)
    ending = caught.end()

    assert (ending.code, ending.letters) == (0, "PPPSPPSPPPP")
    cluster.assert_nothing_left()


def test_link_cut_for_good(cluster: Cluster) -> None:
    """A host that is cut off cleans itself, though nobody can tell it to."""
    first, second = cluster.lab.hosts
    cluster.configure_cluster(**LONG, **SHORT)
    caught = train(cluster)
    with faults.cut_link(second):
        left_soon(cluster, second, 20)
        ending = caught.end()
        assert running_on(cluster, second) == []
        assert running_on(cluster, first) + folders_on(cluster, first) == []

    assert (ending.code, ending.letters) == (1, "PPPSFFSPSPF")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("failed", "cluster", ["node2"], ["node2"])
    # Whether the kernel gives the connection up first or the fleet, which waits for words, is a matter of moments.
    assert re.match(rf"test_run_benchmark: node2: (nothing was heard|the channel broke).*: {DOWN}", ending.sentence)
    assert caught.trace_files() == ["rank0"]
    assert_clean_when_it_is_back(cluster)


def test_container_killed(cluster: Cluster) -> None:
    """What it wrote lies in our folder on the host, and is collected from there."""
    second = cluster.lab.hosts[1]
    cluster.configure_cluster(**LONG, **SHORT)
    caught = train(cluster)
    second.run(["docker", "kill", CONTAINER], check=True)
    ending = caught.end()

    assert (ending.code, ending.letters) == (1, "PPPSFPSPSPP")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", ["node2"], [])
    assert f"node2: its container {CONTAINER} is not running (exited, exit code 137)" in ending.sentence
    assert caught.trace_files() == ["rank0", "rank1"]
    cluster.assert_nothing_left()


def test_container_killed_under_a_user_who_is_not_root(cluster: Cluster) -> None:
    """What it wrote as root is given back all the same."""
    for host in cluster.lab.hosts:
        host.run(["sh", "-c", "chgrp lab /run/docker.sock && chmod g+rw /run/docker.sock"], check=True)
    second = cluster.lab.hosts[1]
    configure_light(cluster, "--steps 100000 --step-ms 20 --early-traces", username="lab", **SHORT)
    caught = hold(cluster, ": trains$")
    wait_until(lambda: all(list(host.path(CHECKOUT).rglob("*.json")) for host in cluster.lab.hosts), "traces", 10)
    second.run(["docker", "kill", CONTAINER], check=True)
    caught.release()
    ending = caught.end()

    assert ending.letters[-1] == "P", ending
    owners = {path.stat().st_uid for host in cluster.lab.hosts for path in host.path(CHECKOUT).rglob("out/**/*")}
    assert owners == {USER_ID}
    cluster.assert_nothing_left()


def test_container_out_of_memory(cluster: Cluster) -> None:
    """The limit of its container ends a rank, which only the control group tells."""
    waits = "echo trains; while [ ! -e /mnt/eat ]; do sleep 0.1; done; exec {python} -c 'bytearray(300 << 20)'"
    command = ["sh", "-c", waits.format(python=sys.executable)]
    workload = {"command": command, "traces": "out/torch_profiler/*/*", "launcher": "none"}
    configure_light(cluster, **SHORT, workload=workload, kernel_log={"enabled": False})
    caught = hold(cluster, ": trains$")
    second = cluster.lab.hosts[1]
    second.run(["docker", "update", "--memory=64m", "--memory-swap=64m", CONTAINER], check=True)
    second.path(f"{CHECKOUT}/eat").touch()
    caught.release()
    ending = caught.end()

    assert (ending.hosts, ending.failing) == (["node2"], [])
    assert (
        "node2: the workload was ended by SIGKILL: its container's memory limit of 64 MiB was reached"
        in ending.sentence
    )
    cluster.assert_nothing_left()


def test_workload_that_prints_for_ever(cluster: Cluster) -> None:
    """The deadline holds all the same: it is ended while the answer to that is not behind what it prints."""
    workload = {"command": ["sh", "-c", "exec yes some line"], "traces": "out/*", "launcher": "none"}
    configure_light(cluster, workload=workload, timeout_seconds=8)
    caught = hold(cluster, "^test_collect_traces begins")
    running = [each for host in cluster.lab.hosts for each in running_on(cluster, host) if "yes" in each]
    caught.release()
    ending = caught.end()

    assert running == []
    assert "no end within timeout_seconds=8" in ending.sentence
    assert " may still run" not in ending.output
    cluster.assert_nothing_left()


@pytest.mark.parametrize(
    ("moment", "command", "said"),
    [
        (": trains$", ["restart"], r"was restarted \d+ s ago, while the run lived in it"),
        ("^test_run_benchmark begins", ["rm", "--force"], r"is gone \(no such container\); who removed it\?"),
        ("^test_run_benchmark begins", ["pause"], rf"is paused; let it go on: `docker unpause {CONTAINER}` on node2"),
        ("^test_collect_traces begins", ["pause"], "is paused$"),
    ],
)
def test_container_taken_away(cluster: Cluster, moment: str, command: list[str], said: str) -> None:
    """Whenever it is, the run says what became of it, and the host is not to be drained."""
    second = cluster.lab.hosts[1]
    configure_light(cluster, "--steps 100000 --step-ms 20" if moment == ": trains$" else "", **SHORT)
    caught = hold(cluster, moment)
    second.run(["docker", *command, CONTAINER], check=True)
    caught.release()
    ending = caught.end()

    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", ["node2"], [])
    assert re.search(rf"node2: its container {CONTAINER} {said}", ending.sentence)
    assert "OOM killer" not in ending.output
    cluster.assert_nothing_left()


def test_daemon_stopped_during(cluster: Cluster) -> None:
    """It takes its containers with it, and cannot remove what is left of them."""
    second = cluster.lab.hosts[1]
    configure_light(cluster, "--steps 100000 --step-ms 20 --early-traces", **SHORT)
    caught = hold(cluster, ": trains$")
    wait_until(lambda: all(list(host.path(CHECKOUT).rglob("*.json")) for host in cluster.lab.hosts), "traces", 10)
    with faults.stop_docker(second):
        caught.release()
        ending = caught.end()

    assert (ending.code, ending.letters) == (1, "PPPSFPSPSPF")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", ["node2"], [])
    assert (
        f"node2: its container {CONTAINER} cannot be entered any more (Cannot connect to the Docker" in ending.sentence
    )
    assert re.search(r"node2: container \w+: Cannot connect to the Docker", ending.reasons["test_teardown"])
    assert caught.trace_files() == ["rank0", "rank1"]
    assert_clean_when_it_is_back(cluster)


def test_daemon_killed_before_teardown(cluster: Cluster) -> None:
    first, second = cluster.lab.hosts
    configure_light(cluster, **SHORT)
    caught = hold(cluster, "^test_teardown begins")
    with faults.kill_docker(second):
        caught.release()
        ending = caught.end()
        assert running_on(cluster, first) == []

    assert (ending.code, ending.letters) == (1, "PPPSPPSPPPF")
    assert (ending.verdict, ending.fault) == ("could_not_measure", "rig")
    assert re.search(r"node2: container \w+: Cannot connect to the Docker daemon", ending.sentence)
    assert "Start it (systemctl start docker)" in ending.sentence
    assert_clean_when_it_is_back(cluster)


NO_ANSWER = "see whether docker's daemon answers there at all (`docker info`), and restart it if not"


@pytest.mark.parametrize(
    ("moment", "letters", "said"),
    [
        ("^test_launch_container begins", "FSSSSSSSSSP", rf"could not use docker: node2: .*; {re.escape(NO_ANSWER)}"),
        (r": container \w+ .* started", "FSSSSSSSSSF", "node2: `docker exec` was not done within 30 s"),
        (": trains$", "PPPSFFSSSSF", rf"node2: its container {CONTAINER} cannot be looked at \(`docker"),
        ("^test_collect_traces begins", "PPPSPFSPSPF", rf"node2: its container {CONTAINER} cannot be looked at"),
        (
            "^test_teardown begins",
            "PPPSPPSPPPF",
            r"remove the container: node2: container \w+: `docker rm` was not done",
        ),
    ],
    ids=["before", "entering", "during", "collecting", "after"],
)
def test_daemon_that_hangs(cluster: Cluster, moment: str, letters: str, said: str) -> None:
    """It is waited for once in full; what comes after it is quick, and names it."""
    second = cluster.lab.hosts[1]
    configure_light(cluster, "--steps 100000 --step-ms 20" if moment == ": trains$" else "", **SHORT)
    caught = hold(cluster, moment)
    with faults.halt_docker(second):
        caught.release()
        ending = caught.end(120)
        if "teardown" in moment:
            told = cluster.aorta("clean", code=1)
            assert re.search(
                r"node2: .*`docker [^`]*` was not done within .* see whether docker's daemon answers", told
            )

    assert (ending.code, ending.letters) == (1, letters)
    assert (ending.verdict, ending.fault, ending.hosts) == ("could_not_measure", "rig", ["node2"])
    assert re.search(said, ending.sentence)
    assert "the container engine does not answer on that host" in ending.output
    assert "error during connect" not in ending.output
    assert_clean_when_it_is_back(cluster)
