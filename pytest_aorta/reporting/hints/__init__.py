"""Hints: from the words of a failure to what it probably comes from and what to try next."""

from pytest_aorta.reporting.hints.hint import Hint, Severity
from pytest_aorta.reporting.hints.table import HINTS, find

__all__ = ["HINTS", "Hint", "Severity", "find"]
