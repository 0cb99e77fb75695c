"""HtmlRows: the pytest-html report in run order, one row a stage, its sub-tests inside it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote

import pytest

from pytest_aorta.checks import Check
from pytest_aorta.config.settings import InputFile
from pytest_aorta.reporting import html_rows
from pytest_aorta.reporting.deck_page import DECK, NAME, PAGE, DeckPlace, deck_links
from pytest_aorta.reporting.html_page import finish
from pytest_aorta.reporting.html_rows import OtherTest
from pytest_aorta.reporting.json_report import write_text
from pytest_aorta.reporting.model import RunView, StageRow, title
from pytest_aorta.reporting.text import clean, cut_middle, one_line
from pytest_aorta.suite.rows import failure_text, is_subtest, subtest_label

log = logging.getLogger("pytest_aorta")
_REASON_COLUMN = 3
_INPUTS = {"config": "Config File", "cluster": "Cluster File", "thresholds": "Threshold File"}
_STYLE_SHEET, _PAGE_SHEET = "report.css", "aorta.css"
_OWN_FILES = ("test_*.html", "test_*.log", f"{NAME}.*", *(f"{kind}_*" for kind in _INPUTS), _STYLE_SHEET, _PAGE_SHEET)
_MAX_FAILURE_CHARS = 16 * 1024


class ReportData(Protocol):
    """What pytest-html hands to pytest_html_report_title."""

    title: str
    data: MutableMapping[str, Any]

    def set_data(self, key: str, value: object) -> None:
        """Put a value into the page's data."""


@dataclass(slots=True)
class _Node:
    """Every report of one test so far."""

    tests: list[pytest.TestReport] = field(default_factory=list)
    subtests: list[pytest.TestReport] = field(default_factory=list)

    @property
    def outcome(self) -> Literal["failed", "skipped", "passed"]:
        """What the test and its sub-tests came to."""
        reports = (*self.tests, *self.subtests)
        failed, skipped = (any(getattr(report, kind) for report in reports) for kind in ("failed", "skipped"))
        return "failed" if failed else "skipped" if skipped else "passed"

    @property
    def owns_subtests(self) -> bool:
        """Tell whether the test's own row speaks for its sub-tests.

        On pytest 8.4 a user's test passes beside a failed sub-test; the sub-test's own row must then stay.
        """
        return any(report.failed for report in self.tests) or not any(report.failed for report in self.subtests)


class HtmlRows:
    """Draws our rows, summary and log pages into the report that pytest-html makes; registered only beside it.

    `suite` names the folder of log pages, `view` gives the run at the end (None: nothing ran), `rows` the stages by
    node id, `inputs` the files to be copied beside the report, without their secrets; `redact` takes secrets out of
    captured text.
    """

    def __init__(
        self,
        config: pytest.Config,
        suite: str,
        view: Callable[[], RunView | None],
        rows: Mapping[str, StageRow],
        *,
        inputs: Sequence[InputFile] = (),
        redact: Callable[[str], str] = str,
    ) -> None:
        self._inputs = inputs
        self._suite = suite
        self._view = view
        self._rows = rows
        self._redact = redact
        self._report = Path(config.invocation_params.dir, os.path.expandvars(config.option.htmlpath)).expanduser()
        self._folder = self._report.parent / f"{suite}_html"
        self._nodes: dict[str, _Node] = {}
        self._uncollected: list[OtherTest] = []
        self._pages: list[str] = []
        self._is_ours = False
        self._data: ReportData | None = None

    @property
    def pages(self) -> Path:
        """The folder of everything that the page links."""
        return self._folder

    @property
    def is_begun(self) -> bool:
        """Tell whether pytest-html has come to write the page."""
        return self._is_ours

    def deck(self, labels: Mapping[str, str], log: Path | None) -> DeckPlace:
        """Give where the Run Deck stands: in the folder beside the report."""
        return DeckPlace(self._folder / PAGE, labels, html=self._report, log=log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_report_title(self, report: ReportData) -> None:
        """Name the report, and keep its rows in run order."""
        report.title = title(self._suite)
        report.set_data("initialSort", "original")
        if report.data.get("renderCollapsed") == ["passed"]:  # the default; a skip's reason stands in its row
            report.set_data("renderCollapsed", ["passed", "skipped"])
        self._data = report

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        """Add the Reason column before Links."""
        cells.insert(_REASON_COLUMN, '<th class="sortable" data-column-type="reason">Reason</th>')

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what could not be collected."""
        if report.failed:
            self._uncollected.append(OtherTest(report.nodeid, "failed", self._first_line(report)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep each report; at a test's last one write its log page and hang its sub-tests and the link on its row."""
        node = self._nodes.setdefault(report.nodeid, _Node())
        (node.subtests if is_subtest(report) else node.tests).append(report)
        if report.when != "teardown":
            return
        extras = []
        table = html_rows.subtest_table(self._checks(report.nodeid))
        if table:
            extras.append(_extra("html", table))
        link = self._write_log_page(report)
        if link:
            extras.append(_extra("url", link, name="Full Log"))
        report.extras = [*getattr(report, "extras", []), *extras]  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        """Drop the stray row of a sub-test, and its count with it; add the reason to every other row."""
        node = self._nodes.get(report.nodeid, _Node())
        if is_subtest(report) and node.owns_subtests:
            cells.clear()
            return
        suffix = "" if report.when in ("call", "collect") else f"::{report.when}"
        cells[1] = f'<td class="col-testId">{escape(clean(report.nodeid + suffix))}</td>'
        cells.insert(_REASON_COLUMN, html_rows.reason_cell(self._reason(report)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_html(self, report: pytest.TestReport, data: list[str]) -> None:
        """Show skip reasons as text; in a stage's row the captured output gives way to its log page."""
        if report.skipped and isinstance(report.longrepr, tuple):
            data[0] = escape(clean(self._redact(failure_text(report)))) + "\n"
        if report.nodeid not in self._rows:
            data[:] = [clean(part) for part in data]
            return
        shown = [data[0]] if report.skipped else []
        if report.failed:
            text, _ = cut_middle(clean(self._redact(report.longreprtext)), _MAX_FAILURE_CHARS)
            shown.append(escape(text) + "\n")
        stage = _stage_name(report.nodeid)
        shown.append("Captured output: see Full Log." if stage in self._pages else "No log output captured.")
        data[:] = shown

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_summary(self, prefix: list[str]) -> None:
        """Put the run's summary where it is readable without scripts."""
        view = self._view()
        if view is None:
            return
        known = {name for name, *_ in view.environment}
        fragment = html_rows.summary_prefix(
            view,
            log_pages=self._pages,
            pages_folder=self._folder.name,
            reports=deck_links(self._folder.name) if DECK in dict(view.paths) else "",
            inputs=tuple(self._copy_inputs()),
            session=tuple(row for row in self._metadata() if row[0] not in known),
            others=(*self._uncollected, *self._others()),
        )
        prefix.append(fragment)
        if self._data is not None:
            self._data.set_data("environment", {})  # ours stands in the page itself, and needs no script
        self._is_ours = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Finish the page once pytest-html has written it."""
        try:
            return (yield)
        finally:
            if self._is_ours:
                self._finish_page()

    def _finish_page(self) -> None:
        assets = self._report.parent / "assets" / "style.css"
        try:
            other = assets.read_text("utf-8") if assets.is_file() else ""
            href = quote(f"{self._folder.name}/{_STYLE_SHEET}")
            finished = finish(self._report.read_text("utf-8"), html_rows.stylesheet(), href, other_css=other)
            write_text(self._report, finished.page)
            write_text(self._folder / _STYLE_SHEET, finished.css)
        except OSError as error:
            log.warning("%s stays as pytest-html made it (%s)", self._report, error.strerror)

    def _others(self) -> Iterator[OtherTest]:
        """Give the tests of the session that are no stages."""
        for nodeid, node in self._nodes.items():
            if nodeid not in self._rows:
                telling = [report for report in (*node.tests, *node.subtests) if report.outcome == node.outcome]
                reason = self._first_line(telling[0]) if node.outcome != "passed" else ""
                yield OtherTest(nodeid, node.outcome, reason)

    def _copy_inputs(self) -> Iterator[tuple[str, str, str]]:
        """Copy the files that the run was made from, without their secrets; give the rows that link the copies."""
        for file in self._inputs:
            name = f"{file.kind}_{file.path.name}"
            link = quote(f"{self._folder.name}/{name}") if file.text else ""
            try:
                if file.text:
                    write_text(self._folder / name, file.text)
            except OSError as error:
                log.warning("no copy of %s: %s could not be written (%s)", file.path, self._folder, error.strerror)
                link = ""
            yield _INPUTS.get(file.kind, file.kind), os.path.normpath(file.path), link

    def _metadata(self) -> Iterator[tuple[str, str, str]]:
        """Give what pytest-metadata knows of this session: versions, and the variables of a CI job."""
        known = self._data.data.get("environment", {}) if self._data is not None else {}
        for name, value in known.items():
            text = ", ".join(f"{key} {what}" for key, what in value.items()) if isinstance(value, dict) else str(value)
            shown = self._redact(text)
            yield str(name), shown, text if text.startswith(("http://", "https://")) and shown == text else ""

    def _checks(self, nodeid: str) -> tuple[Check, ...]:
        row = self._rows.get(nodeid)
        if row is not None:
            return row.checks
        reports = self._nodes[nodeid].subtests
        return tuple(
            Check(
                label=subtest_label(report),
                state="failed" if report.failed else "not_judged" if report.skipped else "passed",
                reason=self._redact(failure_text(report)),
            )
            for report in reports
        )

    def _reason(self, report: pytest.TestReport) -> str:
        row = self._rows.get(report.nodeid)
        if row is not None and report.when == "call" and (row.reason or not report.longrepr):
            return html_rows.reason_text(row)
        if report.longrepr:
            return self._first_line(report)
        return html_rows.checks_text(self._checks(report.nodeid)) if report.nodeid in self._nodes else ""

    def _first_line(self, report: pytest.TestReport | pytest.CollectReport) -> str:
        first, *_ = failure_text(report).splitlines() or [""]
        return one_line(self._redact(first), 600)

    def _write_log_page(self, report: pytest.TestReport) -> str:
        """Write the page of a stage that left output; give its link, or "" without one."""
        row = self._rows.get(report.nodeid)
        if row is None:
            return ""
        captured = [*report.sections]
        for subtest in self._nodes[report.nodeid].subtests:
            captured += [(f"{name}, {subtest_label(subtest)}", text) for name, text in subtest.sections]
        sections = [(name, self._redact(text)) for name, text in (*row.log_sections, *captured) if text.strip()]
        if not sections:
            return ""
        stage = _stage_name(report.nodeid)
        page, was_cut = html_rows.log_page(
            report.nodeid, sections, full_text_name=f"{stage}.log", report_name=self._report.name
        )
        try:
            write_text(self._folder / _PAGE_SHEET, html_rows.stylesheet())
            write_text(self._folder / f"{stage}.html", page)
            if was_cut:
                write_text(self._folder / f"{stage}.log", html_rows.full_text(report.nodeid, sections))
        except OSError as error:
            log.warning("no log page for %s: %s could not be written (%s)", stage, self._folder, error.strerror)
            return ""
        self._pages.append(stage)
        return quote(f"{self._folder.name}/{stage}.html")


def forget_pages(folder: Path) -> None:
    """Remove the pages and copies of an earlier session from their folder; what others put there stays.

    Raises:
        OSError: one stays.
    """
    for old in (old for names in _OWN_FILES for old in folder.glob(names) if old.is_file()):
        old.unlink()


def _stage_name(nodeid: str) -> str:
    return nodeid.rpartition("::")[2]


def _extra(format_type: str, content: str, name: str | None = None) -> dict[str, str | None]:
    """Give an extra as pytest-html's own functions make it, without importing that plugin."""
    return {"name": name, "format_type": format_type, "content": content, "mime_type": None, "extension": None}
