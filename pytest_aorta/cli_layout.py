"""How the console script lays text out: tables, wrapped sentences and cut lines, as wide as the terminal is."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

UNKNOWN_WIDTH = 80
WIDEST_TEXT = 100
WIDEST_LINE = 240


def terminal_width() -> int:
    """Give the terminal's columns (COLUMNS, else what the terminal says), 80 when there is none."""
    return shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns


def line_width() -> int:
    """Give the width that lines of a list are cut to: the terminal's; in a pipe or file they may be longer."""
    return terminal_width() if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDEST_LINE


def text_width() -> int:
    """Give the width of running text: the terminal's, and no more than is read with ease."""
    return min(terminal_width(), WIDEST_TEXT)


def wrapped(text: str, *, indent: int = 2) -> Iterator[str]:
    """Give a sentence in lines of the text's width, the second and later ones indented; names are never cut."""
    yield from textwrap.wrap(
        text, text_width(), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def cut(line: str, width: int) -> str:
    """Give a line of at most `width` characters, with an ellipsis where something is missing."""
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lay cells out in right-aligned columns; a heading may have several lines, which stand at the bottom.

    Columns stand two blanks apart, or one where the text's width asks for it.
    """
    stacked = [heading.split("\n") for heading in headings]
    depth = max(map(len, stacked))
    above = [[""] * (depth - len(lines)) + lines for lines in stacked]
    cells = [*([lines[row] for lines in above] for row in range(depth)), *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= text_width() else " "
    for row in cells:
        yield gap.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
