"""Links: what ties the GPU events of a trace to the collectives that launched them, read only when it is asked for."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_aorta.trace.kinds import operation_of

NONE = -1
SYMMETRIC = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
POINT_TO_POINT = frozenset({"send", "recv"})
_SAME_SIZE_EVERYWHERE = frozenset({"all_reduce", "all_gather", "reduce_scatter"})
_MAX_GRIDS = 1 << 16
_MAX_MESSAGES = 1 << 14
_MAX_TEXT = 256


@dataclass(frozen=True, slots=True)
class Message:
    """What a collective moves and between whom; `group` is empty where the trace does not say it.

    `group` is the name of the process group and its ranks as recorded: names alone repeat among groups of one kind.
    """

    operation: str
    group: str = ""
    num_ranks: int = 0
    num_elements_in: int = 0
    num_elements_out: int = 0
    dtype: str = ""

    @property
    def is_named(self) -> bool:
        """Tell whether the trace says what this is; else `operation` is the kernel's name."""
        return bool(self.group)

    @property
    def is_symmetric(self) -> bool:
        """Tell whether no rank can finish before all have come."""
        return self.operation in SYMMETRIC

    @property
    def signature(self) -> tuple[str, str, int, int]:
        """What is the same on all ranks of the group; sizes only where each rank moves as much as the others."""
        if self.operation in _SAME_SIZE_EVERYWHERE:
            return self.operation, self.dtype, self.num_elements_in, self.num_elements_out
        return self.operation, self.dtype, 0, 0


class Arguments(Protocol):
    """The fields of an event's `args` that tie it to a collective, as they were decoded."""

    external_id: Any
    grid: Any
    collective: Any
    num_elements_in: Any
    num_elements_out: Any
    dtype: Any
    group: Any
    group_ranks: Any
    group_size: Any
    seq: Any


@dataclass(slots=True)
class Links:
    """Columns beside those of a Trace, NONE where nothing is recorded.

    `external`, `grid`, `message`, `seq`: one entry a GPU event, the second and third into `grids` and `messages`.
    `launch_external`: one entry a launch. `operator_*`: one entry a CPU operator that is a collective.
    """

    external: array[int] = field(default_factory=lambda: array("q"))
    grid: array[int] = field(default_factory=lambda: array("i"))
    message: array[int] = field(default_factory=lambda: array("i"))
    seq: array[int] = field(default_factory=lambda: array("q"))
    launch_external: array[int] = field(default_factory=lambda: array("q"))
    operator_external: array[int] = field(default_factory=lambda: array("q"))
    operator_message: array[int] = field(default_factory=lambda: array("i"))
    operator_seq: array[int] = field(default_factory=lambda: array("q"))
    grids: dict[str, int] = field(default_factory=dict)
    messages: dict[Message, int] = field(default_factory=dict)

    def see_event(self, args: Arguments | None) -> None:
        """Take the next GPU event."""
        self.external.append(NONE if args is None else _external(args))
        self.grid.append(NONE if args is None or args.grid is None else self._grid(str(args.grid)))
        self.message.append(NONE if args is None else self._message(args))
        self.seq.append(NONE if args is None else _count(args.seq))

    def see_launch(self, args: Arguments | None) -> None:
        """Take the next launch."""
        self.launch_external.append(NONE if args is None else _external(args))

    def see_operator(self, args: Arguments | None) -> None:
        """Take a CPU operator that launches a collective; one without an id ties nothing and is passed over."""
        external = NONE if args is None else _external(args)
        if args is not None and external != NONE:
            self.operator_external.append(external)
            self.operator_message.append(self._message(args))
            self.operator_seq.append(_count(args.seq))

    def _grid(self, grid: str) -> int:
        known = self.grids.get(grid)
        if known is None:
            known = self.grids.setdefault(grid, len(self.grids)) if len(self.grids) < _MAX_GRIDS else NONE
        return known

    def _message(self, args: Arguments) -> int:
        group = f"{_text(args.group)} {_text(args.group_ranks)}".strip()
        if not isinstance(args.collective, str) or not group:
            return NONE
        message = Message(
            operation=operation_of(_text(args.collective)),
            group=group,
            num_ranks=max(0, _count(args.group_size)),
            num_elements_in=max(0, _count(args.num_elements_in)),
            num_elements_out=max(0, _count(args.num_elements_out)),
            dtype=_text(args.dtype),
        )
        known = self.messages.get(message)
        if known is None:
            is_full = len(self.messages) >= _MAX_MESSAGES
            known = NONE if is_full else self.messages.setdefault(message, len(self.messages))
        return known


def _external(args: Arguments) -> int:
    """Give the id of the CPU operator that launched; 0 is Kineto's way of saying none."""
    return _count(args.external_id) or NONE


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return NONE
    return value if 0 <= value < 1 << 62 else NONE


def _text(value: object) -> str:
    """Give a recorded text; some versions of Kineto write it with quotes of its own."""
    return "" if value is None else str(value).strip('"')[:_MAX_TEXT]
