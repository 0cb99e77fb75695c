"""Ask: one thing asked of one host's node program; and what comes back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Answer = dict[str, Any]
EventKind = Literal["exited", "lines", "said", "lost"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing asked: a command of the node program, its arguments (JSON values), the deadline for its answer."""

    do: str
    args: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something a host said unasked.

    `exited`: name, exit_code, signal, seconds. `lines`: name, lines. `said`: name, data. `lost`: message; nothing more
    comes from the host.
    """

    host: str
    kind: EventKind
    data: dict[str, Any]
