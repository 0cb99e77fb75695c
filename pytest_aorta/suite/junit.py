"""JUnitProperties: sub-tests as properties of a stage's testcase, and the file with one testcase a gate."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from _pytest.junitxml import mangle_test_address, xml_key

from pytest_aorta.reporting.json_report import write_text
from pytest_aorta.reporting.junit import gates_xml, stage_properties
from pytest_aorta.reporting.model import RunView
from pytest_aorta.reporting.text import one_line
from pytest_aorta.suite.rows import STAGE_ROW

log = logging.getLogger("pytest_aorta")
_RECORDED = pytest.StashKey[bool]()


class JUnitProperties:
    """Adds our properties to the testcases that pytest writes, and writes `<suite>-gates.xml` at the end.

    `view` gives the run at the end (None: nothing ran); `gates_file` None writes no second file; `own_file` says that
    the JUnit file is our default one, not one the user named.
    """

    def __init__(self, view: Callable[[], RunView | None], gates_file: Path | None, *, own_file: bool) -> None:
        self._view = view
        self._gates_file = gates_file
        self._own_file = own_file

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Make our own file xunit1, the family whose testcases may hold properties by its schema.

        The writer reads its family only when a testcase is opened, on pytest 8.4 and 9 alike, so setting it here needs
        neither the ini cache nor a rewritten command line, both of which differ between the two.
        """
        writer = session.config.stash.get(xml_key, None)
        if writer is not None and self._own_file:
            writer.family = "xunit1"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record when the call phase ends: a testcase closed by a failing teardown has the call's properties."""
        try:
            return (yield)
        finally:
            _record(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Record for a stage whose row was complete only after the call phase, or which never came to it."""
        _record(item)

    def tell_end(self, config: pytest.Config, why: str, left: str) -> None:
        """Tell of a session that was ended before its last test: the test it ended in has no name yet.

        Where no testcase tells of it, `left` gets one: the node id of the test that would have been next, or of none.
        A run that did not pass by its tests' outcomes alone, such as a failed one that is judged again, gets one too.
        """
        writer = config.stash.get(xml_key, None)
        if left.endswith("::"):
            left += "interruption" if why else "run"
        why = why or _why_not_passed(self._view())
        if writer is None or not why:
            return
        unnamed = [reporter for reporter in writer.node_reporters.values() if "name" not in reporter.attrs]
        if not unnamed and not writer.stats["failure"] + writer.stats["error"]:
            unnamed = [writer.node_reporter(left)]
        for reporter in unnamed:
            *path, name = mangle_test_address(str(reporter.id))
            reporter.attrs.update(classname=".".join(filter(None, [writer.prefix, *path])), name=name)
            reporter.append(ET.Element("error", message=why))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the file of gates."""
        view = self._view() if self._gates_file is not None else None
        if view is None or self._gates_file is None:
            return
        try:
            write_text(self._gates_file, gates_xml(view))
        except OSError as error:
            log.warning("%s could not be written (%s); the gates stand in the JUnit file too", self._gates_file, error)


def _why_not_passed(view: RunView | None) -> str:
    return one_line(view.sentence) if view is not None and view.verdict != "passed" else ""


def _record(item: pytest.Item) -> None:
    row = item.stash.get(STAGE_ROW, None)
    if row is not None and not item.stash.get(_RECORDED, False):
        item.stash[_RECORDED] = True
        item.user_properties.extend(stage_properties(row))
