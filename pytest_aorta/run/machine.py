"""Machine: where the pytest of a run runs, so that a later session knows whether it can see that process."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pytest_aorta.node.facts import boot_id, identity


class Machine(BaseModel):
    """What tells one machine from another. A process id means something only in its own boot and pid namespace.

    `identity` outlives a reboot and a change of the host's name; it is a hash, since the id itself is not for others'
    eyes. What the system does not tell is empty.
    Source: machine-id(5), pid_namespaces(7).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    boot_id: str = ""
    pid_namespace: str = ""
    identity: str = ""


def hostname() -> str:
    """Name this machine, as sentences do."""
    return platform.node()


def this_machine() -> Machine:
    """Describe the machine that this process runs on."""
    return Machine(boot_id=boot_id(), pid_namespace=_pid_namespace(), identity=identity())


def is_here(name: str, machine: Machine) -> bool:
    """Tell whether the processes of a recorded machine would be seen from here, or were ended by a reboot of it.

    Containers of one host share its boot, so the pid namespace counts too; two machines may share a name, so after
    another boot the lasting identity counts. A record that knows no boot is taken by its name.
    """
    here = this_machine()
    if not machine.boot_id or not here.boot_id:
        return name == hostname()
    if machine.boot_id == here.boot_id:
        return machine.pid_namespace == here.pid_namespace
    return bool(machine.identity) and (machine.identity, name) == (here.identity, hostname())


def start_ticks(pid: int) -> int:
    """Give a process's start in clock ticks since boot, 0 when there is none: a pid with it is never mistaken.

    One that has ended and that nobody has taken notice of is none.

    Source: proc_pid_stat(5), fields 3 and 22.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return 0 if fields[0] in {"Z", "X"} else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # no path, a name such as pid:[4026531836]
    except OSError:
        return ""
