"""`streams.comm_priority`: the priority of the streams on which collectives run.

A process group has a stream of its own, whose priority is an option of the group. Since torch 2.8 a collective that is
not asynchronous runs on the stream that issues it instead; FSDP and fully_shard issue theirs on streams that they make
before the first step, so these are made anew with the priority that was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from aorta_train.options import Options
from aorta_train.refusal import Refusal

PRIORITIES = {"high": -1, "normal": 0}


def group_wishes(options: Options) -> dict[str, Any]:
    """Give what every process group of NCCL or RCCL is made with."""
    timeout = timedelta(seconds=options.distributed.timeout_seconds)
    priority = options.streams.comm_priority
    if priority is None:
        return {"timeout": timeout}
    backend: Any = dist.ProcessGroupNCCL  # type: ignore[attr-defined, unused-ignore]
    wishes = backend.Options(is_high_priority_stream=priority == "high")
    wishes._timeout = timeout  # noqa: SLF001  (else torch warns that the other timeout wins)
    return {"timeout": timeout, "pg_options": wishes}


def replace_streams(holders: Sequence[Any], names: Sequence[str], options: Options, device: torch.device) -> None:
    """Give all `holders` the same new streams under `names`.

    Raises:
        Refusal: this torch keeps its streams elsewhere.
    """
    priority = options.streams.comm_priority
    if priority is None:
        return
    for holder in holders:
        missing = [name for name in names if not hasattr(holder, name)]
        if missing:
            raise Refusal(
                f"streams.comm_priority: torch {torch.__version__} does not show the streams of "
                f"distributed.mode {options.distributed.mode} ({', '.join(missing)}); leave it out or use mode ddp"
            )
    make: Any = torch.cuda.Stream
    streams = {name: make(device, priority=PRIORITIES[priority]) for name in names}
    for holder in holders:
        for name, stream in streams.items():
            setattr(holder, name, stream)
