"""Excel: the reports that the analysis script of a checkout wrote with TraceLens, one workbook a rank."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import openpyxl
from openpyxl.utils.exceptions import InvalidFileException

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.sources.rows import TIME_MS, TYPE, times_us
from pytest_aorta.trace.sources.workbooks import rank_of
from pytest_aorta.trace.summary import RankSummary

SHEETS = ("gpu_timeline", "GPU Timeline")
_MAX_ROWS = 1000
_MAX_BYTES = 1 << 30
_UNREADABLE = (zipfile.BadZipFile, InvalidFileException, ParseError, KeyError, ValueError, TypeError, EOFError, OSError)


def summarize_file(path: Path, name: str) -> tuple[RankSummary, ...]:
    """Summarize one workbook, which is called `name`; its rank is that of its file name.

    Raises:
        TraceError: it cannot be read, is of no single rank, or has not the rows that are needed.
    """
    rank = rank_of(path)
    if rank is None:
        raise TraceError(f"{name}: is no report of one rank; expected a name like perf_rank0.xlsx")
    times: dict[str, Any] = dict(times_us(_read_rows(path, name), name))
    total_time_us = times.pop("total_time_us")
    return (
        RankSummary(
            rank=rank,
            device=None,
            files=(name,),
            source="excel",
            world_size=None,
            start_ns=0,
            end_ns=0,
            total_time_us=total_time_us,
            **times,
        ),
    )


def _read_rows(path: Path, name: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
                raise TraceError(f"{name}: holds more than {_MAX_BYTES >> 30} GiB; expected the tables of one rank")
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles that a workbook lacks
            with closing(openpyxl.load_workbook(file, read_only=True, data_only=True)) as book:
                sheet = next((title for title in SHEETS if title in book.sheetnames), None)
                if sheet is None:
                    there = ", ".join(book.sheetnames)
                    raise TraceError(f"{name}: has no sheet {' or '.join(SHEETS)}; there is {there}")
                table = list(book[sheet].iter_rows(max_row=_MAX_ROWS, values_only=True))
    except _UNREADABLE as error:
        raise TraceError(f"{name}: is no Excel workbook that can be read ({error or type(error).__name__})") from error
    return dict(_named(table, f"{name}: sheet {sheet}"))


def _named(table: list[tuple[Any, ...]], where: str) -> Iterator[tuple[str, Any]]:
    head = list(table[0]) if table else []
    if TYPE not in head or TIME_MS not in head:
        there = ", ".join(str(title) for title in head if title is not None) or "nothing"
        raise TraceError(f"{where} has no columns {TYPE!r} and {TIME_MS!r}; there is {there}")
    for row in table[1:]:
        if row[head.index(TYPE)] is not None:
            yield str(row[head.index(TYPE)]), row[head.index(TIME_MS)]
