"""Defects: the one edge at which an error that nobody foresaw becomes words instead of ending the session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger("pytest_aorta")

T = TypeVar("T")


def guarded(what: str, do: Callable[[], T], instead: Callable[[Exception], T]) -> T:
    """Give what `do` gives, or what `instead` makes of the error that it raised, whatever that is; the log has both."""
    try:
        return do()
    except Exception as error:
        log.exception("%s: unexpected", what)
        return instead(error)
