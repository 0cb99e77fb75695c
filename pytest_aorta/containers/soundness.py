"""Soundness: values that no engine could take exactly as they are, found before anything is started."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_aorta.containers.spec import RUN_LABEL, STATE_LABEL, Mount, Spec

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
IMAGE = re.compile(r"[A-Za-z0-9\[][!-~]*")
SERVER = re.compile(r"[A-Za-z0-9\[][!-~]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")  # podman takes A* for all that begin with A, and # is a comment
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
PROPAGATIONS = frozenset({"private", "rprivate", "shared", "rshared", "slave", "rslave"})
RELABELS = frozenset({"z", "Z"})
MOUNT_OPTIONS = PROPAGATIONS | RELABELS | {"ro", "rw"}


def faults(spec: Spec) -> list[str]:
    """Say what is wrong with a specification; values of the environment are never quoted."""
    return [*_names(spec), *_environment(spec), *(fault for mount in spec.mounts for fault in _mount(mount))]


def _names(spec: Spec) -> Iterator[str]:
    if not NAME.fullmatch(spec.name):
        yield f"the container's name is {spec.name!r}, expected letters, digits and _ . - after a letter or digit"
    if not IMAGE.fullmatch(spec.image):
        yield f"the image is {spec.image!r}, expected a reference such as rocm/pytorch:latest"
    for label in (RUN_LABEL, STATE_LABEL):
        if not spec.labels.get(label):
            yield f"the label {label} has no value, and what cannot be told from other containers is not started"
    if spec.login is not None and spec.login.server and not SERVER.fullmatch(spec.login.server):
        yield f"the registry's server is {spec.login.server!r}, expected HOST or HOST:PORT"
    words = {
        "network": (spec.network,),
        "ipc": (spec.ipc,),
        "user": (spec.user,),
        "shm_size": (spec.shm_size,),
        "devices": spec.devices,
        "cap_add": spec.cap_add,
        "security_opt": spec.security_opt,
        "group_add": spec.groups,
        "ulimit": spec.ulimits,
    }
    for field, values in words.items():
        for value in values:
            if CONTROL.search(value):
                yield f"{field}: {value!r} has a control character in it"


def _environment(spec: Spec) -> Iterator[str]:
    for name, value in spec.env.items():
        if not VARIABLE.fullmatch(name):
            yield f"env: a variable cannot be named {name!r}"
        if "\0" in value:
            yield f"env: the value of {name} has a NUL in it, which no variable can hold"
    for name, value in spec.labels.items():
        if "\0" in f"{name}{value}" or not name or "=" in name:
            yield f"the label {name!r} has a NUL in it or no proper name"


def _mount(mount: Mount) -> Iterator[str]:
    for path in (mount.source, mount.target):
        if not path.startswith("/") or CONTROL.search(path):
            yield f"volumes: the path {path!r} is not absolute or has a control character in it"
    for option in mount.options:
        if option not in MOUNT_OPTIONS:
            known = ", ".join(sorted(MOUNT_OPTIONS))
            yield f"volumes: {mount.target}: unknown option {option!r}, expected one of {known}"
    if RELABELS & set(mount.options) and ":" in f"{mount.source}{mount.target}":
        yield f"volumes: {mount.source}: a path with a colon in it cannot be given together with z or Z"
    if {"ro", "rw"} <= set(mount.options):
        yield f"volumes: {mount.target}: seen both ro and rw, expected one of them"
