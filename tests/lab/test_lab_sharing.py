"""Folders that hosts share: one host clones and builds, all of them see the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_aorta.config.shipped import shipped
from tests.lab.cluster import Cluster
from tests.lab.conftest import python_folders
from tests.lab.lab import Lab

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]

BUILD = """set -e
mkdir -p "$rccl_path"
echo "built on $(hostname)" >> "$rccl_path/librccl.so"
echo "commit abc123"
echo "library $rccl_path/librccl.so"
"""


@pytest.mark.parametrize(("place", "num_builds"), [("/shared", 1), ("/srv", 2)])
def test_one_of_the_hosts_that_share_a_folder_clones_and_builds(
    lab: Lab, tmp_path: Path, place: str, num_builds: int
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    origin = lab.shared / "origin"
    shutil.rmtree(origin, ignore_errors=True)
    shutil.copytree(shipped("workloads"), origin, ignore=shutil.ignore_patterns("__pycache__"))
    (origin / "scripts" / "build_here.sh").write_text(BUILD, "utf-8")
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(origin), *command], check=True)
    for host in lab.hosts:
        host.run(["git", "config", "--global", "--add", "safe.directory", "*"], check=True)
    cluster = Cluster(tmp_path, lab=lab)
    cluster.configure_cluster(
        container={},
        accelerator="cpu",
        aorta_path=f"{place}/aorta",
        aorta_auto_clone=True,
        aorta_clone_url="/shared/origin",
        build_script="scripts/build_here.sh",
        skip_rccl_build=False,
        rccl={"build_path": f"{place}/rccl"},
        multi_node={"extra_env": {"GLOO_SOCKET_IFNAME": "eth0", "rccl_path": f"{place}/rccl"}},
    )

    output = cluster.run(code=0)

    assert cluster.letters() == "PPPPPPSPPPP", output
    first, second = (host.path(f"{place}/rccl/librccl.so").read_text("utf-8").splitlines() for host in lab.hosts)
    assert len({*first, *second}) == num_builds
    assert len(first) == len(second) == 1
    assert cluster.record()["products"]["Rccl"]["commit"] == "abc123"
    assert (cluster.folder / "rccl-node-0.log").is_file()
    for host in lab.hosts:
        shutil.rmtree(host.path(f"{place}/aorta"), ignore_errors=True)
        shutil.rmtree(host.path(f"{place}/rccl"), ignore_errors=True)
