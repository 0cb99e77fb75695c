"""One host of a lab, seen from outside: what runs there, what lies there, and commands that enter its namespaces."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .engine import Container, Engine, read_podman
from .plan import PATH, Plan
from .power import Power
from .processes import LabError, Process, wait_until

SLURMD_PORT = 6818
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
# `nsenter` forks for the pid namespace; without this what it started would outlive a deadline.
DIE_TOGETHER = ("setpriv", "--pdeathsig", "KILL", "--")
ENVIRONMENT = {"HOME": "/root", "USER": "root", "TERM": "dumb", "LANG": "C.UTF-8", "PATH": PATH}


@dataclass(frozen=True)
class HostProcess:
    """One process, with the pid that it has in its host."""

    pid: int
    argv: tuple[str, ...]


class Host:
    """A machine of its own as far as its processes can tell; not a boundary for what means harm."""

    def __init__(self, name: str, plan: Plan, power: Power) -> None:
        self.name = name
        self.address = plan.hosts[name]
        self._plan = plan
        self._power = power
        self._undo: list[Callable[[], None]] = []
        self.last_boot: Process | None = None

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}>"

    @property
    def first(self) -> Process:
        """Its first process, another one after each boot.

        Raises:
            LabError: It is switched off.
        """
        if self.last_boot is None or not self.last_boot.running:
            raise LabError(f"{self.name} is not running")
        return self.last_boot

    @property
    def running(self) -> bool:
        return self.last_boot is not None and self.last_boot.running

    def begin(self) -> None:
        """Boot it without waiting for its daemons: a fresh root, the same keys and address."""
        self.last_boot = self._power.boot(self.name)

    def boot(self) -> None:
        """Boot it, and wait for what the lab was asked for."""
        self.begin()
        self.wait_ready()

    def switch_off(self) -> None:
        """Take its power: its peers hear nothing of it."""
        self._power.off(self.name)

    def at_switch(self, *argv: str) -> str:
        """Output of a command where the other end of the host's cable is, a link with the host's name."""
        return self._power.at_switch(*argv)

    def on_heal(self, undo: Callable[[], None]) -> None:
        """Remember how to undo a fault."""
        self._undo.append(undo)

    def heal(self) -> None:
        """Undo the faults that are left, the newest first."""
        while self._undo:
            self._undo.pop()()

    def wait_ready(self, timeout_s: float = 30) -> None:
        """Wait for sshd, the Docker daemon with its image, and the Slurm node.

        Raises:
            LabError: With the host's log.
        """
        try:
            # Whoever connects before the host has its address waits a second for the next ARP request.
            wait_until(lambda: not self.running or self._is_plugged_in, f"{self.name} to start sshd", timeout_s)
            wait_until(lambda: not self.running or self.answers_ssh(), f"sshd on {self.name}", timeout_s)
            if self._plan.docker:
                self.wait_docker(timeout_s)
            if self._plan.slurm:
                # A registration that gets lost is made good by a ping, each 10 s.
                wait_until(self._is_idle, f"the Slurm node {self.name} to be idle", 2 * timeout_s, pause_s=0.05)
            _ = self.first
        except LabError as error:
            log = (self._plan.folder / self.name / "boot.log").read_text("utf-8", "replace")
            raise LabError(f"{error}\n{log}") from error

    def path(self, inside: str) -> Path:
        """A file of the host, for this process. A link with an absolute target leads astray."""
        return Path(f"/proc/{self.first.pid}/root{inside}")

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = False,
        user: str = "root",
        stdin: str | None = None,
        timeout_s: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host, past all its daemons. `check` makes a LabError of its failure."""
        as_user = () if user == "root" else ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--")
        done = subprocess.run(
            [*self._enter(), *as_user, *argv],
            **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode:
            raise LabError(f"{self.name}: {argv}: exit {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def start(self, *argv: str) -> None:
        """Start a daemon that stays when we leave."""
        self.run(["sh", "-c", 'setsid "$@" >/dev/null 2>&1 </dev/null &', "sh", *argv], check=True)

    def processes(self) -> list[HostProcess]:
        """Every process of the host, also those in its containers; kernel threads and zombies have no argv."""
        found = []
        for entry in self.path("/proc").glob("[0-9]*"):
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
            except OSError:  # it ended
                continue
            found.append(HostProcess(int(entry.name), tuple(word.decode(errors="replace") for word in argv)))
        return sorted(found, key=lambda process: process.pid)

    def containers(self) -> list[Container]:
        """All containers, also those that have ended: Podman's in a lab with Podman, else Docker's."""
        if self._plan.podman:
            return read_podman(self.run(["podman", "ps", "--all", "--format=json"], check=True).stdout)
        return self.engine.containers()

    @property
    def engine(self) -> Engine:
        return Engine(self.path("/run/docker.sock"))

    def log_kernel(self, line: str, level: int = 3) -> None:
        """Write a line to the kernel log, which this machine and all its labs share: make it tell itself apart.

        Its level is kept, its facility is "user": `dmesg -k` does not show it.
        """
        self.path("/dev/kmsg").write_text(f"<{level}>{line}\n", "utf-8")

    def answers_ssh(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), timeout=0.5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def wait_docker(self, timeout_s: float = 30) -> None:
        """Wait for the daemon, and fill its image with this machine's root.

        A daemon that stops unmounts all that is below its folder, so this is needed after each start.
        """
        wait_until(lambda: not self.running or self.engine.answers, f"dockerd on {self.name}", timeout_s, pause_s=0.03)
        folder = self.engine.image_folder()
        if self.run(["mountpoint", "-q", folder]).returncode:
            self.run(["mount", "--bind", "/var/lib/lab-root", folder], check=True)

    @property
    def _is_plugged_in(self) -> bool:
        return self.path("/run/lab-host").exists()

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self.first.pid}", *NAMESPACES, "--root", "--wd", "--", *DIE_TOGETHER]

    def _is_idle(self) -> bool:
        """Whether jobs can run here: the controller may not have noticed yet that the node was away."""
        try:
            socket.create_connection((self.address, SLURMD_PORT), timeout=0.5).close()
        except OSError:
            return False
        state = self.run(["sinfo", "--noheader", "--Node", f"--nodes={self.name}", "--format=%t"])
        return state.stdout.split() == ["idle"]
