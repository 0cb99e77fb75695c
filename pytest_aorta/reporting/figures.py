"""Figures: numbers as shapes, for a template that writes them as SVG.

A figure is complete without style sheets and scripts: every colour and size is an attribute, words take the page's own
colour, and each mark that means one thing carries its words as a title.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Tag = Literal["rect", "path", "line", "circle", "text"]
Attributes = Mapping[str, str | float]
Scale = Callable[[float], float]

BLUE, GREEN, ORANGE, RED, GREY, PURPLE = "#2f6fbf", "#2e7d32", "#c25700", "#c62828", "#8a929b", "#7b4bb3"
SERIES_COLOURS = (BLUE, GREEN, ORANGE, PURPLE)
MISSING = "#f4f4f4"
MAX_MARKED_POINTS = 64
MAX_POINTS = 512
MAX_TITLED_CELLS = 512
MAX_HOST_ROWS = 16
HOSTS_A_BAND = 64
OUTLYING = 0.05
MAX_OUTLIERS = 20
_TEXT: Attributes = {"font-size": 12, "font-family": "system-ui, sans-serif", "fill": "currentColor"}
_CHAR_WIDTH = 7


@dataclass(frozen=True, slots=True)
class Mark:
    """One shape: an SVG element with its attributes; `title` says what it shows, `text` is what a text element says."""

    tag: Tag
    attributes: Attributes
    title: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with the words that stand for it where it cannot be seen."""

    width: int
    height: int
    label: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of a line chart; `low` and `high` make a band around it where several values share a point."""

    label: str
    colour: str
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


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


def gate_bar(kind: str, actual: float | None, limit: float, tolerance: float | None, *, colour: str) -> Figure:
    """Draw a value as a bar from 0 with its limit marked, and by how much it keeps or breaks it."""
    width, height, room = 300, 24, 180
    top = max(abs(limit) + (tolerance or 0.0), abs(actual or 0.0)) * 1.15 or 1.0
    told = margin(kind, actual, limit, tolerance)
    at = _px(abs(limit) / top * room)
    marks = [Mark("rect", {"x": 0, "y": 6, "width": room, "height": 12, "fill": "#8a929b", "fill-opacity": 0.18})]
    if actual is not None:
        length = max(2.0, _px(abs(actual) / top * room))
        marks.append(
            Mark("rect", {"x": 0, "y": 6, "width": length, "height": 12, "fill": colour}, f"actual {actual:g}")
        )
    if tolerance is not None:
        wide = {
            "x": at - _px(tolerance / top * room),
            "y": 3,
            "width": max(2.0, _px(2 * tolerance / top * room)),
            "height": 18,
        }
        marks.append(Mark("rect", {**wide, "fill": "none", "stroke": "currentColor"}, f"limit ± {tolerance:g}"))
    marks.append(
        Mark("line", {"x1": at, "y1": 1, "x2": at, "y2": 23, "stroke": "currentColor", "stroke-width": 2.5},
             f"limit {limit:g}")
    )  # fmt: skip
    marks.append(_text(room + 8, 16, told))
    return Figure(
        width, height, f"{told}: actual {'n/a' if actual is None else f'{actual:g}'}, limit {limit:g}", tuple(marks)
    )


def margin(kind: str, actual: float | None, limit: float, tolerance: float | None = None) -> str:
    """Say in percent of the limit by how much a value keeps it (room) or breaks it (over, short)."""
    if actual is None:
        return "not measured"
    room = {
        "max": limit - actual,
        "min": actual - limit,
        "within": (tolerance or 0.0) - abs(actual - limit),
    }[kind]
    if limit == 0:
        return "at the limit" if room == 0 else "inside" if room > 0 else "over the limit"
    share = room / abs(limit) * 100
    return f"{abs(share):.1f} % {'room' if room >= 0 else 'short' if kind == 'min' else 'over'}"


def stage_bar(start: float, seconds: float, total: float, colour: str, label: str) -> Figure:
    """Draw when a stage was under way, as a bar on the time of all of them."""
    width, height = 420, 18
    scale = width / total if total > 0 else 0.0
    x = min(_px(start * scale), width - 2.0)
    length = max(2.0, min(_px(seconds * scale), width - x))
    base = Mark("rect", {"x": 0, "y": 8, "width": width, "height": 2, "fill": "#8a929b", "fill-opacity": 0.35})
    return Figure(
        width,
        height,
        label,
        (base, Mark("rect", {"x": x, "y": 2, "width": length, "height": 14, "fill": colour}, label)),
    )


def line_chart(label: str, x: Sequence[float], lines: Sequence[Line], *, x_label: str, unit: str) -> Figure:
    """Draw series over x from 0; a few points are marked and told one by one, many are drawn as lines and bands."""
    width, height, left, right, top, bottom = 1100, 230, 72, 16, 30, 44
    values = [v for line in lines for v in (*line.y, *line.high) if v is not None]
    ticks = ticks_to(max(values, default=1.0))
    plot_w, plot_h = width - left - right, height - top - bottom
    first, last = (min(x), max(x)) if x else (0, 1)
    span = (last - first) or 1

    def px(value: float) -> float:
        return _px(left + (value - first) / span * plot_w) if last > first else _px(left + plot_w / 2)

    def py(value: float) -> float:
        return _px(top + plot_h - value / ticks[-1] * plot_h)

    marks = [*_axes(ticks, py, left, left + plot_w, top + plot_h)]
    marks += [_text(px(at), top + plot_h + 16, f"{at:g}", anchor="middle") for at in _x_ticks(x)]
    marks.append(_text(left + plot_w / 2, height - 8, x_label, anchor="middle"))
    marks.append(_text(8, 14, unit))
    at_x = float(left + 60)
    for line in lines:
        marks.append(Mark("rect", {"x": at_x, "y": 5, "width": 18, "height": 10, "fill": line.colour}))
        marks.append(_text(at_x + 24, 14, line.label))
        at_x += 24 + len(line.label) * _CHAR_WIDTH + 24
        if line.low and line.high:
            path = _band(x, line.low, line.high, px, py)
            if path:
                marks.append(Mark("path", {"d": path, "fill": line.colour, "fill-opacity": 0.4},
                                  f"{line.label}: least to greatest"))  # fmt: skip
            marks += _outliers(x, line, px, py, x_label=x_label, unit=unit)
        path = _polyline(x, line.y, px, py)
        if path:
            marks.append(
                Mark("path", {"d": path, "fill": "none", "stroke": line.colour, "stroke-width": 2}, line.label)
            )
        if len(x) <= MAX_MARKED_POINTS:
            marks += [
                Mark("circle", {"cx": px(at), "cy": py(value), "r": 3.5, "fill": line.colour},
                     f"{x_label} {at:g}: {line.label} {value:,.2f} {unit}")
                for at, value in zip(x, line.y, strict=True)
                if value is not None
            ]  # fmt: skip
    return Figure(width, height, label, tuple(marks))


def binned(x: Sequence[int], label: str, colour: str, y: Sequence[float | None]) -> tuple[tuple[float, ...], Line]:
    """Give a line as it is drawn: up to 512 points as they are, more in 256 bins with median, least and greatest."""
    if len(x) <= MAX_POINTS:
        return tuple(x), Line(label, colour, y)
    size = math.ceil(len(x) / (MAX_POINTS // 2))
    at, middle, low, high = [], [], [], []
    for start in range(0, len(x), size):
        known = [value for value in y[start : start + size] if value is not None]
        at.append(float(x[start]))
        middle.append(median(known) if known else None)
        low.append(min(known, default=None))
        high.append(max(known, default=None))
    return tuple(at), Line(label, colour, middle, low, high)


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
    marks = [_text(0, at * step + min(size, 14), _cut(name, 20)) for at, name in enumerate(names)]
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


def swatch(colour: str, label: str) -> Figure:
    """Draw a colour of a legend."""
    return Figure(14, 12, label, (Mark("rect", {"x": 0, "y": 0, "width": 14, "height": 12, "fill": colour}),))


def bars(label: str, rows: Sequence[tuple[str, float, str]], *, unit: str) -> Figure:
    """Draw named values as bars below each other."""
    line, left, room = 16, 190, 620
    top = max((value for _, value, _ in rows), default=0.0) or 1.0
    marks = []
    for index, (name, value, colour) in enumerate(rows):
        y = index * line
        marks.append(_text(left - 8, y + 12, _cut(name, 26), anchor="end"))
        length = max(1.0, _px(value / top * room))
        marks.append(Mark("rect", {"x": left, "y": y + 2, "width": length, "height": line - 4, "fill": colour},
                          f"{name}: {value:,.2f} {unit}"))  # fmt: skip
        marks.append(_text(left + length + 6, y + 12, f"{value:,.2f} {unit}"))
    return Figure(left + room + 130, len(rows) * line + 4, label, tuple(marks))


def stacked_columns(label: str, rows: Sequence[tuple[str, Mapping[str, float]]], colours: Mapping[str, str]) -> Figure:
    """Draw where the time of each row went as columns side by side, from 0; every part says what it is."""
    width, height, left, top, bottom = 1100, 240, 72, 14, 34
    ticks = ticks_to(max((sum(parts.values()) for _, parts in rows), default=1.0))
    plot_w, plot_h = width - left - 16, height - top - bottom
    pitch = min(60.0, plot_w / max(1, len(rows)))
    marks = list(
        _axes(ticks, lambda value: _px(top + plot_h - value / ticks[-1] * plot_h), left, left + plot_w, top + plot_h)
    )
    for index, (name, parts) in enumerate(rows):
        whole, base = sum(parts.values()) or 1.0, float(top + plot_h)
        for kind, value in parts.items():
            length = value / ticks[-1] * plot_h
            base -= length
            shape = {
                "x": _px(left + index * pitch + 1),
                "y": _px(base),
                "width": _px(max(1.0, pitch - 2)),
                "height": _px(length),
            }
            told = f"{name}: {kind} {value:,.2f} ms ({value / whole:.1%})"
            if length > 0:
                marks.append(Mark("rect", {**shape, "fill": colours[kind]}, told))
    every = max(1, math.ceil(len(rows) / 16))
    marks += [
        _text(left + (index + 0.5) * pitch, top + plot_h + 16, name.partition(" · ")[0], anchor="middle", size=11)
        for index, (name, _) in enumerate(rows)
        if index % every == 0
    ]
    marks.append(_text(8, 12, "ms"))
    return Figure(width, height, label, tuple(marks))


def stacked_bars(label: str, rows: Sequence[tuple[str, Mapping[str, float]]], colours: Mapping[str, str]) -> Figure:
    """Draw where the time of each row went, as shares of the longest."""
    line, left, room = 18, 190, 760
    top = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    marks = []
    for index, (name, parts) in enumerate(rows):
        y, x = index * line, float(left)
        marks.append(_text(left - 8, y + 13, _cut(name, 26), anchor="end"))
        whole = sum(parts.values()) or 1.0
        for kind, value in parts.items():
            length = _px(value / top * room)
            if length > 0:
                told = f"{name}: {kind} {value:,.2f} ms ({value / whole:.1%})"
                marks.append(Mark("rect", {"x": _px(x), "y": y + 2, "width": length, "height": line - 4,
                                           "fill": colours[kind]}, told))  # fmt: skip
            x += length
        marks.append(_text(x + 6, y + 13, f"{sum(parts.values()):,.2f} ms"))
    return Figure(left + room + 120, len(rows) * line + 4, label, tuple(marks))


def histogram(label: str, values: Sequence[float], *, unit: str, num_bins: int = 40) -> Figure:
    """Draw how many of the values lie where; the axis of counts grows with their root so that a single one is seen."""
    width, height, left, top, bottom = 1100, 170, 72, 22, 40
    low, high = min(values, default=0.0), max(values, default=1.0)
    span = (high - low) or 1.0
    counts = [0] * num_bins
    for value in values:
        counts[min(num_bins - 1, int((value - low) / span * num_bins))] += 1
    plot_w, plot_h = width - left - 16, height - top - bottom
    tallest = math.sqrt(max(counts, default=1) or 1)
    marks = []
    for index, count in enumerate(counts):
        if not count:
            continue
        bar = max(2.0, math.sqrt(count) / tallest * plot_h)
        begin, end = low + index * span / num_bins, low + (index + 1) * span / num_bins
        x = _px(left + index * plot_w / num_bins)
        marks.append(Mark("rect", {"x": x, "y": _px(top + plot_h - bar), "width": _px(plot_w / num_bins - 1),
                                   "height": _px(bar), "fill": BLUE},
                          f"{begin:,.2f} to {end:,.2f} {unit}: {count} ranks"))  # fmt: skip
        marks.append(
            _text(x + plot_w / num_bins / 2, _px(top + plot_h - bar - 4), str(count), anchor="middle", size=10)
        )
    marks.append(Mark("line", {"x1": left, "y1": top + plot_h, "x2": left + plot_w, "y2": top + plot_h,
                               "stroke": "currentColor"}))  # fmt: skip
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        marks.append(
            _text(left + share * plot_w, top + plot_h + 16, f"{low + share * span:,.2f} {unit}", anchor=anchor)
        )
    marks.append(
        _text(left + plot_w / 2, height - 6, "ranks in each range (bar heights grow with the root)", anchor="middle")
    )
    return Figure(width, height, label, tuple(marks))


def ticks_to(top: float) -> tuple[float, ...]:
    """Give round numbers from 0 to at least `top`, four to six of them."""
    if not top > 0:
        return (0.0, 1.0)
    raw = top / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return tuple(step * index for index in range(math.ceil(top / step - 1e-9) + 1))


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours of a figure mean."""

    entries: tuple[tuple[Figure, str], ...] = ()

    @classmethod
    def of(cls, colours: Iterable[tuple[str, str]]) -> Legend:
        """Make a legend of (colour, words)."""
        return cls(tuple((swatch(colour, words), words) for colour, words in colours))


NO_LEGEND = Legend()


def _axes(ticks: Sequence[float], py: Scale, left: int, right: float, base: float) -> Iterable[Mark]:
    for tick in ticks:
        y = py(tick)
        yield Mark("line", {"x1": left, "y1": y, "x2": right, "y2": y, "stroke": "#8a929b", "stroke-opacity": 0.35})
        yield _text(left - 8, y + 4, f"{tick:,g}", anchor="end")
    yield Mark("line", {"x1": left, "y1": base, "x2": right, "y2": base, "stroke": "currentColor"})


def _x_ticks(x: Sequence[float]) -> list[float]:
    step = max(1, math.ceil(len(x) / 16))
    return list(x[::step])


def _polyline(x: Sequence[float], y: Sequence[float | None], px: Scale, py: Scale) -> str:
    """Give a path through the values, broken where one is missing."""
    parts, pen_up = [], True
    for at, value in zip(x, y, strict=True):
        if value is None:
            pen_up = True
            continue
        parts.append(f"{'M' if pen_up else 'L'}{px(at):g} {py(value):g}")
        pen_up = False
    return "".join(parts)


def _band(x: Sequence[float], low: Sequence[float | None], high: Sequence[float | None], px: Scale, py: Scale) -> str:
    known = [(at, lo, hi) for at, lo, hi in zip(x, low, high, strict=True) if lo is not None and hi is not None]
    if not known:
        return ""
    there = "L".join(f"{px(at):g} {py(hi):g}" for at, _, hi in known)
    back = "L".join(f"{px(at):g} {py(lo):g}" for at, lo, _ in reversed(known))
    return f"M{there}L{back}Z"


def _outline(colour: str) -> Attributes:
    return {"stroke": GREY, "stroke-dasharray": "2 2"} if colour == MISSING else {}


def _outliers(x: Sequence[float], line: Line, px: Scale, py: Scale, *, x_label: str, unit: str) -> Iterable[Mark]:
    """Mark what lies so far from its bin's median that a thin band would hide it."""
    found = [
        (abs(end - middle), at, end)
        for at, middle, *ends in zip(x, line.y, line.low, line.high, strict=True)
        for end in ends
        if end is not None and middle and abs(end - middle) > OUTLYING * middle
    ]
    for _, at, end in sorted(found, reverse=True)[:MAX_OUTLIERS]:
        title = f"{x_label} {at:g} and on: {line.label} {end:,.2f} {unit}"
        yield Mark("circle", {"cx": px(at), "cy": py(end), "r": 3.5, "fill": "none", "stroke": line.colour}, title)


def _band_name(names: Sequence[str], band: int, columns: int) -> str:
    part = names[band * columns : (band + 1) * columns]
    return "" if not part else part[0] if len(part) == 1 else f"{part[0]} …"


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> Mark:
    return Mark("text", {**_TEXT, "font-size": size, "x": _px(x), "y": _px(y), "text-anchor": anchor}, text=text)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _px(value: float) -> float:
    return round(value, 1)
