"""What a metric's name tells: its unit, the values it can take, how it is written."""

from __future__ import annotations

import math

_SHARES = frozenset(
    {
        "avg_compute_ratio",
        "avg_comm_ratio",
        "avg_overlap_ratio",
        "true_overlap_ratio",
        "hidden_transfer_ratio",
        "gpu_idle_ratio",
        "host_wait_ratio",
        "matched_ratio",
    }
)
_SIGNED = frozenset({"loss", "final_loss"})
_STATISTICS = ("_median", "_p95", "_max", "_min", "_mean")
_UNIT_ENDINGS = {"_ms": "ms", "_us": "us", "_ns": "ns", "_s": "s", "_bytes": "bytes", "_gbps": "GB/s"}

_SPOKEN = {
    "avg_iteration_time_ms": "mean time of a trace",
    "avg_compute_ratio": "mean compute ratio",
    "avg_overlap_ratio": "mean overlap ratio",
    "time_variance_ratio": "time variance ratio",
}


def unit_of(name: str) -> str:
    """Give the unit that a metric's name ends with, empty for ratios and counts."""
    stem = _stem(name)
    return next((unit for ending, unit in _UNIT_ENDINGS.items() if stem.endswith(ending)), "")


def range_of(name: str) -> tuple[float, float]:
    """Give the least and the greatest value that the metric can take by its definition."""
    stem = _stem(name)
    if stem in _SHARES:
        return 0.0, 1.0
    return (-math.inf, math.inf) if stem in _SIGNED else (0.0, math.inf)


def speak(name: str) -> str:
    """Give the words for the metric in a sentence: those of the documented ones, else its name."""
    return _SPOKEN.get(name, name)


def write_value(name: str, value: float, unit: str) -> str:
    """Write a measured value: ratios as percent, everything else with its unit, two decimals; counts as they are."""
    if _stem(name).endswith("_ratio"):
        return f"{value:.2%}"
    if unit:
        return f"{value:.2f} {unit}"
    return _plain(value) if value == int(value) else f"{value:.2f}"


def write_limit(name: str, limit: float, unit: str) -> str:
    """Write a limit: ratios as percent, everything else as it was given, with its unit."""
    if _stem(name).endswith("_ratio"):
        return f"{limit:.2%}"
    return f"{_plain(limit)} {unit}" if unit else _plain(limit)


def _stem(name: str) -> str:
    """Take the statistic off: `step_time_ms_p95` is a time in ms like `step_time_ms`."""
    return next((name.removesuffix(ending) for ending in _STATISTICS if name.endswith(ending)), name)


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else repr(value)
