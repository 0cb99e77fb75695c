"""Document: what the JSON documents of a run have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from pytest_aorta.reporting.hints import Hint, Severity


class Document(BaseModel):
    """A part of a document: strict, frozen, without unknown keys, NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class HintPart(Document):
    """What the first cause probably comes from; never a verdict."""

    key: str
    severity: Severity
    cause: str
    next_step: str
    source: str


def hint_part(hint: Hint | None) -> HintPart | None:
    """Give a hint as documents have it."""
    if hint is None:
        return None
    return HintPart(
        key=hint.key, severity=hint.severity, cause=hint.cause, next_step=hint.next_step, source=hint.source
    )
