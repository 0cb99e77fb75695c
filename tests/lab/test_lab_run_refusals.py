"""Runs that a host does not let in, whose files have no room there, whose clock it does not share; two runs at once."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import faults
from tests.lab.cluster import CHECKOUT, CONTAINER, IMAGE, Cluster
from tests.lab.conftest import python_folders
from tests.lab.fault_runs import Ending, configure_light, end_children, hold, run_to_end, running_on
from tests.lab.lab import Lab

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]

WORK = "/opt/aorta-work"
ENOUGH_KIB = 300 * 1024


@pytest.fixture
def cluster(lab: Lab, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, lab=lab)
    yield made
    end_children(made)
    for host in lab.hosts:
        host.run(["rm", "-rf", WORK], check=True)


def change(cluster: Cluster, **fields: Any) -> None:
    """Change the cluster file."""
    path = cluster.path / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")


def assert_refused(cluster: Cluster, ending: Ending, *words: str) -> None:
    """Require that the first stage says why, names the second host only, and that nothing was begun anywhere."""
    assert (ending.code, ending.letters) == (1, "FSSSSSSSSSP")
    assert (ending.verdict, ending.fault, ending.failing) == ("could_not_measure", "rig", [])
    assert "node1" not in ending.sentence
    for word in words:
        assert word in ending.sentence
    cluster.assert_nothing_left()


def other_key(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the cluster file a key that no host knows."""
    home = cluster.path / "home"
    (home / ".ssh").mkdir(parents=True)
    lines = cluster.lab.ssh_config.read_text("utf-8").splitlines(keepends=True)
    (home / ".ssh" / "config").write_text("".join(line for line in lines if "IdentityFile" not in line), "utf-8")
    key = home / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    change(cluster, priv_key_file=str(key))
    monkeypatch.setattr(cluster, "environment", lambda: {**Cluster.environment(cluster), "HOME": str(home)})


def forget(cluster: Cluster) -> None:
    """Have the second host's key unknown."""
    second = cluster.lab.hosts[1]
    known = cluster.path / "known_hosts"
    lines = cluster.lab.known_hosts.read_text("utf-8").splitlines(keepends=True)
    known.write_text("".join(line for line in lines if second.address not in line and second.name not in line), "utf-8")
    change(cluster, known_hosts=str(known))


def test_refused(cluster: Cluster) -> None:
    configure_light(cluster)
    with faults.stop_sshd(cluster.lab.hosts[1]):
        ending = run_to_end(cluster)

    assert_refused(
        cluster, ending, "node2: no SSH connection (node2 is ", "connection refused, expected sshd; is it running"
    )


def test_unknown_host_key(cluster: Cluster) -> None:
    configure_light(cluster)
    forget(cluster)

    ending = run_to_end(cluster)

    assert_refused(cluster, ending, "node2: ", "its host key is not known")
    [step] = [line for line in ending.output.splitlines() if line.startswith("next: ")]
    assert re.search(rf"`ssh-keyscan -t \S+ \S+ >> {cluster.path}/known_hosts`", step)


def test_changed_host_key(cluster: Cluster) -> None:
    configure_light(cluster)
    with faults.change_host_key(cluster.lab.hosts[1]):
        ending = run_to_end(cluster)

    assert_refused(cluster, ending, "node2: ", "its host key has changed", "ssh-keygen -R")
    [step] = [line for line in ending.output.splitlines() if line.startswith("next: ")]
    assert re.search(r"`ssh-keygen -R '[\d.]+' -f \S+`", step)


@pytest.mark.parametrize("what", ["key", "user"])
def test_not_let_in(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    configure_light(cluster)
    if what == "key":
        other_key(cluster, monkeypatch)
    else:
        change(cluster, username="nobody-here")

    ending = run_to_end(cluster)

    assert (ending.code, ending.letters) == (1, "FSSSSSSSSSP")
    assert (ending.verdict, ending.fault, ending.failing) == ("could_not_measure", "rig", [])
    assert "node1 (likewise node2): no SSH connection (node1 is " in ending.sentence
    assert "check username and priv_key_file of the cluster" in ending.sentence
    [step] = [line for line in ending.output.splitlines() if line.startswith("next: ")]
    assert re.search(r"`ssh -v -i \S+ -l \S+ node1 true`.* \(likewise for node2\)$", step)
    cluster.assert_nothing_left()


def test_disk_is_full_before(cluster: Cluster) -> None:
    configure_light(cluster, work_dir=WORK)
    with faults.limit_disk(cluster.lab.hosts[1], WORK, 2048):
        assert_refused(cluster, run_to_end(cluster), f"node2: 1 MiB free in {WORK}/", "at least 256 MiB are needed")


def test_disk_fills_up_during(cluster: Cluster) -> None:
    second = cluster.lab.hosts[1]
    configure_light(cluster, work_dir=WORK)
    with faults.limit_disk(second, WORK, ENOUGH_KIB):
        caught = hold(cluster, "^test_collect_traces begins")
        second.run(["dd", "if=/dev/zero", f"of={WORK}/full", "bs=1M"])
        caught.release()
        ending = caught.end()
    assert (ending.code, ending.letters) == (1, "PPPSPFSPSPP")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", ["node2"], [])
    assert f"node2: the archive of its files cannot be written in {WORK}/" in ending.sentence
    assert "No space left on device" in ending.sentence
    assert len(list((cluster.folder / "combined_traces" / "node_0").rglob("*.json"))) == 1
    cluster.assert_nothing_left()


def test_work_folder_is_read_only_before(cluster: Cluster) -> None:
    configure_light(cluster, work_dir=WORK)
    with faults.protect_folder(cluster.lab.hosts[1], WORK):
        ending = run_to_end(cluster)

    assert_refused(cluster, ending, f"node2: the folder {WORK}/", "cannot be written: Read-only file system")
    assert "set work_dir" in ending.output


def test_work_folder_becomes_read_only(cluster: Cluster) -> None:
    second = cluster.lab.hosts[1]
    configure_light(cluster, work_dir=WORK)
    with faults.limit_disk(second, WORK, ENOUGH_KIB):
        caught = hold(cluster, "^test_run_benchmark begins")
        second.run(["mount", "-o", "remount,ro", WORK], check=True)
        caught.release()
        ending = caught.end()
        assert running_on(cluster, second) == []

    assert (ending.code, ending.letters) == (1, "PPPSFFSSSSF")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("could_not_measure", "rig", ["node2"], [])
    assert ending.sentence.startswith(f"test_run_benchmark: node2: cannot write the log {WORK}/")
    assert "node1" not in ending.sentence + ending.reasons["test_teardown"]
    assert "Read-only file system" in ending.reasons["test_teardown"]
    assert cluster.record()["uncleaned"] == ["node2"]
    cluster.aorta("clean", code=0)
    cluster.assert_nothing_left()


@pytest.mark.parametrize(("offset_s", "container"), [(300, True), (300, False), (-300, False)])
def test_clock_is_off(cluster: Cluster, offset_s: int, container: bool) -> None:
    """Files are held against the clock of the host that wrote them; what runs in containers sees the right one."""
    fields: dict[str, Any] = {} if container else {"container": {}}
    configure_light(cluster, **fields)
    with faults.skew_clock(cluster.lab.hosts[1], offset_s):
        ending = run_to_end(cluster)

    assert (ending.code, ending.letters) == (0, "PPPSPPSPPPP")
    cluster.assert_nothing_left()


def test_one_rank_exits_while_the_others_wait(cluster: Cluster) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    fault = {"kind": "exit", "rank": 1, "step": 7, "exit_code": 13}
    overrides = {f"fault_injection.{name}": value for name, value in fault.items()}
    cluster.configure_cluster(training_overrides=overrides, failure_grace_seconds=3)

    ending = run_to_end(cluster)

    assert (ending.code, ending.letters) == (1, "PPPSFPSPSPP")
    assert (ending.verdict, ending.fault, ending.hosts, ending.failing) == ("failed", "workload", ["node2"], [])
    assert "test_run_benchmark: node2: rank 1 exited 13" in ending.sentence
    assert len(list((cluster.folder / "combined_traces").rglob("*.pt.trace.json"))) == 2
    cluster.assert_nothing_left()


@pytest.mark.parametrize("name", [CONTAINER, "another"])
def test_two_runs_at_once(cluster: Cluster, tmp_path: Path, name: str) -> None:
    """Of two that want containers of the same name the first goes on."""
    configure_light(cluster)
    first = hold(cluster, ": trains$")
    (tmp_path / "second").mkdir()
    other = Cluster(tmp_path / "second", lab=cluster.lab)
    tree = f"{CHECKOUT}/second"
    configure_light(other, container={"name": name}, args={"volumes": [f"{tree}:/mnt"]}, aorta_path=tree)
    for host in cluster.lab.hosts:
        host.run(["mkdir", "-p", tree], check=True)
        host.run(["cp", f"{CHECKOUT}/sample_workload.py", tree], check=True)
    ending = run_to_end(other)
    first.release()

    assert first.end().code == 0
    if name != CONTAINER:
        assert ending.code == 0
    else:
        assert (ending.code, ending.letters, ending.fault) == (1, "FSSSSSSSSSP", "rig")
        whose = f"is there and belongs to run {cluster.folder.name}, which still runs"
        assert all(f"{host}: a container named {CONTAINER} (" in ending.sentence for host in cluster.names)
        assert ending.sentence.count(whose) == 2
    cluster.assert_nothing_left()


def test_a_container_that_was_there_is_held_against_the_configuration(cluster: Cluster) -> None:
    cache = "/root/.cache/pytest-aorta"
    for host in cluster.lab.hosts:
        host.run(["mkdir", "-p", "/opt/other", cache], check=True)
        mounts = ["--network=host", f"--volume={CHECKOUT}:/mnt", f"--volume={cache}:{cache}"]
        host.run(["mkdir", "-p", CHECKOUT], check=True)
        host.run(["docker", "run", "--detach", f"--name={CONTAINER}", *mounts, IMAGE, "sleep", "900"], check=True)
    block = {"lifetime": "no_launch", "image": "not/there:9"}
    other = {"volumes": ["/opt/other:/mnt"]}
    try:
        configure_light(cluster, aorta_path="/opt/other", container=block, args=other)
        refused = run_to_end(cluster)
        shutil.rmtree(cluster.folder)
        configure_light(cluster, container=block)
        passed = run_to_end(cluster)
    finally:
        for host in cluster.lab.hosts:
            host.run(["docker", "rm", "--force", CONTAINER], check=True)

    assert (refused.letters, refused.code) == ("PFSSSSSSSSP", 1), refused
    assert "mounts another folder at /mnt than aorta_path (/opt/other)" in refused.sentence
    assert refused.hosts == ["node1", "node2"]
    assert passed.code == 0, passed
    assert f"node1: its container, found there, is of image {IMAGE} (sha256:" in passed.output


def test_a_user_that_may_not_enter_the_work_folder_is_told_so(cluster: Cluster) -> None:
    configure_light(cluster, args={"user": "65534"})

    ending = run_to_end(cluster)

    assert ending.letters == "FSSSSSSSSSP", ending
    assert "the container cannot read /root/.cache/pytest-aorta/" in ending.sentence
    assert (
        "it is for its owner and root only, and user 65534 (container.runtime.args.user) is neither" in ending.sentence
    )
    assert "mount" not in ending.sentence
    cluster.assert_nothing_left()
