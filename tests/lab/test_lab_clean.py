"""`aorta clean` on real hosts: a pytest that was killed leaves what its node programs then end, or cleaning removes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import faults
from tests.lab.cluster import Cluster
from tests.lab.conftest import python_folders
from tests.lab.lab import Lab
from tests.lab.processes import wait_until

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]

LONG: dict[str, Any] = {"training_overrides": {"training.max_steps": 100000, "scheduler.total_steps": 100000}}


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("torch", reason="torch is not installed")
    made = Cluster(tmp_path, lab=lab)
    yield made
    for child in made.children:
        end(child)


def end(child: subprocess.Popen[str]) -> None:
    """Kill pytest as the kernel would, and take in its end."""
    if child.poll() is None:
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def started(cluster: Cluster) -> subprocess.Popen[str]:
    """Start a long run and wait until its ranks train."""
    cluster.configure_cluster(**LONG)
    child = cluster.start()
    wait_until(lambda: trains(cluster), "ranks that train", 60)
    return child


def trains(cluster: Cluster) -> bool:
    return all(any("train.py" in " ".join(p.argv) for p in host.processes()) for host in cluster.lab.hosts)


def abandon(cluster: Cluster) -> None:
    """Leave everything of a run behind."""
    child = started(cluster)
    child.send_signal(signal.SIGSTOP)  # so that it does not notice
    kill_node_programs(cluster)
    end(child)


def kill_node_programs(cluster: Cluster) -> None:
    """Kill what would clean up by itself, so that there is something to clean."""
    for host in cluster.lab.hosts:
        for process in host.processes():
            if any(word.endswith("aorta-node.pyz") for word in process.argv) and "exec" not in process.argv:
                host.run(["kill", "-9", str(process.pid)])


def test_hosts_clean_themselves_when_pytest_is_killed(cluster: Cluster) -> None:
    end(started(cluster))

    wait_until(lambda: not any(host.containers() for host in cluster.lab.hosts), "containers that are gone", 30)
    output = cluster.aorta("clean", code=0)

    assert "abandoned" in output
    cluster.assert_nothing_left()


def test_what_killed_node_programs_left_is_cleaned_by_the_record(cluster: Cluster) -> None:
    abandon(cluster)

    assert all(cluster.left_on(host) for host in cluster.lab.hosts)
    output = cluster.aorta("clean", code=0)

    assert output.count("container") >= 2
    cluster.assert_nothing_left()
    assert "nothing to clean" in cluster.aorta("clean", code=0)


def test_a_host_that_is_down_keeps_the_others_from_nothing(cluster: Cluster) -> None:
    abandon(cluster)
    first, second = cluster.lab.hosts
    with faults.stop_sshd(second):
        output = cluster.aorta("clean", code=1)

    assert second.name in output
    assert cluster.left_on(first) == []
    cluster.aorta("clean", code=0)
    cluster.assert_nothing_left()


def test_hosts_are_swept_without_any_record(cluster: Cluster, tmp_path: Path) -> None:
    abandon(cluster)

    output = cluster.aorta("clean", "--output", ".", "--aorta-cluster", "cluster.json", code=0)

    assert "hosts of cluster.json" in output
    assert output.count(" removed\n") >= 2
    cluster.assert_nothing_left()


def test_a_run_that_lives_is_left_alone(cluster: Cluster) -> None:
    child = started(cluster)

    output = cluster.aorta("clean", "--output", ".", "--aorta-cluster", "cluster.json", code=0)

    assert "nothing was left" in output
    for host in cluster.lab.hosts:
        host.run(["chmod", "666", "/run/docker.sock"], check=True)
    settings = json.loads((cluster.path / "cluster.json").read_text("utf-8"))
    (cluster.path / "lab.json").write_text(json.dumps({**settings, "username": "lab"}), "utf-8")
    assert "nothing was left" in cluster.aorta("clean", "--output", ".", "--aorta-cluster", "lab.json", code=0)
    assert trains(cluster)
    assert all(host.containers() for host in cluster.lab.hosts)
    child.terminate()
    child.communicate(timeout=60)
    cluster.assert_nothing_left()
