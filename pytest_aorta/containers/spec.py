"""Spec: everything that a container is started with on one host, whatever engine starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

RUN_LABEL = "aorta.run"
"""Label of every container we start; its value is the run's id."""

STATE_LABEL = "aorta.state"
"""Label with the node program's state folder on the host, which tells whether the run still lives."""

KEPT_LABEL = "aorta.kept"
"""Label of persistent containers, which outlive their run: nobody but a person removes them."""

Lifetime = Literal["per_run", "persistent", "no_launch"]


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host inside the container; both paths are absolute; options as in `volumes` (`ro`, `rslave`)."""

    source: str
    target: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Login:
    """Where the image is pulled from when that needs a login; the password is in a file on each host."""

    username: str
    password_file: str
    server: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to start. Environment values are secrets until known otherwise: they stand in no argument list."""

    name: str
    image: str
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()  # HOST[:CONTAINER[:MODE]], all of which exist
    gpus: bool = False  # NVIDIA's runtime gives all GPUs
    network: str = "host"
    ipc: str = "host"
    privileged: bool = False
    cap_add: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # names that the image knows, or numbers
    ulimits: tuple[str, ...] = ()  # NAME=SOFT[:HARD]
    user: str = ""
    shm_size: str = ""
    login: Login | None = None
