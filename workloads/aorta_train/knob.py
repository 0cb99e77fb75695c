"""One knob of the configuration: its default, its bounds, and where it means anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MODES = ("fsdp", "fsdp2", "ddp")
DEVICES = ("cpu", "cuda", "rocm")
GPUS = ("cuda", "rocm")


@dataclass(frozen=True)
class Limits:
    """What values a knob takes, and in which modes and on which devices it does anything."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    modes: tuple[str, ...] = MODES
    devices: tuple[str, ...] = DEVICES
    neutral: Any = None
    """A value that asks for nothing, and so is welcome everywhere."""

    def fault(self, value: float) -> str | None:
        """Say what is wrong with a number, or nothing."""
        if self.at_least is not None and value < self.at_least:
            return f"is {value}, expected {self.at_least} or more"
        if self.above is not None and value <= self.above:
            return f"is {value}, expected more than {self.above}"
        if self.at_most is not None and value > self.at_most:
            return f"is {value}, expected {self.at_most} or less"
        if self.below is not None and value >= self.below:
            return f"is {value}, expected less than {self.below}"
        return None


def knob(default: Any, **limits: Any) -> Any:
    """Make a dataclass field with a default and `Limits`."""
    return field(default=default, metadata={"limits": Limits(**limits)})


def mapping_knob(make: Callable[[], Any], **limits: Any) -> Any:
    """Make a dataclass field whose default is made anew for every instance."""
    return field(default_factory=make, metadata={"limits": Limits(**limits)})
