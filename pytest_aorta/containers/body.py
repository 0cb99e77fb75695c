"""Body: a specification as the JSON that the daemon's API takes, where no client program translates it."""

from __future__ import annotations

import re
from typing import Any

from pytest_aorta.containers.arguments import IDLE, STOP_SIGNAL
from pytest_aorta.containers.soundness import PROPAGATIONS, RELABELS
from pytest_aorta.containers.spec import Mount, Spec
from pytest_aorta.errors import ContainerError

SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([bkmgt]?)(?:i?b)?", re.IGNORECASE)
LIMIT = re.compile(r"([a-z]+)=(-1|\d+)(?::(-1|\d+))?")
DEVICE = re.compile(r"(/[^:]+)(?::(/[^:]+))?(?::([rwm]{1,3}))?")


def create_body(spec: Spec) -> dict[str, Any]:
    """Give what is posted to make the container.

    Raises:
        ContainerError: a value is none that the API knows.
    """
    host_config: dict[str, Any] = {
        "NetworkMode": spec.network or "default",
        "IpcMode": spec.ipc,
        "Privileged": spec.privileged,
        "CapAdd": list(spec.cap_add),
        "SecurityOpt": [_security_option(option) for option in spec.security_opt],
        "GroupAdd": list(spec.groups),
        "Ulimits": [_limit(limit) for limit in spec.ulimits],
        "Devices": [_device(device) for device in spec.devices],
        "DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}] if spec.gpus else [],
        "Mounts": [_mount(mount) for mount in spec.mounts if not RELABELS & set(mount.options)],
        "Binds": [
            f"{mount.source}:{mount.target}:{','.join(mount.options)}"
            for mount in spec.mounts
            if RELABELS & set(mount.options)
        ],
    }
    if spec.shm_size and spec.ipc != "host":
        host_config["ShmSize"] = _size(spec.shm_size)
    return {
        "Image": spec.image,
        "Entrypoint": [IDLE[0]],
        "Cmd": list(IDLE[1:]),
        "StopSignal": STOP_SIGNAL,
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "Labels": dict(spec.labels),
        "User": spec.user,
        "HostConfig": host_config,
    }


def _mount(mount: Mount) -> dict[str, Any]:
    body: dict[str, Any] = {"Type": "bind", "Source": mount.source, "Target": mount.target}
    body["ReadOnly"] = "ro" in mount.options
    for option in mount.options:
        if option in PROPAGATIONS:
            body["BindOptions"] = {"Propagation": option}
    return body


def _security_option(option: str) -> str:
    name, _, value = option.partition("=")
    if name == "seccomp" and value not in {"unconfined", "builtin"}:
        raise ContainerError(f"security_opt: seen {option!r}, expected seccomp=unconfined: no profile files by the SDK")
    return option


def _size(text: str) -> int:
    found = SIZE.fullmatch(text)
    if found is None:
        raise ContainerError(f"shm_size: seen {text!r}, expected a size such as 8g")
    return int(float(found[1]) * 1024 ** "bkmgt".index(found[2].lower() or "b"))


def _limit(text: str) -> dict[str, Any]:
    found = LIMIT.fullmatch(text)
    if found is None:
        raise ContainerError(f"ulimit: seen {text!r}, expected NAME=SOFT[:HARD]")
    return {"Name": found[1], "Soft": int(found[2]), "Hard": int(found[3] or found[2])}


def _device(text: str) -> dict[str, str]:
    found = DEVICE.fullmatch(text)
    if found is None:
        raise ContainerError(f"devices: seen {text!r}, expected HOST[:CONTAINER[:MODE]]")
    return {
        "PathOnHost": found[1],
        "PathInContainer": found[2] or found[1],
        "CgroupPermissions": found[3] or "rwm",
    }
