"""Where reports go: HTML, JUnit and text log, by default below the report folder."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.junitxml import xml_key

from pytest_aorta.errors import Fault
from pytest_aorta.plugin import LAST_RUN
from pytest_aorta.reporting.bundle import LISTS
from pytest_aorta.run.gating import BOTH
from pytest_aorta.suite.html import forget_pages
from pytest_aorta.suite.opening import Opened

_KINDS = (".html", ".xml", "-gates.xml", ".log", "-verdict.json")
_INPUTS = ("--aorta-config", "--aorta-cluster", "--aorta-thresholds")
# Sessions of pytest that print something and run no test.
_LISTING = ("collectonly", "showfixtures", "show_fixtures_per_test", "cacheshow", "setuponly", "setupplan")


@dataclass(frozen=True, slots=True)
class Reports:
    """The report files of this session, None where there is none; `own_*` if the name is our default.

    `earlier` are the files, `pages` the folders of pages, that may be there of the run before.
    """

    folder: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    log: Path | None = None
    gates: Path | None = None
    own_html: bool = False
    own_junit: bool = False
    own_log: bool = False
    earlier: tuple[Path, ...] = ()
    pages: tuple[Path, ...] = ()
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
        """Take away the reports of the run before, and begin the text log.

        Raises:
            OSError: one stays.
        """
        for old in self.earlier:
            if old.is_file():
                old.unlink()
        for folder in self.pages:
            forget_pages(folder)
        writer = config.pluginmanager.get_plugin("logging-plugin")
        if self.own_log and writer is not None:
            writer.set_log_path(str(self.log))

    def end(self, config: pytest.Config) -> None:
        """Have the text log written to its end, or let go of the rest: pytest would end with a traceback over it.

        Raises:
            OSError: it is not whole.
        """
        writer = config.pluginmanager.get_plugin("logging-plugin")
        if writer is None:
            return
        handler = writer.log_file_handler
        try:
            handler.flush()
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, handler.stream.fileno())
            os.close(nowhere)
            raise OSError(error.errno, error.strerror, handler.stream.name) from error

    def withdraw(self, config: pytest.Config) -> None:
        """Take our files back from pytest's writers, because no stage is run: the last run's reports stay."""
        plugins = config.pluginmanager
        if self.own_junit and (junit := config.stash.get(xml_key, None)) is not None:
            plugins.unregister(junit)
            del config.stash[xml_key]
        if self.own_html:
            plugins.unregister(name="aorta-html")
            for plugin in _html_writers(config):
                plugins.unregister(plugin)

    def write_rest(self, session: pytest.Session, *, html: bool) -> None:
        """Write what pytest left out when a report before it could not be written: the gates, and the page.

        Raises:
            OSError: the page cannot be written either.
        """
        plugins = session.config.pluginmanager
        names = ("aorta-junit", *(("aorta-html",) if html else ()))
        rest = [plugins.get_plugin(name) for name in names] + (_html_writers(session.config) if html else [])
        others = [plugin for plugin in plugins.get_plugins() if plugin not in rest]
        plugins.subset_hook_caller("pytest_sessionfinish", others)(session=session, exitstatus=session.exitstatus)

    def paths(self) -> tuple[tuple[str, str], ...]:
        """Give (label, path) of every report; the log only while it is there."""
        log = self.log if self.log is not None and self.log.is_file() else None
        labelled = (("HTML report", self.html), ("JUnit", self.junit), ("log", log))
        return tuple((label, str(path)) for label, path in labelled if path is not None)

    def packed(self) -> dict[str, Path]:
        """Give the files for the bundle by their names in it, which are their own: pages link each other by these."""
        own = [path for path in (self.html, self.junit, self.gates, self.log) if path is not None]
        found: dict[str, Path] = {}
        for path in own:
            found[path.name if path.name not in found else f"{len(found)}-{path.name}"] = path
        return found


def runs_nothing(config: pytest.Config) -> bool:
    """Tell whether this session only prints what it knows of tests, and runs none."""
    return any(getattr(config.option, name, False) for name in _LISTING)


def set_report_files(config: pytest.Config, opened: Opened) -> Reports:
    """Point pytest's own report writers below the report folder where the user named no files.

    Raises:
        pytest.UsageError: a report cannot be written where it is to stand.
    """
    option = config.option
    if runs_nothing(config):
        return Reports()
    named = {kind: _named(config, kind) for kind in ("htmlpath", "xmlpath", "log_file")}
    for flag, kind in (("--html", "htmlpath"), ("--junitxml", "xmlpath")):
        if (path := named[kind]) is not None:
            _require_openable(flag, path)
    inputs = _inputs(config, opened)
    if option.aorta_no_reports:
        html, junit, log = named.values()
        _require_apart({"--html": html, "--junitxml": junit, "--log-file": log}, inputs)
        _require_folders("--html", _pages((opened.report_stem,), html))
        return Reports(
            html=html, junit=junit, log=log, earlier=_targets(html, junit), pages=_pages((opened.report_stem,), html)
        )
    folder, stem = opened.report_dir, opened.report_stem
    # pytest-html cannot work without pytest-metadata.
    own_html = named["htmlpath"] is None and all(map(config.pluginmanager.has_plugin, ("html", "metadata")))
    own_junit = named["xmlpath"] is None and config.pluginmanager.has_plugin("junitxml")
    own_log = named["log_file"] is None and config.pluginmanager.has_plugin("logging")
    default = folder / f"{stem}.html"
    html = default if own_html else named["htmlpath"]
    junit = folder / f"{stem}.xml" if own_junit else named["xmlpath"]
    log = folder / f"{stem}.log" if own_log else named["log_file"]
    lists = () if opened.stored else tuple(folder / name for name in LISTS)
    last = () if opened.stored else (folder / LAST_RUN,)
    gates = folder / f"{stem}-gates.xml"
    ours = {f"our {path.name}": path for path in (gates, *lists, *last)}
    _require_apart({"--html": html, "--junitxml": junit, "--log-file": log}, {**ours, **inputs})
    _require_writable(folder, (html, junit, log, gates, *lists, *last))
    _require_folders("--aorta-report-dir" if own_html else "--html", _pages((stem,), html))
    if own_html:
        option.htmlpath = str(html)
        option.self_contained_html = True
    if own_junit:
        option.xmlpath = str(junit)
    if own_log:
        option.log_file_level = option.log_file_level or "INFO"
    stems = (stem,) if opened.stored else tuple(f"aorta_{suite}{each}" for suite in BOTH for each in ("", "-rejudged"))
    defaults = (folder / f"{each}{kind}" for each in stems for kind in _KINDS)
    earlier = {*_targets(*defaults, *lists, html, junit)}
    return Reports(
        folder=folder,
        earlier=tuple(earlier - {*_targets(named["log_file"])}),  # pytest has opened that already
        pages=tuple({*_pages(stems, default), *_pages(stems, html)}),
        html=html,
        junit=junit,
        log=log,
        gates=gates,
        own_html=own_html,
        own_junit=own_junit,
        own_log=own_log,
    )


def unwritten(error: OSError) -> str:
    """Say which report could not be written or taken away, and what to do."""
    what = error.filename or "the reports"
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    step = "free space" if full else "see that it is a file, in a folder that can be written,"
    return f"{what} could not be written: {error.strerror or error}; {step} and run again"


def _html_writers(config: pytest.Config) -> list[object]:
    return [each for each in config.pluginmanager.get_plugins() if type(each).__module__.startswith("pytest_html.")]


def _named(config: pytest.Config, option: str) -> Path | None:
    """Give the file that the user named, as pytest's writers understand it."""
    value = getattr(config.option, option, None)
    return Path(config.invocation_params.dir, os.path.expandvars(value)).expanduser() if value else None


def _inputs(config: pytest.Config, opened: Opened) -> dict[str, Path]:
    """Give the files that are read, by what they are: those of the settings, and those of the command line."""
    options = {f"the file of {flag}": getattr(config.option, flag[2:].replace("-", "_")) for flag in _INPUTS}
    named = {label: config.invocation_params.dir / value for label, value in options.items() if value}
    return {f"the {file.kind} file": file.path for file in opened.settings.inputs} | named


def _targets(*files: Path | None) -> tuple[Path, ...]:
    """Give the files that are written to: of a link what it leads to."""
    return tuple(file.resolve() for file in files if file is not None)


def _pages(stems: Sequence[str], html: Path | None) -> tuple[Path, ...]:
    """Give the folders of pages beside a report."""
    return tuple(html.parent / f"{stem}_html" for stem in stems) if html is not None else ()


def _require_writable(folder: Path, files: Sequence[Path | None]) -> None:
    """Refuse a folder that no report can be written to, and folders where files are to stand."""
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"\n")
        probe.unlink()
    except OSError as error:
        fault = Fault("--aorta-report-dir", f"{folder} cannot be written ({error.strerror}); name another folder")
        raise pytest.UsageError(str(fault)) from error
    if taken := [str(file) for file in files if file is not None and file.is_dir()]:
        why = f"{', '.join(taken)} is a folder where a file is to be written; remove it, or name another report folder"
        raise pytest.UsageError(str(Fault("--aorta-report-dir", why)))


def _require_apart(reports: Mapping[str, Path | None], others: Mapping[str, Path]) -> None:
    """Refuse a report where another file stands or is written: one of the two would be lost."""
    taken = {path.resolve(): label for label, path in others.items()}
    for flag, path in reports.items():
        if path is not None and (label := taken.setdefault(path.resolve(), flag)) != flag:
            raise pytest.UsageError(str(Fault(flag, f"{path} is {label} already; name another file")))


def _require_folders(flag: str, folders: Sequence[Path]) -> None:
    """Refuse a file where a folder of pages is to stand."""
    if taken := [str(folder) for folder in folders if os.path.lexists(folder) and not folder.is_dir()]:
        why = f"{', '.join(taken)} is no folder, and pages are to be written there; remove it, or name another folder"
        raise pytest.UsageError(str(Fault(flag, why)))


def _require_openable(flag: str, path: Path) -> None:
    """Refuse a file that cannot be written: pytest itself would say so only after the run."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        return  # a pipe would wait for its reader
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        fault = Fault(flag, f"{path} cannot be written ({error.strerror}); name another file")
        raise pytest.UsageError(str(fault)) from error
