"""The page of pytest-html, finished."""

from __future__ import annotations

import pytest

from pytest_aorta.checks import Bound, Check
from pytest_aorta.reporting.html_page import finish
from pytest_aorta.reporting.html_rows import margin_text

PAGE = r"""<!DOCTYPE html>
<html>
  <head>
    <title>t</title>
      <style type="text/css">p { content: "\1F"; }</style>
  </head>
  <body>
    <div id="environment-header"><h2>Environment</h2></div>
    <table id="environment"></table>
    <div class="summary__data">
        <h2>Summary</h2>
        <p class="run-count">8 tests took 00:00:09.</p>
        <div class="summary__reload">
          <div class="summary__reload__button hidden" onclick="location.reload()">
            <div>There are still tests running. <br />Reload this page to get the latest results!</div>
          </div>
        </div>
        <div class="controls"></div>
    </div>
  </body>
</html>"""


def test_the_sheet_stands_twice_backslashes_and_all_and_what_has_no_use_is_gone() -> None:
    done = finish(PAGE, 'b { content: "\\g<0>"; }', "a&b/report.css")
    assert done.css == 'p { content: "\\1F"; }\nb { content: "\\g<0>"; }'
    assert f"<style>{done.css}</style>" in done.page
    assert '<link rel="stylesheet" href="a&amp;b/report.css"/>' in done.page
    assert done.page.count("<style") == 1
    for gone in ("onclick", "run-count", "<h2>Summary", "summary__reload"):
        assert gone not in done.page
    assert '<div class="controls"></div>' in done.page
    assert '<table id="environment" hidden="hidden">' in done.page
    assert '<html lang="en">' in done.page


def test_a_page_that_only_links_its_sheet_gets_the_block_too() -> None:
    linked = PAGE.replace('<style type="text/css">p { content: "\\1F"; }</style>', '<link href="assets/style.css"/>')
    done = finish(linked, "b {}", "x.css", other_css="p {}")
    assert done.css == "p {}\nb {}"
    assert '<link href="assets/style.css"/>' in done.page
    assert "<style>p {}\nb {}</style>" in done.page


def test_a_page_of_another_version_is_left_readable() -> None:
    assert finish("<p>else</p>", "b {}", "x.css").page == "<p>else</p>"


@pytest.mark.parametrize(
    ("kind", "limit", "tolerance", "actual", "shown"),
    [
        ("max", 10, None, 8.0, "20.0 % left"),
        ("max", 1.5, None, 99.0, "6,500 % over"),
        ("within", 5, 0.2, 5.4, "100.0 % over"),
        ("max", 10, None, None, ""),
    ],
)
def test_the_margin_is_a_share_of_the_limit(
    kind: str, limit: float, tolerance: float | None, actual: float | None, shown: str
) -> None:
    bound = Bound.model_validate({"kind": kind, "limit": float(limit), "tolerance": tolerance})
    assert margin_text(Check(label="x", state="failed", actual=actual, gate=bound)) == shown
