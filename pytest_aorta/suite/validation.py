"""Validation: one pytest session that performs stages, from its first hook to its last."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_aorta.config.redact import scrub, scrub_file
from pytest_aorta.errors import ConfigError, Fault
from pytest_aorta.hostlist import spelt
from pytest_aorta.plugin import Activation
from pytest_aorta.reporting.model import RunView
from pytest_aorta.reporting.text import clean
from pytest_aorta.run.conclusion import conclude, stage_row, with_stored
from pytest_aorta.run.gating import Pipeline, Stage
from pytest_aorta.run.interruption import Interruption
from pytest_aorta.suite.closing import Closing
from pytest_aorta.suite.collection import StageItem, StageSuite, in_table_order, select_as_pytest_does, stage_suite
from pytest_aorta.suite.html import HtmlRows
from pytest_aorta.suite.junit import JUnitProperties
from pytest_aorta.suite.opening import Opened, begin_run, refuse_live, refuse_nothing_to_judge, remember
from pytest_aorta.suite.reports import Reports, runs_nothing, unwritten
from pytest_aorta.suite.rows import STAGE_ROW, StageRows
from pytest_aorta.suite.subtests import open_subtests
from pytest_aorta.suite.terminal import Progress, last_lines, speaks_for_stages, write_summary
from pytest_aorta.table import stages_of

log = logging.getLogger("pytest_aorta")
_FORMATTER = logging.Formatter()

_UNCOLLECTED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR)
REJUDGED_BY_DEFAULT = ("test_parse_results", "test_validate_thresholds", "test_generate_report")
CLUSTER_FILE = "cluster.json"  # as the documentation calls it

Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]


class Validation:
    """What one session does: collects the stages, performs them, closes the run and reports."""

    def __init__(self, config: pytest.Config, found: Activation, opened: Opened, reports: Reports) -> None:
        self._config = config
        self._found = found
        self._opened = opened
        self._reports = reports
        self._stages = stages_of(opened.settings.suite)
        self._selected: list[Stage] = []
        self._deselected: list[pytest.Item] = []
        self._pipeline: Pipeline | None = None
        self._interruption = Interruption()
        self._progress: Progress | None = None
        self._closing = Closing(opened, reports, self._limits())
        self._exit_code: int | pytest.ExitCode = 0
        self._unwritten = ""
        self._view: RunView | None = None
        self._html: HtmlRows | None = None
        self._junit = JUnitProperties(lambda: self._view, reports.gates, own_file=reports.own_junit)
        self._register()

    def header(self) -> list[str]:
        """Give the lines of pytest's header."""
        settings = self._opened.settings
        stored = self._opened.stored
        named = str(self._found.config_file)
        if stored is not None:
            named = f"judging run {stored.folder.run_id} by {self._limits()}"
        names = [host.name for host in settings.cluster.hosts]
        many = f" ({len(names)} hosts)" if len(names) > 1 else ""
        where = f"{self._opened.suite_name} on {spelt(names)}{many}"
        lines = [f"aorta: {named} (from {self._found.origin}); {where}"]
        beside = self._config.invocation_params.dir / CLUSTER_FILE
        is_named = stored is not None or self._config.option.aorta_cluster or beside == self._found.config_file
        if settings.cluster.transport == "local" and not is_named and beside.is_file():
            lines.append(f"aorta: {CLUSTER_FILE} is not used; --aorta-cluster={CLUSTER_FILE} runs on its hosts")
        limits = next((file.path for file in settings.inputs if file.kind == "thresholds"), None)
        if limits and not settings.config.threshold_json and not self._config.option.aorta_thresholds:
            lines.append(f"aorta: limits of {limits.name}, which lies beside the configuration")
        return [*lines, *(f"aorta: warning: {warning}" for warning in settings.warnings)]

    def _limits(self) -> str:
        """Name what a stored run is judged by."""
        return str(self._config.option.aorta_thresholds or self._found.config_file or "its own limits")

    def suite(self, session: pytest.Session) -> StageSuite:
        """Give the collector of the stage tests."""
        return stage_suite(session, self._opened.suite_name, self._stages)

    def arrange(self, config: pytest.Config, items: list[pytest.Item], collected: Sequence[pytest.Item]) -> None:
        """Put the stages in order; of a stored run, keep what can be judged again unless -k selects.

        A stage that was `collected` and is gone without having been deselected comes back: a conftest that filters
        tests means its own.
        """
        gone: list[pytest.Item] = [
            item for item in collected if isinstance(item, StageItem) and item not in (*items, *self._deselected)
        ]
        select_as_pytest_does(gone, config)
        items[:] = dict.fromkeys([*items, *gone])
        in_table_order(items, self._stages)
        if self._opened.stored is None:
            return
        if not config.option.keyword:
            dropped = [i for i in items if isinstance(i, StageItem) and i.stage.test not in REJUDGED_BY_DEFAULT]
            items[:] = [item for item in items if item not in dropped]
            config.hook.pytest_deselected(items=dropped)
        try:
            refuse_live([item.stage for item in items if isinstance(item, StageItem)])
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from error

    def deselected(self, items: Sequence[pytest.Item]) -> None:
        """Take note of what was deselected by its rules, such as -k."""
        self._deselected += items

    def start(self, session: pytest.Session) -> None:
        """Make the run and take the signals."""
        option = self._config.option
        if runs_nothing(self._config):
            return
        if session.testsfailed and not option.continue_on_collection_errors:
            self.withdraw()
            return
        in_table_order(session.items, self._stages)  # --ff and --nf sort after everybody else
        self._selected = [item.stage for item in session.items if isinstance(item, StageItem)]
        if not self._selected:
            self.withdraw()
            return
        try:
            if self._opened.stored is None:
                refuse_nothing_to_judge(self._selected)
            self._pipeline = self._begin()
        except ConfigError as error:
            self.withdraw()
            raise pytest.UsageError(*map(str, error.faults)) from error
        self._begin_reports(self._pipeline)
        self._progress = Progress(self._config, self._opened.settings.secrets())
        self._config.pluginmanager.register(self._progress, "aorta-progress")
        self._pipeline.run.progress = self._progress
        if (reporter := self._config.pluginmanager.get_plugin("terminalreporter")) and speaks_for_stages(reporter):
            reporter.showfspath = False
        self._interruption.install()

    def withdraw(self) -> None:
        """Leave the reports of the run before as they are: this session does not become a run."""
        self._reports.withdraw(self._config)

    @contextmanager
    def whole(self, item: pytest.Item) -> Iterator[None]:
        """Hold a signal back while a stage is reported, and end the session behind it; within the stage it acts."""
        if not isinstance(item, StageItem):
            yield
            return
        with self._interruption.kept():
            yield
        if self._interruption.received is not None:
            item.session.shouldstop = item.session.shouldstop or f"interrupted by {self._interruption.received}"

    def performer(self, request: pytest.FixtureRequest, subtests: pytest.Subtests) -> Callable[[str], None]:
        """Give the function that performs a stage inside its test."""
        item = request.node

        def perform(test: str) -> None:
            if self._pipeline is None:
                raise pytest.UsageError(f"{test}: no run was begun")
            outcome = self._pipeline.perform(item.stage)
            row = item.stash[STAGE_ROW] = stage_row(outcome, self._pipeline.run.folder)
            if self._progress is not None:
                self._progress.result(row)
            if outcome.outcome == "interrupted":
                item.session.shouldstop = outcome.reason
            if outcome.outcome == "skipped":
                pytest.skip(outcome.reason)
            open_subtests(outcome.checks, subtests)
            if outcome.outcome != "passed":
                pytest.fail(outcome.reason, pytrace=False)

        return perform

    def finish(self, session: pytest.Session) -> None:
        """Close the run: undo what is left, conclude, and write the documents that reports are made from."""
        if self._pipeline is None:
            return
        self._interruption.hold_for_good()
        self._finish(session, self._pipeline)
        self._exit_code = session.exitstatus
        left = f"{self._opened.suite_name}::{self._left(self._pipeline)}"
        self._junit.tell_end(self._config, self._ended(session, self._pipeline), left)

    def insist(self, session: pytest.Session) -> None:
        """Keep the exit code whatever another plugin makes of it: a run that did not pass never ends with 0."""
        if self._pipeline is not None and session.exitstatus == 0:
            session.exitstatus = self._exit_code

    def report_failed(self, session: pytest.Session, error: OSError) -> None:
        """Take note that pytest's reports could not be written; the summary says so."""
        self._unwritten = unwritten(error)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        self._exit_code = session.exitstatus
        try:
            self._reports.write_rest(session, html=self._html is not None and not self._html.is_begun)
        except OSError as more:
            self._unwritten = "; ".join(dict.fromkeys([self._unwritten, unwritten(more)]))

    def without_letter(self, report: pytest.TestReport, status: Status) -> Status:
        """Take a stage's letter away, and those of its sub-tests, where the stage is told as a line of ours."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        told = reporter is not None and speaks_for_stages(reporter)
        if not told or not report.nodeid.startswith(f"{self._opened.suite_name}::"):
            return status
        category, _, word = status
        return category, "", word

    def shorten(self, reporter: pytest.TerminalReporter) -> None:
        """Leave the end of a failed stage's log on the terminal; the whole stands in its Full Log page."""
        prefix = f"{self._opened.suite_name}::"
        for report in (*reporter.stats.get("failed", ()), *reporter.stats.get("subtests failed", ())):
            if isinstance(report, pytest.TestReport) and report.nodeid.startswith(prefix):
                report.sections = [(name, last_lines(text)) for name, text in report.sections]

    def summarize(self, reporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Write the summary to the terminal; of tests that could not be collected pytest itself has spoken."""
        if self._view is not None:
            view = self._view
            if self._unwritten:
                view = replace(view, paths=tuple((label, path) for label, path in view.paths if _holds(Path(path))))
            write_summary(reporter, view, self._opened.suite_name)
            if self._unwritten:
                reporter.write_line(f"aorta: {self._unwritten}", red=True)
        elif not self._selected and exitstatus not in _UNCOLLECTED and not runs_nothing(self._config):
            reporter.write_line(f"aorta: no stage is selected; there are {', '.join(s.test for s in self._stages)}")

    def leave(self) -> None:
        """Undo what an aborted session left, pack the reports, which are written by now, and give the signals back."""
        try:
            self._reports.end(self._config)
        except OSError as error:
            sys.stderr.write(f"aorta: {unwritten(error)}\n")
        if self._pipeline is not None:
            self._pipeline.run.close()
            self._closing.pack(self._pipeline.run.folder, self._html)
        self._reports.release()
        self._interruption.restore()

    def _begin(self) -> Pipeline:
        """Begin the run, alone in its report folder."""
        try:
            if self._opened.stored is None:
                self._reports.hold()
        except BlockingIOError as error:
            why = "another run that is going on writes its reports there; wait for it, or give this one another folder"
            raise ConfigError([Fault("--aorta-report-dir", f"{self._reports.folder}: {why}")]) from error
        return begin_run(self._opened, self._interruption, self._selected)

    def _begin_reports(self, pipeline: Pipeline) -> None:
        """Take away the reports of the run before, and note which one is the last now."""
        try:
            self._reports.begin(self._config)
            if self._opened.stored is None and self._reports.folder is not None:
                remember(self._reports.folder, pipeline.run.folder, self._opened.suite_name)
        except OSError as error:
            self._unwritten = unwritten(error)

    def _finish(self, session: pytest.Session, pipeline: Pipeline) -> None:
        run = pipeline.run
        cut_short = self._cut_short(pipeline)
        if cut_short:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        done, left = run.close()
        problems = [problem.said for problem in left]
        for what in done:
            log.info("closing: %s", what)
        run.record.closed(tuple(done), tuple(problems))
        verdict, sentence = conclude(pipeline.outcomes, self._plan(), cut_short=cut_short)
        if problems and verdict == "passed":
            verdict, sentence = "could_not_measure", "; ".join(problems)
        if self._opened.stored is not None:
            verdict, sentence = with_stored(self._opened.stored.record, pipeline.outcomes, verdict, sentence)
        if verdict != "passed" or self._unwritten:
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        self._view = self._closing.close(pipeline, self._plan(), verdict, sentence, self._html)

    def _plan(self) -> tuple[str, ...]:
        chosen = self._selected if self._opened.stored else self._stages
        return tuple(stage.test for stage in chosen)

    def _cut_short(self, pipeline: Pipeline) -> str:
        if self._interruption.received is not None:
            return f"interrupted by {self._interruption.received}"
        left = self._left(pipeline)
        return f"pytest stopped before {left}" if left else ""

    def _left(self, pipeline: Pipeline) -> str:
        """Name the first of the selected stages that was not come to."""
        return next((stage.test for stage in self._selected if stage.test not in pipeline.outcomes), "")

    def _ended(self, session: pytest.Session, pipeline: Pipeline) -> str:
        """Say what ended the session before its last test, "" if nothing did."""
        cut_short = self._cut_short(pipeline)
        return cut_short or ("pytest was ended here" if session.exitstatus == pytest.ExitCode.INTERRUPTED else "")

    def _register(self) -> None:
        plugins, reports = self._config.pluginmanager, self._reports
        secrets = self._opened.settings.secrets()
        log.setLevel(logging.INFO)
        log.addFilter(lambda record: _without(record, secrets))
        rows = StageRows()
        plugins.register(rows, "aorta-rows")
        plugins.register(self._junit, "aorta-junit")
        if reports.html is not None and plugins.has_plugin("html"):
            self._html = HtmlRows(
                self._config,
                self._opened.report_stem,
                lambda: self._view,
                rows.by_nodeid,
                inputs=[replace(file, text=scrub_file(file.text, secrets)) for file in self._opened.settings.inputs],
                redact=lambda text: scrub(text, secrets),
            )
            plugins.register(self._html, "aorta-html")


def _without(record: logging.LogRecord, secrets: tuple[str, ...]) -> bool:
    """Take secrets out of a record of the log, also out of what the errors in its traceback say."""
    record.msg, record.args = clean(scrub(record.getMessage(), secrets)), None
    if record.exc_info:
        record.exc_text = clean(scrub(_FORMATTER.formatException(record.exc_info), secrets))
        record.exc_info = None
    return True


def _holds(path: Path) -> bool:
    """Tell whether something lies there that is worth a look."""
    try:
        return path.is_dir() or path.stat().st_size > 0
    except OSError:
        return False
