"""The `container` block."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pytest_aorta.config.container_fields import (
    Capability,
    ContainerUser,
    Device,
    Group,
    ImageName,
    Mode,
    RegistryLogin,
    RegistryServer,
    SecurityOption,
    ShmSize,
    Ulimits,
    Volume,
)
from pytest_aorta.config.fields import ContainerName, EnvMap, KeyFile, Section, TolerantSection


class Registry(Section):
    """Where the image is pulled from when that needs a login."""

    username: RegistryLogin = Field(default="", description="Login name at the registry.")
    password_file: KeyFile = Field(default="", description="File on each node whose content is the password.")
    server: RegistryServer = Field(default="", description="The registry's address; empty: the engine's own default.")


class RuntimeArgs(TolerantSection):
    """What the container is started with. Unknown keys are ignored with a warning."""

    network: Mode = Field(default="host", description="Network mode.")
    ipc: Mode = Field(default="host", description="IPC namespace.")
    privileged: bool = Field(default=False, description="All privileges of the host; safe files leave it false.")
    devices: tuple[Device, ...] = Field(
        default=(), description="Devices beside those of the accelerator, HOST[:CONTAINER[:MODE]]."
    )
    volumes: tuple[Volume, ...] = Field(default=(), description="Mounts, HOST:CONTAINER[:OPTIONS].")
    cap_add: tuple[Capability, ...] = Field(default=("SYS_PTRACE", "IPC_LOCK"), description="Capabilities.")
    security_opt: tuple[SecurityOption, ...] = Field(default=(), description="Security options.")
    group_add: tuple[Group, ...] = Field(default=(), description="Groups beside video and the node's render group.")
    ulimit: Ulimits = Field(default=(), description="Limits, NAME=SOFT[:HARD]; memlock=-1 unless one is given here.")
    registry: Registry | None = Field(default=None, description="Registry login; absent: none.")
    user: ContainerUser | None = Field(default=None, description="User in the container; absent: the image's own.")
    shm_size: ShmSize | None = Field(default=None, description="Size of /dev/shm when ipc is not host.")


class Runtime(TolerantSection):
    """The engine. Unknown keys are ignored with a warning."""

    name: Literal["docker", "podman", "none"] = Field(
        default="docker", description="The engine; none: on the host itself."
    )
    args: RuntimeArgs = Field(default=RuntimeArgs(), repr=False, description="What the container is started with.")


class Container(Section):
    """The container that the workload runs in, one on each node."""

    lifetime: Literal["no_launch", "per_run", "persistent"] = Field(
        default="per_run",
        description="per_run: made and removed; persistent: found or made, kept; no_launch: must be running.",
    )
    name: ContainerName | None = Field(default=None, description="Its name; required for docker and podman.")
    image: ImageName | None = Field(default=None, description="Its image; required for docker and podman.")
    env: EnvMap = Field(default={}, repr=False, description="Variables: text, numbers or {secret: text}.")
    runtime: Runtime = Field(default=Runtime(), description="The engine and its arguments.")

    @property
    def is_used(self) -> bool:
        """Tell whether there is a container at all: `runtime.name: none` means the host itself."""
        return self.runtime.name != "none"
