"""Metric: a measured quantity with its unit and its source."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RankValue(BaseModel):
    """What one rank contributed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rank: int
    value: float | None


class Metric(BaseModel):
    """One quantity of a run, as in metrics.json; `value` is None when it was not measured, `why` then says so."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    value: float | None
    unit: str
    source: str
    per_rank: tuple[RankValue, ...] = ()
    why: str = ""
