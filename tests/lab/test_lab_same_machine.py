"""A machine that is named twice is refused, and what an early end leaves is found again."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.lab.cluster import Cluster
from tests.lab.conftest import python_folders
from tests.lab.lab import Lab
from tests.lab.processes import wait_until

pytestmark = pytest.mark.lab(2, docker=True, binds=python_folders())


def test_two_names_for_one_machine_are_refused(lab: Lab, tmp_path: Path) -> None:
    first = lab.hosts[0]
    ssh_config = lab.home / ".ssh" / "config"
    before = ssh_config.read_text("utf-8")
    block = before.split("Host node2")[0]
    ssh_config.write_text(before + "\n" + block.replace("Host node1 ", "Host other "), "utf-8")
    cluster = Cluster(tmp_path, lab=lab)
    cluster.configure_cluster(container={})
    document = json.loads((tmp_path / "cluster.json").read_text("utf-8"))
    del document["known_hosts"]
    document["node_dict"] = {"node1": {"vpc_ip": first.address}, "other": {"vpc_ip": "node1"}}
    (tmp_path / "cluster.json").write_text(json.dumps(document), "utf-8")
    try:
        cluster.run(code=1)
    finally:
        ssh_config.write_text(before, "utf-8")

    assert cluster.letters() == "FSSSSSSSSSP"
    assert "other: is the same machine as node1 (both are node1)" in cluster.reason("test_launch_container")
    cluster.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("delay_s", [0.02, 0.15])
def test_an_end_while_programs_come_up_leaves_nothing_for_good(
    lab: Lab, tmp_path: Path, number: signal.Signals, delay_s: float
) -> None:
    cluster = Cluster(tmp_path, lab=lab)
    cluster.configure_cluster(container={})
    caches = [host.path("/root/.cache/pytest-aorta") for host in lab.hosts]
    child = cluster.start()
    wait_until(lambda: any(cache.is_dir() and any(cache.iterdir()) for cache in caches), "a folder of the run", 30)
    time.sleep(delay_s)
    os.kill(child.pid, number)
    child.communicate(timeout=60)
    wait_until(
        lambda: not any("aorta-node" in word for host in lab.hosts for each in host.processes() for word in each.argv),
        "node programs that are gone",
        30,
    )

    cluster.aorta("clean", code=0)

    cluster.assert_nothing_left()
