"""The launch command: the environment and the argument list that start the workload on a host."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_aorta.config.cluster import Host
from pytest_aorta.config.settings import Settings
from pytest_aorta.run.products import Accelerator

# The published defaults of the AMD suite; each gives way to a value of the configuration.
ROCM_DEFAULTS = {
    "NCCL_MAX_NCHANNELS": "112",
    "NCCL_MAX_P2P_NCHANNELS": "112",
    "NCCL_DEBUG": "VERSION",
    "TORCH_NCCL_HIGH_PRIORITY": "1",
    "RCCL_MSCCL_ENABLE": "0",
}
CUDA_DEFAULTS = {"NCCL_DEBUG": "VERSION", "TORCH_NCCL_HIGH_PRIORITY": "1"}
COMPUTE_UNITS = 256
ROCM_LIBRARY_DIRS = ("/opt/rocm/lib", "/opt/rocm/lib64", "/opt/openmpi/lib", "/opt/rccl-tests/build")

SET_PYTHON = "set `python` to the full path of one that has torch there"
_PLAIN_FLAG = re.compile(r"-[bBdEiIOqsSuvx]+")  # of python, without a word that belongs to it


def override_tokens(overrides: Mapping[str, Any]) -> list[str]:
    """Give training overrides as `key=value` tokens, values as the workload's own rules read them."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in overrides.items()]


def environment(settings: Settings, accelerator: Accelerator) -> dict[str, str]:
    """Give the environment of the workload and of the RCCL build, lowest precedence first.

    Configured container.env; defaults where it is silent; the values of the rccl block; extra_env, which wins; what
    follows from these.
    """
    config = settings.config
    given = settings.environment
    defaults = {"rocm": ROCM_DEFAULTS, "cuda": CUDA_DEFAULTS, "cpu": {}}[accelerator]
    merged = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **defaults, **given}
    if accelerator != "cpu":
        merged |= {
            "rccl_path": config.rccl.build_path,
            "RCCL_CLONE_URL": config.rccl.clone_url,
            "RCCL_BRANCH": config.rccl.branch,
        }
    merged |= {"NPROC": str(settings.nproc_per_node), "GPUS_PER_NODE": str(config.gpus_per_node)}
    if config.training_overrides:
        merged["AORTA_OVERRIDE_ARGS"] = " ".join(["--override", *override_tokens(config.training_overrides)])
    merged |= {name: given[name] for name in config.multi_node.extra_env}
    if accelerator == "rocm":
        channels = merged.get("NCCL_MAX_NCHANNELS", "")
        if channels.isdecimal():
            merged.setdefault("TENSILE_STREAMK_MAX_CUS", str(COMPUTE_UNITS - int(channels)))
        if settings.uses_container or not settings.skip_rccl_build:
            dirs = (f"{config.rccl.build_path}/build/release/", *ROCM_LIBRARY_DIRS)
            merged.setdefault("LD_LIBRARY_PATH", ":".join(dirs))
    return merged


def num_channels(env: Mapping[str, str]) -> int | None:
    """Give the channel limit the workload was started with, None when it was left to the library."""
    value = env.get("NCCL_MAX_NCHANNELS", "")
    return int(value) if value.isdecimal() else None


def uses_torchrun(settings: Settings) -> bool:
    """Tell whether we start torchrun ourselves.

    With the bundled tree `auto` means torchrun on one node too: the process count of the configuration then holds,
    which a launch script would have to guess.
    """
    workload = settings.config.workload
    if workload is not None:
        return workload.launcher == "torchrun"
    if settings.config.aorta_path is None and settings.config.multi_node.master_launch_mode == "auto":
        return True
    return settings.launch_mode == "torchrun"


def launch_text(settings: Settings) -> str:
    """Say in a few words what starts the workload, without what only a run knows (addresses, ports, folders)."""
    config = settings.config
    if config.workload is not None:
        command = list(config.workload.command)
        if uses_torchrun(settings):
            return f"torchrun: {shlex.join(_under_torchrun(command))}"
        return f"{shlex.join(command)} (once a node, as it is)"
    if uses_torchrun(settings):
        return f"torchrun: {config.multi_node.train_script} --config {config.base_config}"
    return f"script: bash {config.experiment_script} {config.base_config}"


def entry_points(settings: Settings) -> tuple[str, ...]:
    """Give the files, relative to the workload's tree, without which the run cannot start."""
    config = settings.config
    if config.workload is not None:
        return ()
    start = config.multi_node.train_script if uses_torchrun(settings) else config.experiment_script
    build = () if settings.skip_rccl_build else (config.build_script,)
    return (config.base_config, start, *build)


def own_script(settings: Settings) -> str | None:
    """Give the file that a command of one's own starts, as it is written there; None where it names none.

    A program without a slash is looked for on PATH, and a module or a shell's text is no file.
    """
    workload = settings.config.workload
    if workload is None:
        return None
    program, *words = workload.command
    if program.rpartition("/")[2].startswith("python"):
        scripts = [word for word in words if not _PLAIN_FLAG.fullmatch(word)]
        return scripts[0] if scripts and not scripts[0].startswith("-") else None
    is_script = program.endswith(".py") and workload.launcher == "torchrun"
    return program if is_script or "/" in program else None


def torchrun(
    settings: Settings, host: Host, python: Sequence[str], *, address: str, port: int | str, rank_logs: str
) -> list[str]:
    """Give the torchrun command of one node: static rendezvous, every line marked with its local rank."""
    multi = settings.config.multi_node
    return [
        *python,
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(settings.cluster.hosts)}",
        f"--node_rank={host.rank}",
        f"--nproc_per_node={settings.nproc_per_node}",
        f"--master_addr={address}",
        f"--master_port={port}",
        f"--log-dir={rank_logs}",
        "--tee=3",
        *multi.extra_torchrun_args,
    ]


def workload_command(settings: Settings, host: Host, *, address: str, port: int | str, rank_logs: str) -> list[str]:
    """Give the whole argument list that starts the workload on a host."""
    config = settings.config
    python = python_command(settings)
    head = torchrun(settings, host, python, address=address, port=port, rank_logs=rank_logs)
    if config.workload is not None:
        command = list(config.workload.command)
        if config.workload.launcher == "none":
            return command
        return [*head, *_under_torchrun(command)]
    overrides = ["--override", *override_tokens(config.training_overrides)] if config.training_overrides else []
    if uses_torchrun(settings):
        arguments = ["--config", config.base_config, *overrides, *config.multi_node.extra_train_args]
        return [*head, config.multi_node.train_script, *arguments]
    return ["bash", config.experiment_script, config.base_config, *overrides]


def python_command(settings: Settings) -> list[str]:
    """Give what starts Python on a host: the configured one; on this machine without container the running one."""
    here = settings.cluster.transport == "local" and not settings.uses_container
    return [settings.config.python or (sys.executable if here else "python3")]


def rendezvous_address(settings: Settings) -> str:
    """Give the address of rank 0: configured, else the head's fabric address, else its name."""
    return settings.config.multi_node.master_addr or settings.cluster.hosts[0].address


def _under_torchrun(command: list[str]) -> list[str]:
    """Give what torchrun starts: a script, by its own Python (a leading `python` is dropped), or a program as it is."""
    name = command[0].rpartition("/")[2]
    if name.startswith("python") and len(command) > 1:
        return command[1:]
    return command if name.endswith(".py") else ["--no-python", *command]
