"""Workbooks: which files of an analysis folder are TraceLens' reports of single ranks."""

from __future__ import annotations

import re
from pathlib import Path

_WORKBOOK = re.compile(r"perf_(?:.*ch_)?rank_?(\d{1,9})\.xlsx")


def find_workbooks(folder: Path) -> list[Path]:
    """Give the reports of single ranks in a folder (`perf_rank*.xlsx`, `perf_*ch_rank*.xlsx`), by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if rank_of(path) is not None and path.is_file())


def rank_of(path: Path) -> int | None:
    """Give the rank that a report's name tells; None for reports of all ranks and for other files."""
    found = _WORKBOOK.fullmatch(path.name)
    return int(found[1]) if found else None
