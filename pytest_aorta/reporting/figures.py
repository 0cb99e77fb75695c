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
MAX_MARKED_POINTS = 64
MAX_POINTS = 512
OUTLYING = 0.1
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


def line_chart(label: str, x: Sequence[float], lines: Sequence[Line], *, x_label: str, unit: str) -> Figure:
    """Draw series over x from 0; a few points are marked and told one by one, many are drawn as lines and bands."""
    width, height, left, right, top, bottom = 1100, 230, 72, 16, 30, 44
    values = [v for line in lines for v in (*line.y, *line.high) if v is not None]
    ticks = ticks_to(max(values, default=1.0))
    plot_w, plot_h = width - left - right, height - top - bottom
    first, last = (min(x), max(x)) if x else (0, 1)
    span = (last - first) or 1

    def px(value: float) -> float:
        return pixels(left + (value - first) / span * plot_w) if last > first else pixels(left + plot_w / 2)

    def py(value: float) -> float:
        return pixels(top + plot_h - value / ticks[-1] * plot_h)

    marks = [*axes(ticks, py, left, left + plot_w, top + plot_h)]
    marks += [text(px(at), top + plot_h + 16, f"{at:g}", anchor="middle") for at in _x_ticks(x)]
    marks.append(text(left + plot_w / 2, height - 8, x_label, anchor="middle"))
    marks.append(text(8, 14, unit))
    at_x = float(left + 60)
    for line in lines:
        marks.append(Mark("rect", {"x": at_x, "y": 5, "width": 18, "height": 10, "fill": line.colour}))
        marks.append(text(at_x + 24, 14, line.label))
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


def swatch(colour: str, label: str) -> Figure:
    """Draw a colour of a legend."""
    return Figure(14, 12, label, (Mark("rect", {"x": 0, "y": 0, "width": 14, "height": 12, "fill": colour}),))


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


def axes(ticks: Sequence[float], py: Scale, left: int, right: float, base: float) -> Iterable[Mark]:
    """Draw the lines of an axis of values with their numbers, and the base line."""
    for tick in ticks:
        y = py(tick)
        yield Mark("line", {"x1": left, "y1": y, "x2": right, "y2": y, "stroke": "#8a929b", "stroke-opacity": 0.35})
        yield text(left - 8, y + 4, f"{tick:,g}", anchor="end")
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


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12) -> Mark:
    """Make a text in the page's own colour."""
    return Mark("text", {**_TEXT, "font-size": size, "x": pixels(x), "y": pixels(y), "text-anchor": anchor}, text=words)


def cut(words: str, max_chars: int) -> str:
    """Give words no longer than there is room for."""
    return words if len(words) <= max_chars else words[: max_chars - 1] + "…"


def pixels(value: float) -> float:
    """Give a place or a length as it is written."""
    return round(value, 1)
