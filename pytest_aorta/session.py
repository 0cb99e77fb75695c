"""The plugin in a run of ours: hooks only; what they do stands in suite/."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack

import pytest

from pytest_aorta.errors import ConfigError
from pytest_aorta.plugin import Activation
from pytest_aorta.suite.opening import open_run
from pytest_aorta.suite.reports import set_report_files
from pytest_aorta.suite.validation import Validation

Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]


def begin(config: pytest.Config, found: Activation) -> None:
    """Read the configuration and register the hooks.

    Raises:
        pytest.UsageError: every fault, one a line (exit 4).
    """
    _refuse_distribution(config)
    _refuse_choosing_by_the_last_run(config)
    if not config.pluginmanager.has_plugin("subtests"):
        raise pytest.UsageError("gates and hosts are reported as sub-tests; leave out `-p no:subtests`")
    try:
        opened = open_run(config, found)
    except ConfigError as error:
        raise pytest.UsageError(*map(str, error.faults)) from error
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []
    reports = set_report_files(config, opened)
    validation = Validation(config, found, opened, reports)
    config.pluginmanager.register(AortaSession(validation), "aorta-session")
    config.pluginmanager.register(UnwrittenReports(validation), "aorta-unwritten-reports")


class AortaSession:
    """The hooks of one validation."""

    def __init__(self, validation: Validation) -> None:
        self.validation = validation

    def pytest_report_header(self) -> list[str]:
        """Say which configuration acts and who named it."""
        return self.validation.header()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Put the stage suite before everything else that the session collects."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            report.result = [self.validation.suite(collector), *report.result]
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Keep the table's order, and to a stored run only what can be done on it."""
        collected = tuple(items)
        yield
        self.validation.arrange(config, items, collected)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Leave the reports of the run before where nothing could be collected."""
        with ExitStack() as unless_collected:
            unless_collected.callback(self.validation.withdraw)
            collected = yield
            unless_collected.pop_all()
        return collected

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Remember what was deselected."""
        self.validation.deselected(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Make the run, now that it is known which stages were selected."""
        self.validation.start(session)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Report a stage whole, whenever a signal comes."""
        with self.validation.whole(item):
            return (yield)

    @pytest.fixture
    def aorta(self, request: pytest.FixtureRequest, subtests: pytest.Subtests) -> Callable[[str], None]:
        """Perform a stage and report it."""
        return self.validation.performer(request, subtests)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, Status, Status]:
        """Leave a stage's letter out where its own line has said it."""
        status = yield
        return self.validation.without_letter(report, status)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Close the run before reports are written; then keep the exit code honest."""
        self.validation.finish(session)
        try:
            return (yield)
        finally:
            self.validation.insist(session)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        """Say how it went, in at most 25 lines."""
        self.validation.summarize(terminalreporter, exitstatus)

    @pytest.hookimpl(tryfirst=True)  # before pytest closes the log
    def pytest_unconfigure(self) -> None:
        """Give the signals back, and leave nothing running if the session never came to its end."""
        self.validation.leave()


class UnwrittenReports:
    """Around the plugins that write reports, within the terminal's own: the summary comes whatever they fail by."""

    def __init__(self, validation: Validation) -> None:
        self.validation = validation

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Let a report that cannot be written cost the exit code, not the summary; keep long logs out of that."""
        try:
            return (yield)
        except OSError as error:
            self.validation.report_failed(session, error)
            return None
        finally:
            if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
                self.validation.shorten(reporter)


def _refuse_distribution(config: pytest.Config) -> None:
    if getattr(config.option, "dist", "no") != "no" or getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(
            "the stages of a validation follow each other and cannot be distributed; drop -n/--dist (or give -n0)"
        )


def _refuse_choosing_by_the_last_run(config: pytest.Config) -> None:
    """A stage needs the ones before it in the same run, so those that failed last time cannot be done by themselves."""
    options = {"lf": "--last-failed", "stepwise": "--stepwise"}
    if given := [flag for name, flag in options.items() if getattr(config.option, name, False)]:
        raise pytest.UsageError(
            f"{given[0]} leaves out stages that the others need; drop it, or judge a stored run again with -k and "
            "--aorta-run last"
        )
