"""Opening a run: from options to settings, and from settings to a pipeline of stages."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_aorta import __version__
from pytest_aorta.config.cluster import Cluster
from pytest_aorta.config.document import PathFault
from pytest_aorta.config.load import load
from pytest_aorta.config.model import RunConfig
from pytest_aorta.config.settings import Settings, restore
from pytest_aorta.config.threshold_file import load_thresholds
from pytest_aorta.errors import ConfigError, Fault
from pytest_aorta.plugin import LAST_RUN, Activation
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.folder import RunFolder, is_run_id, new_run_id
from pytest_aorta.run.gating import Pipeline, Stage, bare
from pytest_aorta.run.hosts import clashing_folders, engine_of, fleet_of, not_in_this_version, unusable_here
from pytest_aorta.run.interruption import Interruption
from pytest_aorta.run.products import stored_types
from pytest_aorta.run.record import JudgementKeeper, RecordKeeper, RunRecord, find_runs, is_run_folder, now, read
from pytest_aorta.stages.bundle import not_in_bundle, refused_by_bundle
from pytest_aorta.stages.measures import unknown_metrics
from pytest_aorta.stages.source import unusable_parser
from pytest_aorta.stages.thresholds import without_limit
from pytest_aorta.table import STAGES, stages_of

DEFAULT_OUTPUT = "aorta_results"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """An earlier run, taken up: files only, nothing live."""

    folder: RunFolder
    record: RunRecord


@dataclass(frozen=True, slots=True)
class Opened:
    """What was asked for: settings, and the stored run they are applied to, if any."""

    settings: Settings
    stored: StoredRun | None
    report_dir: Path

    @property
    def suite_name(self) -> str:
        """The name under which tests and reports stand: aorta_single or aorta_distributed."""
        return f"aorta_{self.settings.suite}"

    @property
    def report_stem(self) -> str:
        """The reports' file name; those of a later judging stand beside the run's own."""
        return f"{self.suite_name}-rejudged" if self.stored else self.suite_name


def open_run(config: pytest.Config, found: Activation) -> Opened:
    """Read the settings that the options ask for; nothing is made or contacted.

    Raises:
        ConfigError: every fault of files and options at once.
    """
    option = config.option
    cwd = config.invocation_params.dir
    report_dir = cwd / option.aorta_report_dir
    stored = _stored(found.run, report_dir, cwd / (option.aorta_output or DEFAULT_OUTPUT)) if found.run else None
    thresholds = cwd / option.aorta_thresholds if option.aorta_thresholds else None
    if found.config_file is not None:
        settings = load(
            found.config_file,
            cluster=cwd / option.aorta_cluster if option.aorta_cluster else None,
            thresholds=thresholds,
            sets=option.aorta_set,
            output=cwd / option.aorta_output if option.aorta_output else None,
            suite=option.aorta_suite,
            cwd=cwd,
            also=unknown_metrics if option.collectonly else undoable if stored else _undoable_here,
        )
        if stored is not None:
            settings = _judging_by(settings, restore(stored.record.config))
    elif stored is not None:
        _refuse_unused(option)
        settings = restore(stored.record.config)
        if thresholds is not None:
            settings = replace(settings, thresholds=load_thresholds(thresholds))
    else:
        raise ConfigError("no configuration; give --aorta-config FILE")
    if thresholds is not None and not settings.config.enforce_thresholds:
        # Who names limits on the command line wants to be told whether they hold.
        settings = replace(settings, config=settings.config.model_copy(update={"enforce_thresholds": True}))
    if thresholds is not None and not settings.thresholds.any_set() and not settings.config.gates:
        raise ConfigError([Fault(str(thresholds), "sets no limit, so that nothing would be judged; set one of them")])
    if not option.collectonly:
        _refuse_pointless(settings, found.config_file if stored is None else None)
    return Opened(settings, stored, report_dir)


def _refuse_pointless(settings: Settings, config_file: Path | None) -> None:
    """Refuse a run whose green would say nothing, or whose results would be removed with its work folder."""
    faults = [*without_limit(settings), *(clashing_folders(settings) if config_file else ())]
    where = f"{config_file}: " if config_file else ""
    if faults:
        raise ConfigError([Fault(f"{where}{fault.where}", fault.message) for fault in faults])


def undoable(config: RunConfig, cluster: Cluster | None) -> Iterator[PathFault]:
    """Give what no run of this version can do: files and metrics that it has not, ways to reach and run hosts."""
    yield from not_in_bundle(config)
    yield from refused_by_bundle(config)
    yield from not_in_this_version(config, cluster)
    yield from unknown_metrics(config, cluster)


def _undoable_here(config: RunConfig, cluster: Cluster | None) -> Iterator[PathFault]:
    yield from undoable(config, cluster)
    yield from lacking_here(config, cluster)


def lacking_here(config: RunConfig, cluster: Cluster | None) -> Iterator[PathFault]:
    """Give what a run needs and this machine lacks: a parser's package, files for ssh."""
    yield from unusable_parser(config)
    yield from unusable_here(config, cluster)


def begin_run(opened: Opened, interruption: Interruption, selected: Sequence[Stage]) -> Pipeline:
    """Make the run folder and the record of a new run, or take up the stored one.

    Raises:
        ConfigError: the output folder cannot be written, or this version cannot reach the hosts as asked.
    """
    settings = opened.settings
    if opened.stored is None:
        folder = replace(RunFolder.create(settings.output_dir, new_run_id()), secrets=settings.secrets())
        keeper = RecordKeeper.begin(
            folder,
            suite=settings.suite,
            plan=tuple(stage.test for stage in stages_of(settings.suite)),
            config=settings.document(),
            inputs={item.kind: str(item.path) for item in settings.inputs},
            environment=environment(),
        )
    else:
        folder = replace(opened.stored.folder, judgement=now().replace(":", ""), secrets=settings.secrets())
        keeper = JudgementKeeper(folder, opened.stored.record)

    def say(text: str) -> None:
        run.progress(text)

    run = RunContext(
        settings=settings,
        folder=folder,
        record=keeper,
        fleet=fleet_of(settings),
        engine=engine_of(settings, say),
        interruption=interruption,
    )
    if opened.stored is not None:
        for kind in stored_types().values():
            if (product := opened.stored.record.product(kind)) is not None:
                run.products[kind] = product
    return Pipeline(run, STAGES, absence=_absence(opened.stored))


def refuse_live(selected: Sequence[Stage]) -> None:
    """Refuse stages that need something a stored run no longer has.

    Raises:
        ConfigError: names them, and what to do instead.
    """
    live = [stage.test for stage in selected if not stage.rejudges]
    if live:
        rejudging = ", ".join(stage.test for stage in stages_of("distributed") if stage.rejudges)
        raise ConfigError(
            f"{', '.join(live)} needs live hosts and cannot be done on a stored run; start a new run with "
            f"--aorta-config FILE, or select among {rejudging}"
        )


def refuse_nothing_to_judge(selected: Sequence[Stage]) -> None:
    """Refuse a new run of stages that only work on what other stages collect.

    Raises:
        ConfigError: says how an earlier run is judged by them.
    """
    if all(stage.rejudges for stage in selected):
        names = " or ".join(stage.test for stage in selected)
        raise ConfigError(
            f"{names} alone has nothing to judge in a new run; -k with one stage's whole name judges the last run, and "
            "--aorta-run=ID any other"
        )


def environment() -> dict[str, str]:
    """Give the versions a result depends on, on the machine that runs pytest."""
    return {
        "pytest-aorta": __version__,
        "Python": platform.python_version(),
        "Platform": platform.platform(),
        "torch": _version("torch") or "not installed",
    }


def remember(report_dir: Path, folder: RunFolder, suite: str) -> None:
    """Note which run was last, for `pytest -k` alone and `--aorta-run last`."""
    report_dir.mkdir(parents=True, exist_ok=True)
    document = {"run_id": folder.run_id, "folder": str(folder.path), "suite": suite}
    (report_dir / LAST_RUN).write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def _stored(name: str, report_dir: Path, output_dir: Path) -> StoredRun:
    folder = find_run(name, report_dir, output_dir)
    record = read(folder)
    if record.presence == "running":
        why = f"run {record.run_id} is still going on (pytest has pid {record.pid}); wait for its end, then judge it"
        raise ConfigError([Fault("--aorta-run", why)])
    return StoredRun(folder, record)


def find_run(name: str, report_dir: Path, output_dir: Path, *, asked: str = "--aorta-run") -> RunFolder:
    """Find a run by id, unique prefix, folder, or `last`; `asked` is what the user typed to name it.

    Raises:
        ConfigError: there is none, or several begin so.
    """
    if name == "last":
        return RunFolder(_last(report_dir / LAST_RUN, asked))
    if is_run_folder(Path(name)):
        return RunFolder(Path(name).resolve())
    runs = find_runs(output_dir)
    matching = [run for run in runs if run.run_id.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    seen = (
        f"{len(matching)} runs begin with it: {', '.join(run.run_id for run in matching[:5])}"
        if matching
        else (f"{output_dir} has {len(runs)} runs, none begins with it")
    )
    raise ConfigError([Fault(asked, f"no single run {name[:80]!r}: {seen}; see `aorta runs`")])


def _last(path: Path, asked: str) -> Path:
    try:
        folder = Path(json.loads(path.read_text("utf-8"))["folder"])
    except OSError as error:
        raise ConfigError([Fault(asked, f"no last run: {path} cannot be read ({error.strerror})")]) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError([Fault(asked, f"{path} is damaged; name the run by its id")]) from error
    if not is_run_folder(folder):
        raise ConfigError([Fault(asked, f"the last run's folder {folder} is gone; name another run by its id")])
    _refuse_outdated(path, folder, asked)
    return folder


def _refuse_outdated(path: Path, folder: Path, asked: str) -> None:
    """Refuse a last run after which others began that wrote their reports elsewhere, or none: its verdict is old."""
    later = [run.run_id for run in find_runs(folder.parent) if run.run_id > folder.name and is_run_id(run.run_id)]
    if later:
        why = (
            f"{path} names {folder.name} as the last run, but {folder.parent} has a later one, {later[-1]}, which "
            "wrote its reports elsewhere or none; name the one that you mean by its id"
        )
        raise ConfigError([Fault(asked, why)])


def _absence(stored: StoredRun | None) -> str:
    if stored is None:
        return ""
    cause = next((s for s in stored.record.stages.values() if s.outcome in {"failed", "interrupted"}), None)
    why = f" ({cause.name}: {bare(cause.reason)})" if cause is not None else ""
    if cause is None and stored.record.finished is None:
        why = " (its pytest was ended before it got there)"
    instead = "run again with --aorta-config FILE, or judge another of `aorta runs` with --aorta-run"
    return f"which run {stored.record.run_id} does not have{why}; {instead}"


def _judging_by(given: Settings, stored: Settings) -> Settings:
    """Give the stored run's settings with the limits of another configuration; nothing else of it applies."""
    limits = {"gates": given.config.gates, "enforce_thresholds": given.config.enforce_thresholds}
    return replace(stored, thresholds=given.thresholds, config=stored.config.model_copy(update=limits))


def _refuse_unused(option: object) -> None:
    flags = {"aorta_cluster": "--aorta-cluster", "aorta_set": "--aorta-set", "aorta_suite": "--aorta-suite"}
    if unused := [flag for name, flag in flags.items() if getattr(option, name)]:
        raise ConfigError(f"{', '.join(unused)} changes a configuration file; give --aorta-config FILE beside it")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
