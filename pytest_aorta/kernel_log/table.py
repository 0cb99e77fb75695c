"""The table: every family of rows, in the order in which a line is shown to them; the first match decides.

The drivers come before the hardware below them, PCIe slots before network links ("Link Down" is said of both), and the
fallbacks last. docs/kernel-log.md lists the classes.
"""

from __future__ import annotations

import re

from pytest_aorta.kernel_log.amd import AMD
from pytest_aorta.kernel_log.hardware import HARDWARE
from pytest_aorta.kernel_log.network import NETWORK
from pytest_aorta.kernel_log.nvidia import NVIDIA
from pytest_aorta.kernel_log.system import CRASHES, MEMORY, OTHER, STORAGE
from pytest_aorta.kernel_log.verdict import Family, Row

FAMILIES: tuple[Family, ...] = (NVIDIA, AMD, HARDWARE, CRASHES, MEMORY, STORAGE, NETWORK, OTHER)

# The kernel itself cuts a record near 1,000 characters; the bound keeps the cost of a hostile line small.
_MAX_TEXT_CHARS = 2048


def find_row(text: str) -> tuple[Row, re.Match[str]] | None:
    """Give the first row that knows the text, with its match; None when no row does."""
    text = text[:_MAX_TEXT_CHARS]
    lowered = text.lower()
    for family in FAMILIES:
        found = family.find(text, lowered)
        if found is not None:
            return found
    return None
