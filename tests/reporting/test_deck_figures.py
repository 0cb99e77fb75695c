"""Figures: where the marks stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.checks import GateKind
from pytest_aorta.reporting import figures_bars, figures_grid
from pytest_aorta.reporting.figures import Figure, Line, Mark, binned, line_chart, ticks_to
from pytest_aorta.reporting.figures_bars import gate_bar
from pytest_aorta.reporting.figures_grid import DEVIATION, grid
from pytest_aorta.reporting.margin import margin


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_ticks_reach_the_top_and_are_few(top: float) -> None:
    ticks = ticks_to(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-6)
    assert 4 <= len(ticks) <= 6


def test_ticks_of_nothing() -> None:
    assert ticks_to(0.0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "actual", "limit", "tolerance", "said"),
    [
        ("max", 112.0, 100.0, None, "12.0 % over"),
        ("max", 80.0, 100.0, None, "20.0 % left"),
        ("max", 100.0, 100.0, None, "0.0 % left"),
        ("min", 0.4, 0.5, None, "20.0 % under"),
        ("min", 0.6, 0.5, None, "20.0 % left"),
        ("within", 5.2, 5.0, 0.1, "100.0 % over"),
        ("max", 1.0, 0.0, None, "over the limit"),
        ("min", -1.0, 0.0, None, "under the limit"),
        ("within", 5.0, 5.0, 0.0, "at the limit"),
        ("min", 0.5, 0.5, None, "0.0 % left"),
        ("max", None, 1.0, None, "not measured"),
    ],
)
def test_margins(kind: GateKind, actual: float | None, limit: float, tolerance: float | None, said: str) -> None:
    assert margin(kind, actual, limit, tolerance) == said


def widest(figure: Figure) -> float:
    return max(float(mark.attributes["x"]) + float(mark.attributes["width"]) for mark in rects(figure))


def rects(figure: Figure) -> list[Mark]:
    return [mark for mark in figure.marks if mark.tag == "rect"]


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_gate_s_bar_stays_inside(actual: float, limit: float) -> None:
    figure = gate_bar("max", actual, limit, None, colour="#000")
    assert widest(figure) <= figure.width


def test_each_rank_has_its_cell_with_its_colour() -> None:
    shares = [0.0, 0.5, None, -0.2]
    figure = grid("g", shares, list("abcd"), rows=2, bands=DEVIATION, hosts=["n0", "n1"])
    cells = rects(figure)
    assert [cell.title for cell in cells] == list("abcd")
    assert [cell.attributes["fill"] for cell in cells] == ["#d5d9dd", "#8c0d25", figures_grid.MISSING, "#2166ac"]
    assert len({(cell.attributes["x"], cell.attributes["y"]) for cell in cells}) == 4
    assert [mark.text for mark in figure.marks if mark.tag == "text"] == ["n0", "n1"]


def test_a_large_grid_is_one_shape_a_colour() -> None:
    figure = grid("g", [0.0] * 4095 + [0.5], [], rows=8, bands=DEVIATION, hosts=[f"n{i}" for i in range(512)])
    paths = [mark for mark in figure.marks if mark.tag == "path"]
    assert [path.title for path in paths] == ["within 3 %: 4095 ranks", "more than 25 % above: 1 ranks"]
    assert str(paths[0].attributes["d"]).count("M") == 4095


def test_many_points_become_a_median_between_least_and_greatest() -> None:
    x, line = binned(range(1024), "l", "#000", [float(i) for i in range(1024)])
    assert len(x) == 256
    assert (line.low[0], line.y[0], line.high[0]) == (0.0, 1.5, 3.0)
    assert x[1] == 4.0
    _, line = binned(range(1024), "l", "#000", [None] * 1024)
    assert set(line.y) == {None}


def test_a_line_is_broken_where_nothing_was_measured() -> None:
    figure = line_chart("c", range(4), [Line("l", "#000", [1.0, None, 1.0, 2.0])], x_label="rank", unit="ms")
    (path,) = [mark for mark in figure.marks if mark.tag == "path"]
    assert str(path.attributes["d"]).count("M") == 2
    assert sum(mark.tag == "circle" for mark in figure.marks) == 3


def test_a_chart_of_nothing_can_be_drawn() -> None:
    assert line_chart("c", [], [Line("l", "#000", [])], x_label="rank", unit="ms").marks
    assert figures_bars.histogram("h", [], unit="ms").marks
    assert figures_bars.bars("b", [], unit="ms").marks == ()
