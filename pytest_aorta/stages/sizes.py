"""Sizes: which files are too large to be brought back, and how much the others are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_aorta.node.archives import SIZE_LIMIT_BYTES

NARROW = "if it is no trace, narrow workload.traces"

Entries = Sequence[Mapping[str, Any]]


def too_large(entries: Entries) -> str:
    """Name the first file that no archive of ours may hold, with its size; nothing where there is none."""
    large = [entry for entry in entries if not fits(entry)]
    if not large:
        return ""
    more = f" and {len(large) - 1} more" if large[1:] else ""
    return f"{_named(large[0])}{more}: at most {_bytes(SIZE_LIMIT_BYTES)} are brought back; {NARROW}"


def fits(entry: Mapping[str, Any]) -> bool:
    """Tell whether a file can be brought back at all."""
    return int(entry["size"]) <= SIZE_LIMIT_BYTES


def amount(entries: Entries) -> str:
    """Say how much files are together, and name the largest."""
    largest = max(entries, key=lambda entry: int(entry["size"]))
    noun = "file" if len(entries) == 1 else "files"
    total = _bytes(sum(int(entry["size"]) for entry in entries))
    return f"{len(entries)} {noun} of {total}, the largest {_named(largest)}"


def _named(entry: Mapping[str, Any]) -> str:
    return f"{entry['path']} ({_bytes(int(entry['size']))})"


def _bytes(number: int) -> str:
    return f"{number / 2**30:.0f} GiB" if number >= 2**30 else f"{number / 2**20:.1f} MiB"
