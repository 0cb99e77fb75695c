"""Rows: TraceLens' `gpu_timeline` table, looked up by name, as a rank's times.

Source: TraceLens' GPUEventAnalyser, which gives the columns `type` and `time ms`; its rows vary by version.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytest_aorta.errors import TraceError

TYPE, TIME_MS = "type", "time ms"

_NEEDED = {
    "total_time": "total_time_us",
    "computation_time": "computation_time_us",
    "exposed_comm_time": "exposed_comm_time_us",
    "total_comm_time": "total_comm_time_us",
}
_WHERE_GIVEN = {
    "exposed_memcpy_time": "exposed_memcpy_time_us",
    "busy_time": "busy_time_us",
    "idle_time": "idle_time_us",
    "total_memcpy_time": "total_memcpy_time_us",
}


def times_us(rows: Mapping[str, Any], where: str) -> dict[str, float]:
    """Give the times of a table in µs by the names of RankSummary; `rows` holds `time ms` by `type`.

    Raises:
        TraceError: a row is missing, or a time is no finite number from 0; the sentence begins with `where`.
    """
    missing = [name for name in _NEEDED if name not in rows]
    if missing:
        there = ", ".join(rows) or "no row"
        raise TraceError(f"{where}: has no row {', '.join(missing)} in its GPU timeline; there is {there}")
    known = {name: field for name, field in (_NEEDED | _WHERE_GIVEN).items() if name in rows}
    return {field: _time_us(rows[name], f"{where}: {name}") for name, field in known.items()}


def _time_us(value: Any, where: str) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise TraceError(f"{where} is {value!r}; expected a time in ms, 0 or more")
    return float(value) * 1000
