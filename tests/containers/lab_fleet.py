"""A fleet of lab hosts whose node programs are started by entering the hosts, without ssh."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalPipes
from pytest_aorta.fleet.program import NAME, command, program_bytes
from pytest_aorta.fleet.transport import Pipes
from pytest_aorta.node.files import MARKER
from tests.lab.host import ENVIRONMENT, Host


class HostTransport:
    """Reaches a lab host from outside; `user` is who runs the node program there."""

    def __init__(self, host: Host, user: str = "root") -> None:
        self._host = host
        self._user = user

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        folder = self._host.path(state_dir)
        self._host.run(["mkdir", "-p", state_dir], check=True, user=self._user)
        (folder / MARKER).touch()
        (folder / NAME).write_bytes(program_bytes())
        as_user = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--init-groups", "--"]
        argv = [*self._host._enter(), *(as_user if self._user != "root" else [])]
        argv += ["env", "-i", *(f"{name}={value}" for name, value in ENVIRONMENT.items())]
        return HostPipes([*argv, *command(sys.executable, f"{state_dir}/{NAME}", lease_s, state_dir)], state_dir)

    def put(self, local: Path, remote: str) -> None:
        shutil.copyfile(local, self._host.path(remote))

    def get(self, remote: str, local: Path) -> None:
        shutil.copyfile(self._host.path(remote), local)


class HostPipes(LocalPipes):
    """A node program in a host; what one that was killed left is the test's to reap."""

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def reap(host: Host, state_dir: str, program: str) -> str:
    """Do what the next run does about a node program that was killed."""
    return host.run([sys.executable, program, "--reap", state_dir], check=True).stdout


@contextmanager
def fleet_on(
    hosts: Mapping[str, Host], state_dirs: Mapping[str, str], user: str = "root", lease_s: float = 120
) -> Iterator[Fleet]:
    fleet = Fleet({name: HostTransport(host, user) for name, host in hosts.items()}, lease_seconds=lease_s)
    fleet.open(state_dirs)
    try:
        yield fleet
    finally:
        fleet.close()
