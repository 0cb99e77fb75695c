"""Grids: a cell for each rank, coloured by its share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_aorta.reporting.figures import GREY, Attributes, Figure, Mark, cut, text

MISSING = "#f4f4f4"
MAX_TITLED_CELLS = 512
MAX_HOST_ROWS = 16
HOSTS_A_BAND = 64


@dataclass(frozen=True, slots=True)
class Band:
    """A colour of a grid for shares up to `below`."""

    below: float
    colour: str
    label: str


DEVIATION = (
    Band(-0.10, "#2166ac", "more than 10 % below"),
    Band(-0.03, "#92c5de", "3 to 10 % below"),
    Band(0.03, "#d5d9dd", "within 3 %"),
    Band(0.10, "#fdbb6f", "3 to 10 % above"),
    Band(0.25, "#e6550d", "10 to 25 % above"),
    Band(math.inf, "#8c0d25", "more than 25 % above"),
)
SHARE = (
    Band(0.01, "#d5d9dd", "below 1 %"),
    Band(0.03, "#fee0b6", "1 to 3 %"),
    Band(0.10, "#fdbb6f", "3 to 10 %"),
    Band(0.25, "#e6550d", "10 to 25 %"),
    Band(math.inf, "#8c0d25", "more than 25 %"),
)


def grid(
    label: str,
    shares: Sequence[float | None],
    titles: Sequence[str],
    *,
    rows: int,
    bands: Sequence[Band],
    hosts: Sequence[str],
) -> Figure:
    """Draw a cell for each rank, its colour by its share; `shares` and `titles` are in rank order, host by host.

    Up to 16 hosts each is a row with its name; more stand side by side, 64 a band, local ranks below each other. Above
    512 ranks the cells of one colour are one shape without titles.
    """
    rows = max(1, rows)
    num_hosts = math.ceil(len(shares) / rows)
    is_row = num_hosts <= MAX_HOST_ROWS
    columns = rows if is_row else HOSTS_A_BAND
    size = max(8, min(22, 900 // columns))
    pitch, left, band_height = size + 1, 150, rows * (size + 1) + 8
    cells: list[tuple[int, int, str]] = []
    for index, share in enumerate(shares):
        host, local = divmod(index, rows)
        band, column = divmod(host, columns)
        x, y = (local * pitch, host * pitch) if is_row else (column * pitch, band * band_height + local * pitch)
        cells.append((left + x, y, MISSING if share is None else next(b.colour for b in bands if share <= b.below)))
    num_bands = math.ceil(num_hosts / columns)
    names = list(hosts[:num_hosts]) if is_row else [_band_name(hosts, band, columns) for band in range(num_bands)]
    step = pitch if is_row else band_height
    marks = [text(0, at * step + min(size, 14), cut(name, 20)) for at, name in enumerate(names)]
    if len(shares) <= MAX_TITLED_CELLS:
        marks += [
            Mark("rect", {"x": x, "y": y, "width": size, "height": size, "fill": colour, **_outline(colour)}, title)
            for (x, y, colour), title in zip(cells, titles, strict=True)
        ]
    else:
        for colour in dict.fromkeys(cell[2] for cell in cells):
            own = [f"M{x} {y}h{size}v{size}h-{size}z" for x, y, its in cells if its == colour]
            told = next((band.label for band in bands if band.colour == colour), "not measured")
            marks.append(
                Mark("path", {"d": "".join(own), "fill": colour, **_outline(colour)}, f"{told}: {len(own)} ranks")
            )
    return Figure(left + columns * pitch, (num_hosts if is_row else num_bands) * step, label, tuple(marks))


def _outline(colour: str) -> Attributes:
    return {"stroke": GREY, "stroke-dasharray": "2 2"} if colour == MISSING else {}


def _band_name(names: Sequence[str], band: int, columns: int) -> str:
    part = names[band * columns : (band + 1) * columns]
    return "" if not part else part[0] if len(part) == 1 else f"{part[0]} …"
