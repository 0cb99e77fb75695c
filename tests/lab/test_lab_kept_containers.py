"""Containers that outlive a run: whatever becomes of node programs, nothing that the run started goes on in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.broken import USER_ID
from tests.lab.cluster import CHECKOUT, CONTAINER, Cluster
from tests.lab.conftest import python_folders
from tests.lab.fault_runs import configure_light, end_children, folders_on, hold, node_programs
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders())]

ENDLESS = "--steps 100000 --step-ms 20"
KEPT = {"container": {"lifetime": "persistent"}, "lease_seconds": 6, "failure_grace_seconds": 2}


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, lab=lab)
    configure_light(made, ENDLESS, **KEPT)
    yield made
    end_children(made)
    for host in lab.hosts:
        host.run(["docker", "rm", "--force", CONTAINER], check=True)


def inside(host: Host) -> list[int]:
    """The node program in the container of a host."""
    known = {process.pid: process.argv for process in host.processes()}
    return [pid for pid in node_programs(host) if any(word.endswith("inside.node") for word in known.get(pid, ()))]


def ranks(host: Host) -> list[str]:
    return [" ".join(each.argv) for each in host.processes() if "sample_workload.py" in each.argv]


def send(host: Host, signal: str, pids: list[int]) -> None:
    assert pids
    host.run(["kill", f"-{signal}", *map(str, pids)], check=True)


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_a_rank_whose_node_program_was_lost_in_the_container_is_ended(cluster: Cluster, signal: str) -> None:
    first, second = cluster.lab.hosts
    caught = hold(cluster, "trains$")
    send(second, signal, inside(second))
    caught.release()

    ending = caught.end()

    assert (ending.code, ending.hosts) == (1, ["node2"]), ending
    assert ranks(first) + ranks(second) == []
    assert inside(second) == []
    assert [each.state for each in second.containers()] == ["running"]
    assert cluster.record()["uncleaned"] == []
    assert "nothing to clean" in cluster.aorta("clean", code=0)


def test_ranks_that_nobody_of_ours_watches_any_more_are_cleaned(cluster: Cluster) -> None:
    hosts = cluster.lab.hosts
    caught = hold(cluster, "trains$")
    wait_until(lambda: all(ranks(host) for host in hosts), "both ranks to train", 20)
    for host in hosts:  # stopped before, so that none hears that another one is gone
        programs = node_programs(host)
        send(host, "STOP", programs)
        send(host, "KILL", programs)
    caught.kill()
    assert all(ranks(host) for host in hosts)

    told = cluster.aorta("clean", code=0)

    for host in hosts:
        assert f"{host.name}: what ran in container {CONTAINER} ended" in told
        assert ranks(host) == []
        assert [each.state for each in host.containers()] == ["running"]


@pytest.mark.parametrize("user", ["root", "lab"])
def test_what_could_not_be_ended_while_its_container_was_paused_is_cleaned_later(cluster: Cluster, user: str) -> None:
    second = cluster.lab.hosts[1]
    for host in cluster.lab.hosts:
        host.run(["sh", "-c", "chgrp lab /run/docker.sock && chmod g+rw /run/docker.sock"], check=True)
    configure_light(cluster, ENDLESS, username=user, **KEPT)
    caught = hold(cluster, "trains$")
    wait_until(lambda: bool(ranks(second)), "the rank to train", 20)
    second.run(["docker", "pause", CONTAINER], check=True)
    send(second, "KILL", inside(second))
    caught.release()

    ending = caught.end()

    assert "has ended and cannot" not in ending.output
    assert cluster.record()["uncleaned"] == ["node2"]
    second.run(["docker", "unpause", CONTAINER], check=True)
    assert ranks(second)
    told = cluster.aorta("clean", code=0)
    assert f"node2: what ran in container {CONTAINER} ended" in told
    assert ranks(second) == []
    assert folders_on(cluster, second) == []


def test_a_user_without_rights_is_given_what_a_container_wrote_whose_node_program_was_lost(cluster: Cluster) -> None:
    second = cluster.lab.hosts[1]
    for host in cluster.lab.hosts:
        host.run(["sh", "-c", "chgrp lab /run/docker.sock && chmod g+rw /run/docker.sock"], check=True)
    configure_light(cluster, f"{ENDLESS} --early-traces", username="lab", **KEPT)
    caught = hold(cluster, "trains$")
    wait_until(lambda: bool(list(second.path(CHECKOUT).rglob("*.json"))), "a trace", 20)
    send(second, "KILL", inside(second))
    caught.release()

    ending = caught.end()

    assert ending.letters[-1] == "P", ending
    assert {path.stat().st_uid for path in second.path(CHECKOUT).rglob("out/**/*")} == {USER_ID}
    assert ranks(second) == []


def test_a_kept_container_that_was_stopped_holds_nothing_up(cluster: Cluster) -> None:
    second = cluster.lab.hosts[1]
    caught = hold(cluster, "trains$")
    second.run(["docker", "stop", "--time", "0", CONTAINER], check=True)
    caught.release()

    ending = caught.end()

    assert (ending.code, ending.hosts) == (1, ["node2"]), ending
    assert cluster.record()["uncleaned"] == []
    assert [ranks(host) for host in cluster.lab.hosts] == [[], []]
