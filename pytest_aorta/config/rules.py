"""Rules across fields: plain functions, so that every fault is seen at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_aorta.config.container_fields import target_of
from pytest_aorta.config.document import JsonPath, PathFault, Places, shortened
from pytest_aorta.config.fields import Secret, plain_environment
from pytest_aorta.config.model import RunConfig, Thresholds

CHANNEL_VARIABLES = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS")
_BOOLEAN_EVIDENCE = "compute_check"
MOST_VARIABLE_BYTES = 128 * 1024  # MAX_ARG_STRLEN of Linux, the closing NUL included


@dataclass(frozen=True, slots=True)
class Together:
    """What the rules look at; `thresholds` and `num_hosts` are None when their file is faulty."""

    config: RunConfig
    thresholds: Thresholds | None
    num_hosts: int | None


Rule = Callable[[Together], Iterator[PathFault]]


def broken(together: Together, already: Iterable[PathFault]) -> tuple[PathFault, ...]:
    """Give what the rules find; a rule is silent where a field that it reads is faulty by itself."""
    known = Places(already)
    return tuple(
        fault
        for rule, reads in RULES.items()
        if not any(known.touch(path) for path in reads)
        for fault in rule(together)
    )


def launch_mode(config: RunConfig, num_hosts: int) -> str:
    """Resolve `multi_node.master_launch_mode`: script on one node, torchrun on several."""
    mode = config.multi_node.master_launch_mode
    if config.workload is not None and mode == "auto":
        return "torchrun" if num_hosts > 1 or config.workload.launcher == "torchrun" else "script"
    if mode == "auto":
        return "script" if num_hosts == 1 else "torchrun"
    return mode


def _schema(together: Together) -> Iterator[PathFault]:
    if together.config.model is not None and together.config.model.remote == 1:
        yield PathFault(("model", "remote"), "seen 1, expected 0; remote models are not supported")


def _clone(together: Together) -> Iterator[PathFault]:
    config = together.config
    if config.aorta_auto_clone and not config.aorta_clone_url:
        yield PathFault(
            ("aorta_clone_url",), "is empty, expected the repository's address because aorta_auto_clone is true"
        )
    if config.aorta_auto_clone and config.aorta_path is None:
        yield PathFault(("aorta_path",), "is missing, expected the folder to clone into: aorta_auto_clone is true")


def _container(together: Together) -> Iterator[PathFault]:
    container = together.config.container
    if container is None or not container.is_used:
        return
    for name in ("name", "image"):
        if getattr(container, name) is None:
            yield PathFault(
                ("container", name), f"is missing, expected for the runtime {container.runtime.name}; set it"
            )


def _mount(together: Together) -> Iterator[PathFault]:
    config = together.config
    if config.container is None or not config.container.is_used or config.aorta_path is None:
        return
    wanted = (PurePosixPath(config.aorta_path), PurePosixPath(config.container_mount_path))
    seen, step = "it is missing", "add it"
    for volume in config.container.runtime.args.volumes:
        host, _, rest = volume.partition(":")
        inside, _, options = rest.partition(":")
        if (PurePosixPath(host), PurePosixPath(inside)) == wanted:
            if "ro" not in options.split(","):
                return
            seen, step = "it is mounted read-only", f'replace "{shortened(volume)}" by it'
        elif target_of(volume) == str(wanted[1]):
            seen, step = f"{shortened(host)} is mounted there", f'replace "{shortened(volume)}" by it'
    yield PathFault(
        ("container", "runtime", "args", "volumes"),
        f'expected the writable mount "{config.aorta_path}:{config.container_mount_path}", but {seen}; {step}',
    )


def _targets(together: Together) -> Iterator[PathFault]:
    container = together.config.container
    if container is None or not container.is_used:
        return
    seen: dict[str, str] = {}
    for index, volume in enumerate(container.runtime.args.volumes):
        if (target := target_of(volume)) in seen:
            yield PathFault(
                ("container", "runtime", "args", "volumes", index),
                f'seen "{shortened(volume)}", which is mounted on {shortened(target)} like '
                f'"{shortened(seen[target])}", expected one mount on each folder; remove one of them',
            )
        seen.setdefault(target, volume)


def _registry(together: Together) -> Iterator[PathFault]:
    container = together.config.container
    registry = container.runtime.args.registry if container is not None and container.is_used else None
    if registry is not None and bool(registry.username) != bool(registry.password_file):
        missing, given = ("password_file", "username") if registry.username else ("username", "password_file")
        yield PathFault(
            ("container", "runtime", "args", "registry", missing), f"is empty, expected beside {given}; set it"
        )


def _lengths(together: Together) -> Iterator[PathFault]:
    for path, values in _environments(together.config).items():
        for name, value in plain_environment(values).items():
            num_bytes = len(os.fsencode(f"{name}={value}")) + 1
            if num_bytes > MOST_VARIABLE_BYTES:
                yield PathFault(
                    (*path, name),
                    f"seen a variable of {num_bytes} bytes with its name, expected at most {MOST_VARIABLE_BYTES}, the "
                    "most that Linux hands to a program; put the value into a file and give its path",
                )


def _environments(config: RunConfig) -> dict[JsonPath, Mapping[str, str | int | float | Secret]]:
    maps: dict[JsonPath, Mapping[str, str | int | float | Secret]] = {
        ("multi_node", "extra_env"): config.multi_node.extra_env
    }
    if config.container is not None:
        maps["container", "env"] = config.container.env
    return maps


def _channels(together: Together) -> Iterator[PathFault]:
    for path, values in _environments(together.config).items():
        for name in CHANNEL_VARIABLES:
            if name in values and not _is_channel_count(values[name]):
                seen = "a secret" if isinstance(values[name], Secret) else shortened(repr(values[name]))
                yield PathFault((*path, name), f"seen {seen}, expected a whole number of 1 to 256")


def _is_channel_count(value: object) -> bool:
    text = str(value) if isinstance(value, (int, str)) else ""
    return text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= 256


def _enforcement(together: Together) -> Iterator[PathFault]:
    if together.thresholds is None or not together.config.enforce_thresholds:
        return
    if not together.thresholds.any_set() and not together.config.gates:
        yield PathFault(
            ("enforce_thresholds",),
            "seen true, but no threshold and no gate is set; set one, or enforce_thresholds to false",
        )


def _script_mode(together: Together) -> Iterator[PathFault]:
    mode = together.config.multi_node.master_launch_mode
    if mode == "script" and (together.num_hosts or 0) > 1:
        yield PathFault(
            ("multi_node", "master_launch_mode"),
            f"seen script with {together.num_hosts} nodes, expected auto or torchrun: a script runs on one node only",
        )


def _gates(together: Together) -> Iterator[PathFault]:
    for index, gate in enumerate(together.config.gates):
        if gate.kind == "within" and gate.tolerance is None:
            yield PathFault(("gates", index, "tolerance"), "is missing, expected for the kind within; set it")
        if gate.kind != "within" and gate.tolerance is not None:
            yield PathFault(
                ("gates", index, "tolerance"), f"seen with the kind {gate.kind}, expected for within only; remove it"
            )


def _evidence(together: Together) -> Iterator[PathFault]:
    for name, value in together.config.evidence.items():
        if isinstance(value, bool) != (name == _BOOLEAN_EVIDENCE):
            expected = "true or false" if name == _BOOLEAN_EVIDENCE else "fail, warn or off"
            yield PathFault(("evidence", name), f"seen {str(value).lower()}, expected {expected}")


def doubts(config: RunConfig, folder: Path | None) -> Iterator[str]:
    """Give warnings about what is allowed and hardly meant; `folder` is where we are when the hosts are elsewhere."""
    if config.workload is not None and config.aorta_path is None and folder is not None:
        yield (
            f"workload is not sent to the hosts: each must have it in {folder}, the folder of this command; set "
            "aorta_path where it lies elsewhere"
        )
    if config.workload is not None and not config.workload.traces:
        yield "workload.traces is absent: traces are looked for below folders torch_profiler only"
    if config.container is None or not config.container.is_used:
        return
    for name, values in (
        ("container.env", config.container.env),
        ("multi_node.extra_env", config.multi_node.extra_env),
    ):
        path = plain_environment(values).get("PATH")
        if path is not None and not {"/bin", "/usr/bin"} & set(path.split(":")):
            yield (
                f"{name}.PATH has neither /usr/bin nor /bin: it replaces the PATH of the image, and $PATH in it is not "
                "expanded; name every folder of the programs that the container needs"
            )


RULES: dict[Rule, tuple[JsonPath, ...]] = {
    _schema: (("model",),),
    _clone: (("aorta_auto_clone",), ("aorta_clone_url",), ("aorta_path",)),
    _container: (("container", "name"), ("container", "image"), ("container", "runtime", "name")),
    _mount: (
        ("container", "runtime", "name"),
        ("container", "runtime", "args", "volumes"),
        ("aorta_path",),
        ("container_mount_path",),
    ),
    _targets: (("container", "runtime"),),
    _registry: (("container", "runtime"),),
    _lengths: (("container", "env"), ("multi_node", "extra_env")),
    _channels: (
        *(("container", "env", name) for name in CHANNEL_VARIABLES),
        *(("multi_node", "extra_env", name) for name in CHANNEL_VARIABLES),
    ),
    _enforcement: (("enforce_thresholds",), ("gates",), ("threshold_json",)),
    _script_mode: (("multi_node", "master_launch_mode"),),
    _gates: (("gates",),),
    _evidence: (("evidence",),),
}
"""Each rule with the fields that it reads."""
