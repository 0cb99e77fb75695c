"""`aorta runs` and `aorta clean`: what was run, and taking away what a run left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from pytest_aorta.checks import show as show_value
from pytest_aorta.cli_layout import cut, line_width, wrapped
from pytest_aorta.config.cluster import Cluster
from pytest_aorta.config.load import load
from pytest_aorta.errors import AortaError, ConfigError
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.deck_page import DECK, PAGE, DeckPlace
from pytest_aorta.reporting.model import without_cause
from pytest_aorta.reporting.terminal import summary
from pytest_aorta.reporting.text import clean as clean_text
from pytest_aorta.reporting.text import one_line
from pytest_aorta.run.cleaning import Cleaned, is_left_over, why_not
from pytest_aorta.run.cleaning import clean as clean_run
from pytest_aorta.run.conclusion import conclude, view_of
from pytest_aorta.run.deck import draw
from pytest_aorta.run.folder import RunFolder, read_regular
from pytest_aorta.run.hosts import unusable_here
from pytest_aorta.run.record import RunRecord, find_runs, read
from pytest_aorta.run.schema import DOCUMENTS, DocumentKind, schema_text
from pytest_aorta.run.sweeping import sweep
from pytest_aorta.suite.opening import DEFAULT_OUTPUT, find_run
from pytest_aorta.table import STAGES

_LEAST_PREFIX = 8
_WIDEST_NAME = 30


def _is_given(context: click.Context, name: str) -> bool:
    """Tell whether an option was typed, after this command or after the group above it."""
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def _existing(context: click.Context, option: click.Parameter, folder: Path) -> Path:
    """Refuse a folder that was typed and is not there: a typing error would look like a place without runs."""
    if _is_given(context, str(option.name)) and not folder.is_dir():
        raise click.BadParameter(f"{folder}: no such folder; name the one that holds the run folders")
    return folder


output_option = click.option(
    "--output",
    "output_dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_OUTPUT,
    show_default=True,
    callback=_existing,
    help="Where run folders are (the configuration's output_dir).",
)
reports_option = click.option(
    "--report-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="aorta_reports",
    show_default=True,
    help="Where reports are; `last` is looked up there.",
)


@click.group(invoke_without_command=True)
@output_option
@click.pass_context
def runs(context: click.Context, output_dir: Path) -> None:
    """List runs, or show one.

    Example: aorta runs show last
    """
    if context.invoked_subcommand is None:
        _list(output_dir)
    elif _is_given(context, "output_dir"):
        context.default_map = {"list": {"output_dir": output_dir}, "show": {"output": output_dir}}


@runs.command("list")
@output_option
def list_runs(output_dir: Path) -> None:
    """List every run with its state: a verdict, running, abandoned, or elsewhere (begun on another machine).

    Example: aorta runs list --output aorta_results
    """
    _list(output_dir)


@runs.command()
@click.argument("run")
@click.option("--html", "as_page", is_flag=True, help="Draw the Run Deck again, a page and its JSON; open nothing.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=DEFAULT_OUTPUT,
    show_default=True,
    help="Where run folders are (the configuration's output_dir); beside --html, a FILE.html to write the deck to, by "
    "default in the run folder.",
)
@reports_option
@click.pass_context
def show(context: click.Context, run: str, as_page: bool, output: Path, report_dir: Path) -> None:
    """Show a run: its verdict, stages and metrics. RUN is an id, a unique prefix, a folder, or `last`.

    Example: aorta runs show last --html --output deck.html
    """
    is_page = as_page and output.suffix.lower() in {".html", ".htm"}
    output_dir = Path(DEFAULT_OUTPUT) if is_page else output
    is_given = _is_given(context, "output") and not is_page
    if is_given and not output_dir.is_dir():
        raise click.BadParameter(
            f"{output}: no such folder; name the one that holds the run folders, or beside --html a FILE.html to write",
            param_hint="'--output'",
        )
    folder = _find(run, output_dir, report_dir, is_given=is_given)
    record = _as_it_stands(read(folder))
    if as_page:
        _draw(record, folder, output if is_page else folder.path / PAGE)
        return
    view = view_of(record, folder)
    click.echo(one_line(f"run {record.run_id} ({record.state}), {record.created}, aorta_{record.suite}"))
    for stage in view.stages:
        told = f"{stage.outcome:<11} {stage.name:<26} {stage.seconds:8.2f} s  {without_cause(stage.reason)}"
        line = f"  {clean_text(told)}"
        click.echo("\n".join(wrapped(line.rstrip(), indent=14)))
    headline, *rest = summary(replace(view, metrics={}))
    if record.finished is None:
        headline = f"{record.state.upper()}: {record.sentence}"
    for line in (*_metric_lines(view.metrics), headline, *rest):
        click.echo(clean_text(line))
    if record.remark:
        click.echo(one_line(f"this run was {record.remark}"))


@runs.command()
@click.argument("kind", type=click.Choice(list(DOCUMENTS)))
def schema(kind: DocumentKind) -> None:
    """Print the JSON schema of a document of a run.

    Example: aorta runs schema metrics
    """
    click.echo(schema_text(kind), nl=False)


@click.command()
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run that is not running now.")
@click.option("--force", is_flag=True, help="Also a RUN begun on another machine whose pytest is certainly gone.")
@click.option(
    "--aorta-cluster",
    "--cluster",
    "cluster_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Cluster file: how its hosts are reached; without RUN, all dead runs are swept from them.",
)
@output_option
@reports_option
@click.pass_context
def clean(
    context: click.Context,
    run: str | None,
    every: bool,
    force: bool,
    cluster_file: Path | None,
    output_dir: Path,
    report_dir: Path,
) -> None:
    """End processes, remove containers and work folders that runs left; without RUN, those of abandoned runs.

    Run folders with results are kept: to drop a run for good, delete its folder. A run that is running now is never
    touched, one begun on another machine only when it is named by its id with --force. With a cluster file and without
    RUN, the hosts themselves are looked at too: what a run left there whose programs are dead is taken away, also when
    its folder is not here. Persistent containers stay.

    Example: aorta clean --aorta-cluster cluster.json
    """
    cluster = _cluster(cluster_file) if cluster_file is not None else None
    if run is not None and not run.strip():
        raise ConfigError("RUN is empty; give an id, or leave it out to clean abandoned runs")
    if force and (run is None or run == "last"):
        raise ConfigError("--force needs the run's id: aorta clean RUN --force; see `aorta runs`")
    if run is not None:
        folder = _find(run, output_dir, report_dir, is_given=_is_given(context, "output_dir"))
        record = read(folder)
        if refused := why_not(record, named=run != "last", force=force):
            raise ConfigError(refused)
        sys.exit(not _clean(folder, record, cluster))
    good, touched = True, 0
    for folder in find_runs(output_dir):
        try:
            record = read(folder)
        except ConfigError as error:
            click.echo(f"{folder.run_id}: left alone: {error}", err=True)
            good = False
            continue
        if record.presence == "elsewhere":
            click.echo(f"{record.run_id} (elsewhere): left alone: {why_not(record, named=False, force=False)}")
        elif is_left_over(record) or (every and record.presence == "finished"):
            touched += 1
            good = _clean(folder, record, cluster) and good
    if not touched:
        click.echo(f"nothing to clean: no abandoned or uncleaned run in {output_dir}")
    if cluster is not None:
        click.echo(f"hosts of {cluster_file}")
        good = _tell(sweep(cluster)) and good
    sys.exit(not good)


def _as_it_stands(record: RunRecord) -> RunRecord:
    """Give an unfinished run the only verdict that it can have: whatever its stages came to, it is none yet."""
    if record.finished is not None:
        return record
    why = {
        "running": f"its pytest (pid {record.pid}) still runs; no verdict yet",
        "abandoned": f"its pytest (pid {record.pid}) is gone, and it has no verdict; see `aorta clean {record.run_id}`",
    }.get(record.presence, "it has no verdict; see where it was begun")
    verdict, sentence = conclude(record.stages, record.plan, cut_short=why)
    return record.model_copy(update={"verdict": verdict, "sentence": sentence})


def _find(run: str, output_dir: Path, report_dir: Path, *, is_given: bool) -> RunFolder:
    """Find a run; `last` is looked up beside the reports, and must be in the output folder where one was typed."""
    folder = find_run(run, report_dir.absolute(), output_dir.absolute(), asked="RUN")
    if is_given and run == "last" and folder.path.parent.resolve() != output_dir.resolve():
        raise ConfigError(
            f"RUN: the last run of {report_dir} is {folder.path}, which is not in {output_dir}; leave --output out, or "
            "name the run by its id"
        )
    return folder


def _draw(record: RunRecord, folder: RunFolder, page: Path) -> None:
    """Draw a stored run's deck, and say where it is."""
    html, log = _reports(record)
    deck = DeckPlace(page, {stage.test: stage.label for stage in STAGES}, html=html, log=log)
    if not page.exists() and (taken := [path for path in deck.beside if path.exists()]):
        raise ConfigError(f"{taken[0]} is there already and would be overwritten; name another page than {page}")
    if why := draw(record, folder, deck):
        raise AortaError(f"{page}: {why}")
    click.echo(f"{DECK}: {page}")
    click.echo(f"its JSON: {deck.data}")


def _reports(record: RunRecord) -> tuple[Path | None, Path | None]:
    """Give the run's HTML report and log, as long as they are its own: the next run writes to the same names."""
    html, log = (Path(record.reports.get(label, "")) for label in ("HTML report", "log"))
    try:
        is_own = record.run_id in read_regular(html).decode("utf-8")
    except (OSError, ValueError):
        is_own = False
    return (html, log if log.is_file() else None) if is_own else (None, None)


def _cluster(path: Path) -> Cluster:
    nothing = {"schema_version": 1, "gpus_per_node": 1, "enforce_thresholds": False}
    return load(path, cluster=path, config_text=nothing, also=unusable_here).cluster


def _clean(folder: RunFolder, record: RunRecord, cluster: Cluster | None) -> bool:
    click.echo(f"{record.run_id} ({record.state})")
    try:
        return _tell(clean_run(folder, record, cluster))
    except (AortaError, OSError) as error:
        click.echo(f"  could not be cleaned: {error}", err=True)
        return False


def _tell(result: Cleaned) -> bool:
    if not result.done and not result.problems:
        click.echo("  nothing was left")
    for line in result.done:
        click.echo(f"  {line}")
    for line in result.problems:
        click.echo(f"  could not be cleaned: {line}", err=True)
    return not result.problems


def _metric_lines(metrics: Mapping[str, Metric]) -> Iterator[str]:
    """Give the metrics below their source, then what was not measured below its reason."""
    by_source: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for name, metric in metrics.items():
        if metric.value is None:
            missing.setdefault(metric.why, []).append(name)
        else:
            shown = show_value(metric.value, metric.unit, name)
            by_source.setdefault(metric.source, []).append(f"    {name:<34} {shown:>20}")
    for source, lines in by_source.items():
        yield from wrapped(f"  {source}:", indent=4)
        yield from lines
    for why, names in missing.items():
        yield from wrapped(f"  not measured, because {why}: {', '.join(names)}", indent=4)


def _list(output_dir: Path) -> None:
    """Print a line a run, as wide as the terminal, if it goes to one; ids are cut to what tells them apart."""
    found: list[RunFolder] = find_runs(output_dir)
    if not found:
        click.echo(f"no runs in {output_dir}")
        return
    length = _prefix_length([folder.run_id for folder in found])
    rows: list[tuple[str, ...]] = [("run", "state", "begun (UTC)", "suite", "config", "")]
    for folder in found:
        try:
            record = read(folder)
        except ConfigError as error:
            click.echo(f"{folder.run_id}  damaged: {error}", err=True)
            continue
        said = "; ".join(part for part in (record.remark, record.sentence) if part)
        begun, config = record.created[:16].replace("T", " "), Path(record.inputs.get("config", "")).name
        name = cut(one_line(config), _WIDEST_NAME)
        rows.append((record.run_id[:length], record.state, begun, record.suite, name, one_line(said)))
    *widths, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    for row in rows if len(rows) > 1 else ():
        cells = (f"{cell:{width}}" for cell, width in zip(row, (*widths, 0), strict=True))
        click.echo(cut(clean_text("  ".join(cells).rstrip()), line_width()))


def _prefix_length(names: Sequence[str]) -> int:
    """Give how many characters tell the names apart, eight at least."""
    longest = max(map(len, names))
    return next((n for n in range(_LEAST_PREFIX, longest) if len({name[:n] for name in names}) == len(names)), longest)
