"""Cluster: a folder to run the lifecycle in over a lab's hosts, as a user of them would."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_aorta.config.shipped import shipped
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.suite.conftest import Rig

CONTAINER = "aorta_lab"
IMAGE = "lab/machine:1"
CHECKOUT = "/opt/aorta"
ALWAYS_RUNNING = ("dockerd", "containerd", "sshd", "host_init.sh", "sleep 3600")


@dataclass
class Cluster(Rig):
    """A rig whose configuration names the hosts of a lab; the bundled workload, one rank a host over gloo."""

    lab: Lab = field(kw_only=True)

    @property
    def names(self) -> list[str]:
        """The hosts' names in rank order, as ssh knows them."""
        return [host.name for host in self.lab.hosts]

    def configure_cluster(
        self, *, container: dict[str, Any] | None = None, username: str = "root", **fields: Any
    ) -> Path:
        """Write config.json and cluster.json; `container` is merged into the block, an empty one leaves it away."""
        cluster = {
            "username": username,
            "priv_key_file": str(self.lab.key),
            "known_hosts": str(self.lab.known_hosts),
            "transport": "ssh",
            "node_dict": {host.name: {"vpc_ip": host.address} for host in self.lab.hosts},
        }
        (self.path / "cluster.json").write_text(json.dumps(cluster, indent=1), "utf-8")
        block = {"name": CONTAINER, "image": IMAGE, **(container or {})}
        config = {
            "gpus_per_node": 1,
            "workload": None,
            "work_dir": None,
            "python": sys.executable,
            "cluster": "cluster.json",
            "container": block if container is None or container else None,
            "base_config": "config/tiny_cpu.yaml",
            "multi_node": {"extra_env": {"GLOO_SOCKET_IFNAME": "eth0"}},
            "failure_grace_seconds": 5,
            **fields,
        }
        path = self.configure(**{name: value for name, value in config.items() if value is not None})
        document = json.loads(path.read_text("utf-8"))
        for name in ("workload", "work_dir"):
            if config[name] is None:
                del document[name]
        path.write_text(json.dumps(document, indent=1), "utf-8")
        return path

    def environment(self) -> dict[str, str]:
        """Give the environment of a user whose ssh knows the lab."""
        return {**super().environment(), **self.lab.environment()}

    def check_out(self, *hosts: Host) -> dict[str, Any]:
        """Put the workload's tree on hosts as a checkout, and give the fields of a configuration that uses it."""
        for host in hosts or self.lab.hosts:
            folder = host.path(CHECKOUT)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(shipped("workloads"), folder, ignore=shutil.ignore_patterns("__pycache__"))
        return {
            "aorta_path": CHECKOUT,
            "container_mount_path": "/mnt",
            "container": {"runtime": {"args": {"volumes": [f"{CHECKOUT}:/mnt"]}}},
        }

    def left_on(self, host: Host) -> list[str]:
        """Name what is still there that was not before any run: processes, containers, work folders."""
        processes = [" ".join(process.argv) for process in host.processes()]
        # a process that has ended and whose end is not taken in yet has no words
        ours = [text for text in processes if text and not any(known in text for known in ALWAYS_RUNNING)]
        containers = [f"container {each.name} ({each.state})" for each in host.containers()]
        caches = [host.path(f"{home}/.cache/pytest-aorta") for home in ("/root", "/home/lab")]
        folders = [f"folder {path.name}" for cache in caches if cache.is_dir() for path in cache.iterdir()]
        return [*ours, *containers, *folders]

    def assert_nothing_left(self) -> None:
        """Require that no host has anything of ours."""
        left = {host.name: self.left_on(host) for host in self.lab.hosts}
        assert not any(left.values()), left
