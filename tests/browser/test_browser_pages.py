"""The pages in Chromium: under the header of Jenkins without scripts, and opened from disk with them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.browser.reports import PLANT, Site

_WHY = "no browser here: pip install playwright (without its browsers), apt-get install chromium"
pytest.importorskip("playwright.sync_api", reason=_WHY)

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

RUNS = ("gates", "rank", "record", "planted")
REPORT = "aorta_single.html"
DECK = "aorta_single_html/aorta_run_deck.html"
LOG = "aorta_single_html/test_run_benchmark.html"
STYLE, SCRIPT = "Applying inline style violates", "Blocked script execution in"
WIDTH = 1280
Open = Callable[[str], tuple[Page, list[str]]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("AORTA_REQUIRE_LAB") == "1":
            pytest.fail(f"AORTA_REQUIRE_LAB=1, and {_WHY}", pytrace=False)
        pytest.skip(_WHY)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic"]
        launched = playwright.chromium.launch(executable_path=found, args=arguments)
        yield launched
        launched.close()


def open_page(browser: Browser, address: str) -> tuple[Page, list[str]]:
    page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))
    page.goto(address)
    return page, said


@pytest.fixture
def under_jenkins(browser: Browser, jenkins: str) -> Iterator[Open]:
    opened: list[Page] = []

    def open_it(path: str) -> tuple[Page, list[str]]:
        page, said = open_page(browser, f"{jenkins}/{path}")
        opened.append(page)
        return page, said

    yield open_it
    for page in opened:
        page.close()


@pytest.fixture
def from_disk(browser: Browser, site: Site) -> Iterator[Open]:
    opened: list[Page] = []

    def open_it(path: str) -> tuple[Page, list[str]]:
        page, said = open_page(browser, (site.root / path).as_uri())
        opened.append(page)
        return page, said

    yield open_it
    for page in opened:
        page.close()


def paths() -> list[str]:
    return [f"{run}/{page}" for run in RUNS for page in (REPORT, DECK, LOG) if (run, page) != ("planted", DECK)]


@pytest.mark.parametrize("path", paths())
def test_under_jenkins_only_the_style_block_and_the_script_are_told_once_each(under_jenkins: Open, path: str) -> None:
    page, said = under_jenkins(path)
    assert len([text for text in said if STYLE in text]) == 1, said
    assert len([text for text in said if SCRIPT in text]) == page.locator("script").count(), said
    assert len(said) == 1 + page.locator("script").count(), said


@pytest.mark.parametrize("path", paths())
def test_from_disk_the_console_stays_empty(from_disk: Open, path: str) -> None:
    _, said = from_disk(path)
    assert said == []


@pytest.mark.parametrize("path", paths())
def test_no_page_scrolls_sideways(under_jenkins: Open, from_disk: Open, path: str) -> None:
    for opened in (under_jenkins, from_disk):
        page, _ = opened(path)
        assert page.locator("html").evaluate("e => e.scrollWidth") <= WIDTH


def test_verdict_stages_gates_and_environment_need_no_script(under_jenkins: Open) -> None:
    page, _ = under_jenkins(f"gates/{REPORT}")
    verdict = page.locator(".aorta-verdict")
    assert verdict.is_visible()
    assert "FAILED" in verdict.inner_text()
    assert "max_avg_iteration_ms" in verdict.inner_text()
    assert page.locator(".aorta-stages > tbody > tr:not(.aorta-inner)").count() == 10
    rows = page.locator(".aorta-stages .aorta-inner .aorta-checks tbody tr").all()
    assert all(row.is_visible() for row in rows)
    assert "max 0.001 ms" in "".join(row.inner_text() for row in rows)
    assert page.locator(".aorta-gates tbody tr").count() == 2
    assert page.get_by_text("Aorta Run Deck").is_visible()
    assert page.locator(".aorta-environment").is_visible()
    assert page.locator("#environment").is_hidden()
    assert page.locator("#results-table").is_hidden()
    assert page.locator(".controls").is_hidden()
    assert page.locator(".aorta-noscript").is_visible()


def test_the_style_sheet_acts_under_jenkins_too(under_jenkins: Open, from_disk: Open) -> None:
    for opened in (under_jenkins, from_disk):
        page, _ = opened(f"gates/{REPORT}")
        ink = page.locator("body").evaluate("e => getComputedStyle(e).color")
        banner = page.locator(".aorta-banner").evaluate("e => getComputedStyle(e).backgroundColor")
        assert ink == "rgb(28, 33, 38)"
        assert banner == "rgb(253, 236, 235)"


def test_the_deck_shows_its_charts_and_tables_without_scripts(under_jenkins: Open) -> None:
    page, _ = under_jenkins(f"gates/{DECK}")
    assert page.locator("header .verdict").is_visible()
    assert page.locator("svg:visible").count() >= 2
    assert page.locator("table:visible").count() >= 3


def test_a_failed_rank_has_its_cause_and_its_log_behind_a_link(under_jenkins: Open) -> None:
    page, _ = under_jenkins(f"rank/{REPORT}")
    assert "exited 3" in page.locator(".aorta-banner").inner_text()
    page.locator(".aorta-stages").get_by_text("test_run_benchmark", exact=True).click()
    page.wait_for_url("**/test_run_benchmark.html")
    assert PLANT in page.locator("pre").first.inner_text()
    page.get_by_text("the report").click()
    page.wait_for_url(f"**/{REPORT}")


def test_planted_markup_runs_nowhere_and_is_read_as_text(from_disk: Open) -> None:
    page, said = from_disk(f"planted/{REPORT}")
    page.locator("#show_all_details").click()
    assert said == []
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("#results-table").inner_text().count("alert(") > 3


def names(page: Page) -> list[str]:
    return [text.rpartition("::")[2] for text in page.locator("#results-table .col-testId").all_inner_texts()]


def test_rows_stand_in_run_order_and_can_be_sorted(from_disk: Open) -> None:
    page, _ = from_disk(f"gates/{REPORT}")
    run_order = names(page)
    assert (run_order[0], run_order[-1]) == ("test_launch_container", "test_teardown")
    assert len(run_order) == 10
    page.locator("th[data-column-type=testId]").click()
    once = names(page)
    page.locator("th[data-column-type=testId]").click()
    assert {tuple(once), tuple(names(page))} == {tuple(sorted(run_order)), tuple(sorted(run_order, reverse=True))}
    page.locator("th[data-column-type=reason]").click()
    assert sorted(names(page)) == sorted(run_order)


def test_rows_can_be_filtered_and_counts_are_true(from_disk: Open) -> None:
    page, _ = from_disk(f"gates/{REPORT}")
    assert (
        page.locator(".aorta-counts").inner_text().startswith("10 stages: 1 failed, 7 passed, 2 skipped; 3 sub-tests")
    )
    assert page.locator(".aorta-noscript").is_hidden()
    page.locator("input[data-test-result=passed]").uncheck()
    assert len(names(page)) == 3
    page.locator("input[data-test-result=skipped]").uncheck()
    assert names(page) == ["test_validate_thresholds"]
    assert page.locator("#results-table .aorta-checks").is_visible()
