"""What was marked in one step, to be read once the device is through with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aorta_train.clock import Clock
from aorta_train.overlap import Range, overlap_of


@dataclass
class Recording:
    """Ranges and markers between two marks; nothing here waits for the device before `read`."""

    clock: Clock
    index: int
    measured: Sequence[str]
    begin: Any
    end: Any = None
    ranges: list[tuple[str, str, Any, Any, dict[str, Any]]] = field(default_factory=list)
    markers: list[tuple[str, str, Any, dict[str, Any]]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    """What must outlive the collectives of this step."""

    def read(self) -> dict[str, Any]:
        """Give times in ms since the beginning of the step; waits for the end of the step."""
        total_ms = self.clock.elapsed_ms(self.begin, self.end)
        ranges = [
            Range(stream, tag, self._since_begin(begin), self._since_begin(end), metadata)
            for stream, tag, begin, end, metadata in self.ranges
        ]
        self.kept.clear()
        return {
            "index": self.index,
            "total_ms": round(total_ms, 4),
            "ranges": [
                {
                    "stream": one.stream,
                    "tag": one.tag,
                    "start_ms": round(one.start_ms, 4),
                    "end_ms": round(one.end_ms, 4),
                    "duration_ms": round(one.end_ms - one.start_ms, 4),
                    "metadata": one.metadata,
                }
                for one in ranges
            ],
            "markers": [
                {"stream": stream, "tag": tag, "time_ms": round(self._since_begin(mark), 4), "metadata": metadata}
                for stream, tag, mark, metadata in self.markers
            ],
            "overlap": overlap_of(ranges, total_ms, self.measured),
        }

    def _since_begin(self, mark: Any) -> float:
        return self.clock.elapsed_ms(self.begin, mark)
