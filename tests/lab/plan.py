"""What a lab is to be, and the names that follow from its number: no two labs share a folder, a network or a link."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/run/aorta-lab")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SLURM_HEAD = "node1"
MAX_NUM_LABS = 200
MAX_NUM_HOSTS = 200


@dataclass(frozen=True)
class Plan:
    """One lab: how many hosts, what runs on them, what of this machine they see."""

    number: int
    num_hosts: int
    docker: bool = False
    slurm: bool = False
    binds: tuple[str, ...] = ()
    num_gpus: int = 2
    podman: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.num_hosts <= MAX_NUM_HOSTS:
            raise ValueError(f"a lab has 1 to {MAX_NUM_HOSTS} hosts, not {self.num_hosts}")

    @property
    def folder(self) -> Path:
        """Everything of the lab that lies on this machine's disk."""
        return ROOT / str(self.number)

    @property
    def network(self) -> str:
        """The first three numbers of its addresses, in the range kept for tests of network devices (RFC 2544)."""
        return f"198.18.{self.number}"

    @property
    def controller(self) -> str:
        """The address of the test machine itself."""
        return f"{self.network}.1"

    @property
    def link(self) -> str:
        """The only network link on the test machine; the kernel takes at most 15 characters."""
        return f"aortalab{self.number}"

    @property
    def cgroup(self) -> str:
        """The cgroup above those of all its containers."""
        return f"aorta-lab-{self.number}"

    @property
    def hosts(self) -> dict[str, str]:
        """The addresses by name."""
        return {f"node{index}": f"{self.network}.{10 + index}" for index in range(1, self.num_hosts + 1)}

    def hardware_address(self, name: str, end: int) -> str:
        """The same after each boot, so that nobody's neighbour table has to expire; `end` 0 is the switch's."""
        return f"02:ab:{self.number:02x}:{end:02x}:00:{int(self.hosts[name].rsplit('.', 1)[1]):02x}"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        fields = json.loads(text)
        return cls(**{**fields, "binds": tuple(fields["binds"])})
