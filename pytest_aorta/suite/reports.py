"""Where reports go: HTML, JUnit and text log, by default below the report folder."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.junitxml import xml_key

from pytest_aorta.errors import Fault
from pytest_aorta.suite.opening import Opened


@dataclass(frozen=True, slots=True)
class Reports:
    """The report files of this session, None where there is none; `own_*` if the name is our default."""

    folder: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    log: Path | None = None
    gates: Path | None = None
    own_html: bool = False
    own_junit: bool = False
    own_log: bool = False
    stale: tuple[Path, ...] = ()
    _held: list[int] = field(default_factory=list)

    def hold(self) -> None:
        """Keep other runs out of the report folder until `release`; where locks do not work there is none.

        Raises:
            BlockingIOError: a run that has not ended yet writes its reports there.
        """
        if self.folder is None:
            return
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._held.append(folder)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise
        except OSError:  # a file system without locks on folders
            self.release()

    def release(self) -> None:
        """Let other runs write their reports here."""
        while self._held:
            os.close(self._held.pop())

    def begin(self, config: pytest.Config) -> None:
        """Begin the text log, and take away reports of earlier runs that this one does not write anew."""
        writer = config.pluginmanager.get_plugin("logging-plugin")
        if self.own_log and writer is not None:
            writer.set_log_path(str(self.log))
        for stale in self.stale:
            stale.unlink(missing_ok=True)

    def withdraw(self, config: pytest.Config) -> None:
        """Take our files back from pytest's writers, because no stage is run: the last run's reports stay."""
        plugins = config.pluginmanager
        if self.own_junit and (junit := config.stash.get(xml_key, None)) is not None:
            plugins.unregister(junit)
            del config.stash[xml_key]
        if self.own_html:
            plugins.unregister(name="aorta-html")
            for plugin in list(plugins.get_plugins()):
                if type(plugin).__module__.startswith("pytest_html."):
                    plugins.unregister(plugin)

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
    own_html, own_log = False, False
    # pytest-html cannot work without pytest-metadata.
    if all(map(config.pluginmanager.has_plugin, ("html", "metadata"))) and not getattr(option, "htmlpath", None):
        option.htmlpath = str(folder / f"{stem}.html")
        option.self_contained_html = True
        own_html = True
    if config.pluginmanager.has_plugin("junitxml") and own_junit:
        option.xmlpath = str(folder / f"{stem}.xml")
    if config.pluginmanager.has_plugin("logging") and not getattr(option, "log_file", None):
        option.log_file_level = option.log_file_level or "INFO"
        own_log = True
    named = {"html": getattr(option, "htmlpath", None), "xml": getattr(option, "xmlpath", None)}
    return Reports(
        folder=folder,
        stale=(
            *(folder / f"{stem}.{kind}" for kind, path in named.items() if not path),
            *(folder / name for name in ("verdict.json", "failing_nodes.txt", "good_nodes.txt") if not opened.stored),
        ),
        html=_given(option, "htmlpath"),
        junit=_given(option, "xmlpath"),
        log=folder / f"{stem}.log" if own_log else _given(option, "log_file"),
        gates=folder / f"{stem}-gates.xml",
        own_html=own_html,
        own_junit=own_junit,
        own_log=own_log,
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
