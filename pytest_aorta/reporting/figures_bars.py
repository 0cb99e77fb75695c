"""Bars: a value against its limit, stages in time, ranks beside each other, and how values are spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_aorta.checks import GateKind
from pytest_aorta.reporting.figures import BLUE, Figure, Mark, axes, cut, pixels, text, ticks_to
from pytest_aorta.reporting.margin import margin


def gate_bar(kind: GateKind, actual: float | None, limit: float, tolerance: float | None, *, colour: str) -> Figure:
    """Draw a value as a bar from 0 with its limit marked, and by how much it keeps or breaks it."""
    width, height, room = 300, 24, 180
    top = max(abs(limit) + (tolerance or 0.0), abs(actual or 0.0)) * 1.15 or 1.0
    told = margin(kind, actual, limit, tolerance)
    at = pixels(abs(limit) / top * room)
    marks = [Mark("rect", {"x": 0, "y": 6, "width": room, "height": 12, "fill": "#8a929b", "fill-opacity": 0.18})]
    if actual is not None:
        length = max(2.0, pixels(abs(actual) / top * room))
        marks.append(
            Mark("rect", {"x": 0, "y": 6, "width": length, "height": 12, "fill": colour}, f"actual {actual:g}")
        )
    if tolerance is not None:
        wide = {
            "x": at - pixels(tolerance / top * room),
            "y": 3,
            "width": max(2.0, pixels(2 * tolerance / top * room)),
            "height": 18,
        }
        marks.append(Mark("rect", {**wide, "fill": "none", "stroke": "currentColor"}, f"limit ± {tolerance:g}"))
    marks.append(
        Mark("line", {"x1": at, "y1": 1, "x2": at, "y2": 23, "stroke": "currentColor", "stroke-width": 2.5},
             f"limit {limit:g}")
    )  # fmt: skip
    marks.append(text(room + 8, 16, told))
    return Figure(
        width, height, f"{told}: actual {'n/a' if actual is None else f'{actual:g}'}, limit {limit:g}", tuple(marks)
    )


def stage_bar(start: float, seconds: float, total: float, colour: str, label: str) -> Figure:
    """Draw when a stage was under way, as a bar on the time of all of them."""
    width, height = 420, 18
    scale = width / total if total > 0 else 0.0
    x = min(pixels(start * scale), width - 2.0)
    length = max(2.0, min(pixels(seconds * scale), width - x))
    base = Mark("rect", {"x": 0, "y": 8, "width": width, "height": 2, "fill": "#8a929b", "fill-opacity": 0.35})
    return Figure(
        width,
        height,
        label,
        (base, Mark("rect", {"x": x, "y": 2, "width": length, "height": 14, "fill": colour}, label)),
    )


def bars(label: str, rows: Sequence[tuple[str, float, str]], *, unit: str) -> Figure:
    """Draw named values as bars below each other."""
    line, left, room = 16, 190, 620
    top = max((value for _, value, _ in rows), default=0.0) or 1.0
    marks = []
    for index, (name, value, colour) in enumerate(rows):
        y = index * line
        marks.append(text(left - 8, y + 12, cut(name, 26), anchor="end"))
        length = max(1.0, pixels(value / top * room))
        marks.append(Mark("rect", {"x": left, "y": y + 2, "width": length, "height": line - 4, "fill": colour},
                          f"{name}: {value:,.2f} {unit}"))  # fmt: skip
        marks.append(text(left + length + 6, y + 12, f"{value:,.2f} {unit}"))
    return Figure(left + room + 130, len(rows) * line + 4, label, tuple(marks))


def stacked_columns(label: str, rows: Sequence[tuple[str, Mapping[str, float]]], colours: Mapping[str, str]) -> Figure:
    """Draw where the time of each row went as columns side by side, from 0; every part says what it is."""
    width, height, left, top, bottom = 1100, 248, 72, 24, 34
    ticks = ticks_to(max((sum(parts.values()) for _, parts in rows), default=1.0))
    plot_w, plot_h = width - left - 16, height - top - bottom
    pitch = min(60.0, plot_w / max(1, len(rows)))
    marks = list(
        axes(ticks, lambda value: pixels(top + plot_h - value / ticks[-1] * plot_h), left, left + plot_w, top + plot_h)
    )
    for index, (name, parts) in enumerate(rows):
        whole, base = sum(parts.values()) or 1.0, float(top + plot_h)
        for kind, value in parts.items():
            length = value / ticks[-1] * plot_h
            base -= length
            shape = {
                "x": pixels(left + index * pitch + 1),
                "y": pixels(base),
                "width": pixels(max(1.0, pitch - 2)),
                "height": pixels(length),
            }
            told = f"{name}: {kind} {value:,.2f} ms ({value / whole:.1%})"
            if length > 0:
                marks.append(Mark("rect", {**shape, "fill": colours[kind]}, told))
    every = max(1, math.ceil(len(rows) / 16))
    marks += [
        text(left + (index + 0.5) * pitch, top + plot_h + 16, name.partition(" · ")[0], anchor="middle", size=11)
        for index, (name, _) in enumerate(rows)
        if index % every == 0
    ]
    marks.append(text(8, 12, "ms"))
    return Figure(width, height, label, tuple(marks))


def stacked_bars(label: str, rows: Sequence[tuple[str, Mapping[str, float]]], colours: Mapping[str, str]) -> Figure:
    """Draw where the time of each row went, as shares of the longest."""
    line, left, room = 18, 190, 760
    top = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    marks = []
    for index, (name, parts) in enumerate(rows):
        y, x = index * line, float(left)
        marks.append(text(left - 8, y + 13, cut(name, 26), anchor="end"))
        whole = sum(parts.values()) or 1.0
        for kind, value in parts.items():
            length = pixels(value / top * room)
            if length > 0:
                told = f"{name}: {kind} {value:,.2f} ms ({value / whole:.1%})"
                marks.append(Mark("rect", {"x": pixels(x), "y": y + 2, "width": length, "height": line - 4,
                                           "fill": colours[kind]}, told))  # fmt: skip
            x += length
        marks.append(text(x + 6, y + 13, f"{sum(parts.values()):,.2f} ms"))
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
        x = pixels(left + index * plot_w / num_bins)
        marks.append(Mark("rect", {"x": x, "y": pixels(top + plot_h - bar), "width": pixels(plot_w / num_bins - 1),
                                   "height": pixels(bar), "fill": BLUE},
                          f"{begin:,.2f} to {end:,.2f} {unit}: {count} ranks"))  # fmt: skip
        marks.append(
            text(x + plot_w / num_bins / 2, pixels(top + plot_h - bar - 4), str(count), anchor="middle", size=10)
        )
    marks.append(Mark("line", {"x1": left, "y1": top + plot_h, "x2": left + plot_w, "y2": top + plot_h,
                               "stroke": "currentColor"}))  # fmt: skip
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        marks.append(text(left + share * plot_w, top + plot_h + 16, f"{low + share * span:,.2f} {unit}", anchor=anchor))
    marks.append(
        text(left + plot_w / 2, height - 6, "ranks in each range (bar heights grow with the root)", anchor="middle")
    )
    return Figure(width, height, label, tuple(marks))
