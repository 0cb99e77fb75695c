"""Margin: by how much a value keeps its limit or breaks it."""

from __future__ import annotations

import math

from pytest_aorta.checks import GateKind


def margin(kind: GateKind, actual: float | None, limit: float, tolerance: float | None = None) -> str:
    """Say by how much a value keeps a limit (left) or breaks it (over, under): percent of it, or of the tolerance."""
    if actual is None:
        return "not measured"
    if kind == "within":
        room, whole = (tolerance or 0.0) - abs(actual - limit), tolerance or 0.0
    else:
        room, whole = (limit - actual if kind == "max" else actual - limit), abs(limit)
    broken = "under" if kind == "min" else "over"
    if not whole or not math.isfinite(room / whole):
        return "at the limit" if room == 0 else "inside" if room > 0 else f"{broken} the limit"
    percent = abs(room / whole) * 100
    shown = f"{percent:.1f}" if percent < 1000 else f"{percent:,.0f}"
    return f"{shown} % {'left' if room >= 0 else broken}"
