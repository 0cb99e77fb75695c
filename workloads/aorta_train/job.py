"""Which rank this process is, as the launcher says in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aorta_train.refusal import Refusal
from aorta_train.wording import shown

_MAX_DIGITS = 9


@dataclass(frozen=True)
class Job:
    """This rank among the others; a process that no launcher started is a job of one."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    launched: bool

    @property
    def num_nodes(self) -> int:
        """Count the nodes, each with as many ranks as this one."""
        return -(-self.world_size // self.local_world_size)


def job_in(environment: Mapping[str, str]) -> Job:
    """Read the variables that torchrun sets for every rank.

    Raises:
        Refusal: only some of them are there, or one is no sensible number.
    """
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return Job(rank=0, world_size=1, local_rank=0, local_world_size=1, launched=False)
    rank, world_size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    local_rank, local_world_size = _number(environment, "LOCAL_RANK"), _number(environment, "LOCAL_WORLD_SIZE")
    if not (rank < world_size and local_rank < local_world_size <= world_size):
        raise Refusal(
            f"RANK={rank} WORLD_SIZE={world_size} LOCAL_RANK={local_rank} LOCAL_WORLD_SIZE={local_world_size} "
            "do not fit together; start the ranks with torchrun"
        )
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise Refusal(f"{' and '.join(missing)}: not in the environment beside RANK; start the ranks with torchrun")
    return Job(rank, world_size, local_rank, local_world_size, launched=True)


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise Refusal(f"{name}: is {shown(text)} in the environment, expected a number; start the ranks with torchrun")
    return int(text)
