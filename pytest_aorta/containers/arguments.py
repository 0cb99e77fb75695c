"""Arguments: a specification as the argument list of `docker create` and `podman create`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from pytest_aorta.containers.soundness import PROPAGATIONS, RELABELS
from pytest_aorta.containers.spec import Mount, Spec

IDLE = ("sleep", "infinity")
STOP_SIGNAL = "SIGKILL"  # a sleep that is the first process heeds no other, and holds a daemon's shutdown up for 10 s
INSPECTED = (  # ID: podman knows no Id inside of an expression
    "[{{json .ID}},{{json .Name}},{{json .State.Status}},{{json .Config.Image}},{{json .Image}},"
    "{{json .Config.Labels}},{{json .State.ExitCode}}]"
)


def create_arguments(spec: Spec, program: str) -> list[str]:
    """Give what stands between `create` and the image; a value never begins an argument."""
    argv = ["--pull=never", f"--name={spec.name}", f"--entrypoint={IDLE[0]}", f"--stop-signal={STOP_SIGNAL}"]
    argv += [f"--label={name}={value}" for name, value in spec.labels.items()]
    argv += [f"--network={spec.network}"] if spec.network else []
    argv += [f"--ipc={spec.ipc}"] if spec.ipc else []
    argv += [f"--shm-size={spec.shm_size}"] if spec.shm_size and spec.ipc != "host" else []
    argv += ["--privileged"] if spec.privileged else []
    argv += [f"--user={spec.user}"] if spec.user else []
    if spec.gpus:
        argv += ["--device=nvidia.com/gpu=all"] if program == "podman" else ["--gpus=all"]
    argv += [f"--device={device}" for device in spec.devices]
    argv += [f"--cap-add={capability}" for capability in spec.cap_add]
    argv += [f"--security-opt={option}" for option in spec.security_opt]
    argv += [f"--group-add={group}" for group in spec.groups]
    argv += [f"--ulimit={limit}" for limit in spec.ulimits]
    argv += [mount_argument(mount) for mount in spec.mounts]
    return argv


def mount_argument(mount: Mount) -> str:
    """Give a mount as one argument.

    `--mount` reads a line of comma-separated values, so that any path can be quoted; only `--volume` knows z and Z.
    """
    if RELABELS & set(mount.options):
        return f"--volume={mount.source}:{mount.target}:{','.join(mount.options)}"
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    fields += [f"bind-propagation={option}" for option in mount.options if option in PROPAGATIONS]
    fields += ["readonly"] if "ro" in mount.options else []
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return f"--mount={line.getvalue()}"


def removing(container_id: str) -> list[str]:
    """Give what removes a container, its processes, and the nameless volumes that its image gave it."""
    return ["rm", "--force", "--volumes", container_id]


def entering(container_id: str, argv: Sequence[str]) -> list[str]:
    """Give what runs `argv` inside, its input and output those of the client."""
    return ["exec", "--interactive", container_id, *argv]
