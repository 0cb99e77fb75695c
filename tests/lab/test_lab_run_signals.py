"""Pytest is ended in every stage of a run over two hosts: in order by SIGTERM, without a word by SIGKILL."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_aorta.table import stages_of
from tests.lab import faults
from tests.lab.cluster import CHECKOUT, CONTAINER, IMAGE, Cluster
from tests.lab.conftest import python_folders
from tests.lab.fault_runs import Caught, configure_light, end_children, frozen, hold, left_soon
from tests.lab.lab import Lab

pytestmark = pytest.mark.lab(2, docker=True, binds=python_folders())

# What the log says when a stage is in the middle of its work; elsewhere that it begins.
MIDST = {"test_launch_container": ": container aorta_lab .* started", "test_run_benchmark": ": trains$"}
# Nothing is asked of a host there, so there is nobody to keep the stage waiting.
LOCAL = {"test_parse_results", "test_validate_thresholds", "test_generate_report"}
STAGES = [stage.test for stage in stages_of("distributed")]
SLEEP = "echo begun; sleep 600\n"


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, lab=lab)
    yield made
    end_children(made)


def caught_in(cluster: Cluster, stage: str) -> Caught:
    """Hold a run in the middle of a stage; scripts of the checkout sleep in the two that run one."""
    for host in cluster.lab.hosts:
        host.run(["mkdir", "-p", f"{CHECKOUT}/scripts"], check=True)
        for name in ("build.sh", "analysis.sh"):
            host.path(f"{CHECKOUT}/scripts/{name}").write_text(SLEEP, "utf-8")
    configure_light(
        cluster,
        "--steps 100000 --step-ms 20" if stage == "test_run_benchmark" else "",
        args={"devices": ["/dev/infiniband/rdma_cm"]} if stage == "test_setup_rdma" else {},
        build_script="scripts/build.sh",
        skip_rccl_build=stage != "test_build_rccl",
        analysis={"enable_tracelens": stage == "test_analyze", "tracelens_script": "scripts/analysis.sh"},
        lease_seconds=10,
    )
    return hold(cluster, MIDST.get(stage, f"^{stage} begins"))


@pytest.mark.parametrize("stage", STAGES)
def test_sigterm(cluster: Cluster, stage: str) -> None:
    caught = caught_in(cluster, stage)
    if stage in LOCAL:
        caught.child.send_signal(signal.SIGTERM)
    else:
        with frozen(cluster):
            caught.release()
            time.sleep(0.3)
            caught.child.send_signal(signal.SIGTERM)
            time.sleep(0.3)
    ending = caught.end()

    assert (ending.code, ending.verdict, ending.fault) == (2, "interrupted", "none")
    assert ending.letters.endswith("I")
    assert ending.reasons[stage].startswith("interrupted by SIGTERM a")
    assert f"INTERRUPTED: {stage}: interrupted by SIGTERM" in ending.output
    assert (ending.hosts, ending.failing) == ([], [])
    record = cluster.record()
    assert record["finished"] is not None
    assert record["uncleaned"] == []
    cluster.assert_nothing_left()


def test_sigterm_with_a_paused_container(cluster: Cluster) -> None:
    configure_light(cluster, "--steps 100000 --step-ms 20")
    caught = hold(cluster, MIDST["test_run_benchmark"])
    cluster.lab.hosts[1].run(["docker", "pause", CONTAINER], check=True)
    caught.release()
    caught.child.send_signal(signal.SIGTERM)
    ending = caught.end()

    assert (ending.code, ending.verdict) == (2, "interrupted")
    assert cluster.record()["uncleaned"] == []
    cluster.assert_nothing_left()


def test_sigterm_with_a_paused_container_that_is_not_ours(cluster: Cluster) -> None:
    """It is not waited for in vain, and the last lines say what was not ended there."""
    configure_light(cluster, "--steps 100000 --step-ms 20", container={"lifetime": "no_launch"})
    folder = "/root/.cache/pytest-aorta"
    for host in cluster.lab.hosts:
        volumes = [f"--volume={CHECKOUT}:/mnt", f"--volume={folder}:{folder}"]
        box = ["docker", "run", "--detach", f"--name={CONTAINER}", "--network=host", *volumes, IMAGE, "sleep", "600"]
        host.run(box, check=True)
    caught = hold(cluster, MIDST["test_run_benchmark"])
    second = cluster.lab.hosts[1]
    second.run(["docker", "pause", CONTAINER], check=True)
    caught.release()
    caught.child.send_signal(signal.SIGTERM)
    ending = caught.end(timeout_s=40)  # less than two of the deadlines that it would be waited for

    assert (ending.code, ending.verdict) == (2, "interrupted")
    assert (
        "could not be undone: node2: its container aorta_lab is paused, so what runs in it could not" in ending.output
    )
    assert (
        "cleaned up when the session ended: benchmark stopped (not on node2); benchmark logs kept; ownership given "
        "back (not on node2); node programs in the containers ended (not on node2); docker: containers left alone; "
    ) in ending.output
    assert cluster.record()["uncleaned"] == ["node2"]
    second.run(["docker", "unpause", CONTAINER], check=True)
    cluster.aorta("clean", code=0)
    for host in cluster.lab.hosts:
        host.run(["docker", "rm", "--force", CONTAINER], check=True)
    cluster.assert_nothing_left()


def test_sigterm_with_a_dead_daemon(cluster: Cluster) -> None:
    """The last lines say what could not be removed, where, and what removes it later."""
    configure_light(cluster, "--steps 100000 --step-ms 20")
    caught = hold(cluster, MIDST["test_run_benchmark"])
    with faults.kill_docker(cluster.lab.hosts[1]):
        caught.release()
        caught.child.send_signal(signal.SIGTERM)
        ending = caught.end()

    assert (ending.code, ending.verdict) == (2, "interrupted")
    assert cluster.record()["uncleaned"] == ["node2"]
    undone = "could not be undone: docker: containers removed: could not remove the container"
    assert re.search(rf"\nnote: {undone}: node2: container \w+: Cannot connect to the Docker", ending.output)
    assert f"node2; run `aorta clean {cluster.folder.name}` when that is mended" in ending.output
    cluster.aorta("clean", code=0)
    cluster.assert_nothing_left()


def test_sigterm_while_a_host_is_dead(cluster: Cluster) -> None:
    """It is not waited for in vain, and the other one is clean."""
    first, second = cluster.lab.hosts
    configure_light(cluster, "--steps 100000 --step-ms 20")
    caught = hold(cluster, MIDST["test_run_benchmark"])
    with faults.power_off(second):
        caught.release()
        caught.child.send_signal(signal.SIGTERM)
        ending = caught.end()
        assert cluster.left_on(first) == []

    assert (ending.code, ending.verdict, ending.fault, ending.failing) == (2, "interrupted", "none", [])
    assert cluster.record()["uncleaned"] == ["node2"]
    cluster.aorta("clean", code=0)
    cluster.assert_nothing_left()


def test_pytest_stands_still(cluster: Cluster) -> None:
    """As after Ctrl-Z, or a night with a closed lid: no host is to blame, and nothing is left there."""
    configure_light(cluster, "--steps 100000 --step-ms 20", lease_seconds=5)
    caught = hold(cluster, MIDST["test_run_benchmark"])
    caught.child.send_signal(signal.SIGSTOP)
    for host in cluster.lab.hosts:
        left_soon(cluster, host, 15)
    caught.release()
    caught.child.send_signal(signal.SIGCONT)
    ending = caught.end()

    assert (ending.code, ending.letters) == (1, "PPPSFFSSSSP")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", [], [])
    assert ending.sentence.startswith("test_run_benchmark: pytest itself stood still for ")
    assert not any(name in ending.sentence for name in cluster.names)
    assert cluster.record()["uncleaned"] == []
    cluster.assert_nothing_left()


@pytest.mark.parametrize("stage", STAGES)
def test_sigkill(cluster: Cluster, stage: str) -> None:
    caught = caught_in(cluster, stage)

    caught.kill()

    for host in cluster.lab.hosts:
        left_soon(cluster, host, 8)
    if stage == STAGES[0]:
        assert "abandoned" in cluster.aorta("runs", code=0)
    assert "record closed as interrupted" in cluster.aorta("clean", code=0)
    cluster.assert_nothing_left()
    assert cluster.record()["verdict"] == "interrupted"
    assert "abandoned: the pytest that ran it (pid" in cluster.record()["sentence"]
