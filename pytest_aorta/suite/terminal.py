"""Progress: one live line while a stage works; and the run's summary at the end."""

from __future__ import annotations

import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext

import pytest

from pytest_aorta.config.redact import scrub
from pytest_aorta.reporting.model import RunView, StageRow, without_cause
from pytest_aorta.reporting.terminal import Cadence, headline, stamped, summary, what_to_do
from pytest_aorta.reporting.text import one_line, show_seconds

_REDRAW_PERIOD_S = 0.1
_MAX_REASON_CHARS = 300
MAX_LOG_LINES = 25
MAX_LOG_LINE_CHARS = 400
_ROW_MARKUP: dict[str, dict[str, bool]] = {
    "passed": {"green": True},
    "failed": {"red": True},
    "interrupted": {"red": True},
    "skipped": {"yellow": True},
    "not_run": {},
}
_MARKUP: dict[str, dict[str, bool]] = {
    "passed": {"green": True, "bold": True},
    "failed": {"red": True, "bold": True},
    "could_not_measure": {"yellow": True, "bold": True},
    "interrupted": {"yellow": True, "bold": True},
}


class Progress:
    """Shows what a stage is doing, past pytest's capture; a plugin, so that pytest's own output never collides with it.

    In a terminal one line is rewritten in place. Elsewhere (a CI log, a dumb terminal, a pytest in the background) each
    change of words is a full line, and every 30 s one is. Silent with -q and without a terminal reporter. Calls from
    any thread but the one that made it are ignored: capture belongs to that thread. No text shows one of `secrets`.
    """

    def __init__(self, config: pytest.Config, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        self._reporter: pytest.TerminalReporter | None = reporter
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._start_s = time.monotonic()
        self._cadence = Cadence()
        self._redraw = Cadence(_REDRAW_PERIOD_S)
        self._thread = threading.get_ident()
        self._rewrites = (
            reporter is not None
            and bool(reporter.isatty)
            and os.environ.get("TERM") != "dumb"
            and not os.environ.get("CI")
        )
        self._live = False
        self._closed = False

    def __call__(self, text: str) -> None:
        """Show the text as what is going on now; a terminal that went away is no reason to stop."""
        try:
            self._show(scrub(text, self._secrets))
        except OSError:
            self._closed = True

    def _show(self, text: str) -> None:
        if self._reporter is None or self._reporter.verbosity < 0 or self._closed:
            return
        if threading.get_ident() != self._thread:
            return
        now_s = time.monotonic() - self._start_s
        if self._rewrites:
            if self._redraw.due(text, now_s):
                self._draw(self._reporter, text, now_s)
        elif self._cadence.due(text, now_s):
            with self._uncaptured():
                self._write(self._reporter, stamped(text, now_s))

    def result(self, row: StageRow) -> None:
        """Say how a stage ended, in a line of its own, where pytest's verbosity leaves that to us."""
        try:
            self._tell(row)
        except OSError:
            self._closed = True

    def _tell(self, row: StageRow) -> None:
        if self._reporter is None or not speaks_for_stages(self._reporter) or self._closed:
            return
        with self._uncaptured():
            if self._live:
                self._reporter.rewrite("", erase=True)
                self._live = False
            reason = f": {one_line(without_cause(row.reason), _MAX_REASON_CHARS)}" if row.reason else ""
            line = f"{row.outcome.upper():<11} {row.name} {show_seconds(row.seconds)}{reason}"
            self._reporter.write_line(stamped(line, time.monotonic() - self._start_s), **_ROW_MARKUP[row.outcome])
            self._reporter.flush()

    def close(self) -> None:
        """End the live line and stay silent from now on."""
        with self._uncaptured():
            self._end_live_line()
        self._closed = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self) -> None:
        """Leave the last line standing: the reporter begins a new one with its result."""
        self._live = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """End the live line before pytest says that it was interrupted."""
        self.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the live line before the summary."""
        self.close()

    def _draw(self, reporter: pytest.TerminalReporter, text: str, now_s: float) -> None:
        with self._uncaptured():
            if _in_foreground():
                self._rewrite(reporter, stamped(text, now_s))
            elif self._cadence.due(text, now_s):
                self._write(reporter, stamped(text, now_s))

    def _write(self, reporter: pytest.TerminalReporter, line: str) -> None:
        self._end_live_line()
        reporter.write_line(line)
        reporter.flush()

    def _rewrite(self, reporter: pytest.TerminalReporter, line: str) -> None:
        if not self._live:
            reporter.ensure_newline()
        width = reporter._tw.fullwidth - 1  # noqa: SLF001 the reporter has no public width
        reporter.rewrite(line[:width], erase=True)
        reporter.flush()
        self._live = True

    def _end_live_line(self) -> None:
        if self._live and self._reporter is not None:
            self._reporter.line("")
            self._reporter.flush()
        self._live = False

    def _uncaptured(self) -> AbstractContextManager[None]:
        if self._capture is None:
            return nullcontext()
        uncaptured: AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return uncaptured


def speaks_for_stages(reporter: pytest.TerminalReporter) -> bool:
    """Tell whether stages are told as lines of ours; with -v or -q pytest's own lines and letters stand."""
    return reporter.verbosity == 0


def write_summary(reporter: pytest.TerminalReporter, view: RunView, suite_name: str) -> None:
    """Write the run's summary: at most 25 lines, with -q the verdict and what to do, with -qq nothing.

    Of tests beside those of `suite_name` it says how many failed, one line more.
    """
    if reporter.verbosity < -1:
        return
    if reporter.verbosity == -1:
        lines = [headline(view), *(f"{label}: {text}" for label, text in what_to_do(view))]
        reporter.ensure_newline()
    else:
        lines = list(summary(view))
        reporter.section("aorta")
    reporter.write_line(lines[0], **_MARKUP[view.verdict])
    others = [
        report
        for outcome in ("failed", "error")
        for report in reporter.stats.get(outcome, ())
        if isinstance(report, pytest.TestReport) and not report.nodeid.startswith(f"{suite_name}::")
    ]
    if others:
        reporter.write_line(f"other tests: {len(others)} failed beside the stages; the verdict does not speak of them")
    for line in lines[1:]:
        reporter.write_line(line)


def last_lines(text: str) -> str:
    """Give the end of a log in lines that can be read, saying how much was left out."""
    lines = text.splitlines()
    left_out = len(lines) - MAX_LOG_LINES
    above = [f"({left_out} lines above, see Full Log)"] if left_out > 0 else []
    return "\n".join([*above, *(_cut(line) for line in lines[-MAX_LOG_LINES:])])


def _cut(line: str) -> str:
    left_out = len(line) - MAX_LOG_LINE_CHARS
    return line if left_out <= 0 else f"{line[:MAX_LOG_LINE_CHARS]} … ({left_out} more characters, see Full Log)"


def _in_foreground() -> bool:
    """Tell whether this process may draw on its terminal: a job in the background must not rewrite the shell's line.

    To be asked while nothing is captured: else file 1 is the capture's.
    """
    try:
        return os.tcgetpgrp(1) == os.getpgrp()
    except OSError:
        return True
