"""Variables that torch reads when it starts: set here, before it is imported, unless the user has set them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import MutableMapping
from pathlib import Path

from aorta_train.options import Options
from aorta_train.output import FLIGHT_RECORDER

BUFFER_NAMES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
FILE_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
NUM_RECORDED_COLLECTIVES = "2000"
RENAMED_IN = (2, 9)
HIGH_PRIORITY = "TORCH_NCCL_HIGH_PRIORITY"
"""torch takes the higher of this and the option of the process group."""
MAX_UNITS = "TENSILE_STREAMK_MAX_CUS"
"""Read by hipBLASLt when it loads."""


def switch_flight_recorder_on(environment: MutableMapping[str, str], output_dir: Path, torch_version: str) -> None:
    """Record the last collectives, and dump them beside the traces when one times out.

    torch has renamed these variables, and newer releases warn of the older names; a pair is left alone when either
    is set.
    """
    folder = (output_dir / FLIGHT_RECORDER).absolute()
    used = slice(0, 1) if release_of(torch_version) >= RENAMED_IN else slice(None)
    for names, value in ((BUFFER_NAMES, NUM_RECORDED_COLLECTIVES), (FILE_NAMES, str(folder / "rank_"))):
        if not any(name in environment for name in names):
            environment.update(dict.fromkeys(names[used], value))
    environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    folder.mkdir(parents=True, exist_ok=True)


def spare_the_host(environment: MutableMapping[str, str]) -> None:
    """Let FullyShardedDataParallel exchange parameters without asking each module: small steps wait for the host."""
    environment.setdefault("FSDP_USE_UNSAFE_SETATTR", "1")


def prepare_streams(environment: MutableMapping[str, str], options: Options) -> list[str]:
    """Set what the options of streams and tuning need; gives a sentence about each change to the user's variables."""
    changes: list[str] = []
    if options.streams.comm_priority is not None and environment.pop(HIGH_PRIORITY, None) is not None:
        changes.append(f"{HIGH_PRIORITY} is removed from the environment: streams.comm_priority wins")
    if options.tuning.max_sms is not None:
        wanted = str(options.tuning.max_sms)
        if environment.get(MAX_UNITS, wanted) != wanted:
            changes.append(f"{MAX_UNITS} is set to {wanted}: tuning.max_sms wins")
        environment[MAX_UNITS] = wanted
    return changes


def installed_torch() -> str | None:
    """Give the version of the installed torch without importing it, or nothing."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def release_of(version: str) -> tuple[int, ...]:
    """Give the first two numbers of a version."""
    return tuple(int(part) for part in version.split("+", maxsplit=1)[0].split(".")[:2] if part.isdigit())
