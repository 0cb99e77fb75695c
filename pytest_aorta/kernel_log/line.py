"""Line: one record of a kernel log, as a host's node program read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One record: `stamp_s` since boot, `text` without what dmesg puts before it."""

    stamp_s: float
    facility: str
    level: str
    text: str

    @property
    def from_kernel(self) -> bool:
        """Tell whether the kernel wrote the record; programs may write to the kernel log too."""
        return self.facility in ("kern", "")
