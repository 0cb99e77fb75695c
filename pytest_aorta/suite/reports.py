"""Where reports go: HTML, JUnit and text log, by default below the report folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_aorta.errors import Fault
from pytest_aorta.suite.opening import Opened


@dataclass(frozen=True, slots=True)
class Reports:
    """The report files of this session, None where there is none; `own_junit` if its name is our default."""

    folder: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    log: Path | None = None
    gates: Path | None = None
    own_junit: bool = False

    def paths(self) -> tuple[tuple[str, str], ...]:
        """Give (label, path) of every report."""
        labelled = (("HTML report", self.html), ("JUnit", self.junit), ("log", self.log))
        return tuple((label, str(path)) for label, path in labelled if path is not None)


def set_report_files(config: pytest.Config, opened: Opened) -> Reports:
    """Point pytest's own report writers below the report folder where the user named no files.

    Raises:
        pytest.UsageError: the report folder cannot be written.
    """
    option = config.option
    if option.collectonly:
        return Reports()
    if option.aorta_no_reports:
        return Reports(html=_given(option, "htmlpath"), junit=_given(option, "xmlpath"), log=_given(option, "log_file"))
    folder, stem = opened.report_dir, opened.report_stem
    _require_writable(folder)
    own_junit = not getattr(option, "xmlpath", None)
    # pytest-html cannot work without pytest-metadata.
    if all(map(config.pluginmanager.has_plugin, ("html", "metadata"))) and not getattr(option, "htmlpath", None):
        option.htmlpath = str(folder / f"{stem}.html")
        option.self_contained_html = True
    if config.pluginmanager.has_plugin("junitxml") and own_junit:
        option.xmlpath = str(folder / f"{stem}.xml")
    if config.pluginmanager.has_plugin("logging") and not getattr(option, "log_file", None):
        option.log_file = str(folder / f"{stem}.log")
        option.log_file_level = option.log_file_level or "INFO"
    return Reports(
        folder=folder,
        html=_given(option, "htmlpath"),
        junit=_given(option, "xmlpath"),
        log=_given(option, "log_file"),
        gates=folder / f"{stem}-gates.xml",
        own_junit=own_junit,
    )


def _given(option: object, name: str) -> Path | None:
    value = getattr(option, name, None)
    return Path(value) if value else None


def _require_writable(folder: Path) -> None:
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"\n")
        probe.unlink()
    except OSError as error:
        fault = Fault("--aorta-report-dir", f"{folder} cannot be written ({error.strerror}); name another folder")
        raise pytest.UsageError(str(fault)) from error
