"""StageRows: what each stage test came to, by node id, for the plugins that report it."""

from __future__ import annotations

import pytest
from _pytest._code.code import ExceptionRepr

from pytest_aorta.reporting.hints import Hint
from pytest_aorta.reporting.model import StageRow

STAGE_ROW = pytest.StashKey[StageRow]()
"""Where a stage test leaves its row; set during its call phase, complete when the phase ends."""


class StageRows:
    """Gathers the rows that stage tests leave, in run order."""

    def __init__(self) -> None:
        self.by_nodeid: dict[str, StageRow] = {}
        self._hints: dict[str, Hint] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Take the row once setup and call are over."""
        row = item.stash.get(STAGE_ROW, None)
        if row is not None:
            self.by_nodeid[item.nodeid] = row

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        """Remember the hint about a stage."""
        row = item.stash.get(STAGE_ROW, None)
        if row is not None and row.hint is not None:
            self._hints[item.nodeid] = row.hint

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Put the hint below a failed stage's message: terminal, JUnit and HTML print it from there."""
        told = report.longrepr if report.failed and report.when == "call" and not is_subtest(report) else None
        if report.nodeid in self._hints and isinstance(told, ExceptionRepr):
            told.addsection("hint", self._hints[report.nodeid].line())


def is_subtest(report: pytest.TestReport) -> bool:
    """Tell a sub-test's report from its test's: of pytest 9 or of pytest-subtests, only it has a context."""
    return getattr(report, "context", None) is not None


def subtest_label(report: pytest.TestReport) -> str:
    """Give a sub-test's label without the quotes that pytest 9 puts around values: `[threshold] (metric=x)`."""
    context = getattr(report, "context", None)
    message = getattr(context, "msg", None)
    values = getattr(context, "kwargs", None) or {}
    parts = [f"[{message}]"] if message is not None else []
    if values:
        parts.append("(" + ", ".join(f"{name}={_unquoted(value)}" for name, value in values.items()) + ")")
    return " ".join(parts) or "(sub-test)"


def failure_text(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Give what a report says in one piece: a skip's reason, a failure's message without pytest's prefix."""
    longrepr = report.longrepr
    if longrepr is None:
        return ""
    if isinstance(longrepr, tuple):
        return longrepr[2].removeprefix("Skipped: ")
    crash = getattr(longrepr, "reprcrash", None)
    return crash.message.removeprefix("Failed: ") if crash is not None else str(longrepr)


def _unquoted(value: object) -> str:
    text = str(value)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
