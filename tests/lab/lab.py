"""A lab: hosts on one machine, with real daemons, that end with the process that started them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from . import claims
from .host import Host
from .plan import PATH, Plan
from .power import Power
from .processes import Process
from .slurm_files import write_slurm_files
from .ssh_files import write_ssh_files


class Lab:
    """Hosts `node1`, `node2`, ... on a network of their own; `with Lab.up(2) as lab:`."""

    def __init__(self, plan: Plan, power: Power) -> None:
        self.plan = plan
        self.hosts = [Host(name, plan, power) for name in plan.hosts]
        self._power = power

    @classmethod
    def up(
        cls,
        num_hosts: int,
        *,
        docker: bool = False,
        slurm: bool = False,
        binds: Iterable[str | Path] = (),
        num_gpus: int = 2,
        podman: bool = False,
    ) -> Lab:
        """Start a lab and wait for it.

        `binds` are folders of this machine, seen in each host at the same place, read-only; of what lies on this
        machine's root file system, hosts have a copy of their own anyway, except for /tmp, /run and /dev.

        Raises:
            LabError: It does not come up; nothing is left of it.
        """
        number, lock = claims.claim()
        try:
            seen = tuple(str(Path(bind).resolve()) for bind in binds)
            plan = Plan(number, num_hosts, docker, slurm, seen, num_gpus, podman)
            plan.folder.mkdir(mode=0o755)
            (plan.folder / "shared").mkdir()
            write_ssh_files(plan)
            if slurm:
                write_slurm_files(plan)
            power = Power(plan, lock)
        except BaseException:
            claims.release(number, lock)
            raise
        os.close(lock)  # the keeper holds it now
        lab = cls(plan, power)
        try:
            lab._begin()
        except BaseException:
            lab.down()
            raise
        return lab

    def down(self) -> None:
        """End it, and wait until nothing is left. A second time does nothing."""
        self._power.close()

    @property
    def keeper(self) -> Process:
        """The process that clears the lab when this one ends."""
        return self._power.keeper

    @property
    def is_up(self) -> bool:
        return self._power.is_on

    def heal(self) -> None:
        """Undo the faults that are left, the newest first."""
        for host in self.hosts:
            host.heal()

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    @property
    def ssh_config(self) -> Path:
        """For OpenSSH (`-F`), Fabric and paramiko."""
        return self.plan.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.plan.folder / "known_hosts"

    @property
    def key(self) -> Path:
        """The private key of the users `root` and `lab`."""
        return self.plan.folder / "id"

    @property
    def home(self) -> Path:
        """A HOME whose .ssh knows the hosts."""
        return self.plan.folder / "home"

    @property
    def shared(self) -> Path:
        """/shared of all hosts."""
        return self.plan.folder / "shared"

    def environment(self) -> dict[str, str]:
        """This process's environment, with the lab's HOME, and an `ssh` that knows the hosts first on PATH."""
        path = os.environ.get("PATH", PATH)
        return {**os.environ, "HOME": str(self.home), "PATH": f"{self.plan.folder / 'bin'}:{path}"}

    def ssh(
        self, destination: str, *command: str, stdin: str = "", timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command by the OpenSSH client; `-o` and its value may come before the destination."""
        return subprocess.run(
            ["ssh", "-F", str(self.ssh_config), destination, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def _begin(self) -> None:
        self._power.wait_ready()
        for host in self.hosts:
            host.begin()
        for host in self.hosts:
            host.wait_ready()
