"""The small registry of tests/containers on a host: where it is, who may read, and how it is started."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_aorta.containers.spec import Login
from tests.containers import small_registry
from tests.lab.host import Host
from tests.lab.processes import wait_until

PLACE = "127.0.0.1:5000"
PASSWORD = "word & $(pass) 'x'"  # noqa: S105
LOGIN = Login(small_registry.USER, "/tmp/password", PLACE)
PRIVATE = f"{PLACE}/empty:1"
BY_DIGEST = f"{PLACE}/empty@{small_registry.DIGEST}"
ABSENT = f"{PLACE}/empty:2"


def start(host: Host) -> None:
    """Start it and wait until it listens."""
    port = PLACE.rpartition(":")[2]
    host.start(sys.executable, str(Path(small_registry.__file__).resolve()), port, PASSWORD)
    listening, table = f":{int(port):04X} ", Path(f"/proc/{host.first.pid}/net/tcp")
    wait_until(lambda: listening in table.read_text("ascii"), "the small registry", 10)
