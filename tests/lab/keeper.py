"""The keeper: a process of its own that is the lab's switch, boots its hosts, and clears everything at the end.

It runs in a network namespace with a bridge. A bridge beside the machine's own links would obey the machine's
iptables, where any dockerd sets FORWARD to DROP. The lab ends when the keeper is told so, when stdin closes, or when
the starter is gone, killed or not: an open stdin proves nothing, as a forked child of the starter may hold it.
Namespaces have no name: a host's end with its processes, the switch with the keeper, and every link with either.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from . import claims
from .plan import PATH, SLURM_HEAD, Plan
from .processes import LabError, Process, wait_until

HERE = Path(__file__).parent
TIED = ("setpriv", "--pdeathsig", "KILL", "--")  # should the keeper be killed, its hosts end too
ALONE = ("unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--")


class Keeper:
    """The switch and the hosts that are switched on."""

    def __init__(self, plan: Plan, starter: int) -> None:
        self._plan = plan
        self._starter = starter
        self._hosts: dict[str, tuple[subprocess.Popen[bytes], Process]] = {}

    def build_switch(self) -> None:
        """Make the bridge, and the one link that leads to the starter's network."""
        with contextlib.suppress(OSError):  # only where the kernel lets bridges ask iptables
            Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("0", "ascii")
        _ip(
            "link set lo up",
            "link add br0 type bridge forward_delay 0",
            "link set br0 up",
            f"link add ctl type veth peer name {self._plan.link} netns {self._starter}",
            "link set ctl master br0 up",
        )
        _ip(
            f"addr add {self._plan.controller}/24 dev {self._plan.link}",
            f"link set {self._plan.link} up",
            enter=["nsenter", f"--net=/proc/{self._starter}/ns/net", "--"],
        )

    def boot(self, name: str) -> Process:
        """Start a host afresh and plug it in; one that runs is switched off first. Returns its first process."""
        self.switch_off(name)
        folder = self._plan.folder / name
        with (folder / "boot.log").open("wb") as log:
            outer = subprocess.Popen(
                [*TIED, *ALONE, "/bin/bash", str(HERE / "host_init.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(name),
                start_new_session=True,
                cwd="/",
            )
        claims.record(self._plan, Process.of(outer.pid))
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        try:
            wait_until(lambda: outer.poll() is not None or bool(children.read_text("ascii")), f"{name} to begin", 10)
            first = Process.of(int(children.read_text("ascii").split()[0]))
        except (OSError, IndexError) as error:
            raise LabError(f"{name} did not begin: {(folder / 'boot.log').read_text('utf-8')}") from error
        claims.record(self._plan, first)
        self._hosts[name] = outer, first
        _ip(
            f"link add {name} address {self._plan.hardware_address(name, 0)} type veth"
            f" peer name eth0 address {self._plan.hardware_address(name, 1)} netns {first.pid}",
            f"link set {name} master br0 up",
        )
        return first

    def switch_off(self, name: str) -> None:
        """End a host's processes without a word to its peers: the cable goes first."""
        if name in self._hosts:
            outer, first = self._hosts.pop(name)
            subprocess.run(["ip", "link", "del", name], stderr=subprocess.DEVNULL, check=False)
            first.kill()
            for top in claims.cgroups_of(self._plan):
                claims.thaw(top / name)
            outer.wait()

    def close(self) -> None:
        for name in list(self._hosts):
            self.switch_off(name)
        subprocess.run(["ip", "link", "del", "ctl"], stderr=subprocess.DEVNULL, check=False)

    def _environment(self, name: str) -> dict[str, str]:
        plan = self._plan
        return {
            "PATH": PATH,
            "LAB_NAME": name,
            "LAB_ADDRESS": plan.hosts[name],
            "LAB_FOLDER": str(plan.folder),
            "LAB_CODE": str(HERE),
            "LAB_BINDS": "\n".join(plan.binds),
            "LAB_NUM_GPUS": str(plan.num_gpus),
            "LAB_CGROUP": f"/{plan.cgroup}/{name}",
            "LAB_DOCKER": "1" if plan.docker else "",
            "LAB_PODMAN": "1" if plan.podman else "",
            "LAB_SLURM": ("head" if name == SLURM_HEAD else "node") if plan.slurm else "",
        }


def serve(plan: Plan, starter: int) -> None:
    """Obey `boot NAME` and `off NAME`, one line each, until `end`."""
    keeper = Keeper(plan, starter)
    pidfd = os.pidfd_open(starter)
    events = select.poll()
    events.register(0, select.POLLIN)
    events.register(pidfd, select.POLLIN)
    unread = b""
    try:
        keeper.build_switch()
        _say("ready")
        while not any(descriptor == pidfd for descriptor, _ in events.poll()):
            received = os.read(0, 4096)
            if not received:
                break
            *lines, unread = (unread + received).split(b"\n")
            for line in lines:
                if line == b"end":
                    return
                _say(_obey(keeper, line.decode()))
    finally:
        keeper.close()


def _obey(keeper: Keeper, line: str) -> str:
    word, name = line.split()
    try:
        if word == "off":
            keeper.switch_off(name)
            return "ok"
        first = keeper.boot(name)
    except (LabError, subprocess.CalledProcessError) as error:
        return f"error {' '.join(str(error).split())}"
    return f"ok {first.pid} {first.start}"


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the starter is gone, which ends the loop by itself
        os.write(1, f"{line}\n".encode())


def _ip(*commands: str, enter: list[str] | None = None) -> None:
    done = subprocess.run(
        [*(enter or []), "ip", "-batch", "-"],
        input="\n".join(commands) + "\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"ip: {done.stdout.strip()}")


def _terminated(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def main(plan_json: str, starter: str, lock: str) -> None:
    plan = Plan.from_json(plan_json)
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    try:
        claims.record(plan, Process.of(os.getpid()))
        serve(plan, int(starter))
    finally:
        claims.release(plan.number, int(lock))


if __name__ == "__main__":
    main(*sys.argv[1:])
