"""`aorta runs` and `aorta clean`: what was run, and taking away what a run left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pytest_aorta.checks import show as show_value
from pytest_aorta.errors import AortaError, ConfigError
from pytest_aorta.reporting.terminal import summary
from pytest_aorta.run.cleaning import clean as clean_run
from pytest_aorta.run.cleaning import is_left_over, why_not
from pytest_aorta.run.conclusion import view_of
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.record import RunRecord, find_runs, read
from pytest_aorta.run.schema import DOCUMENTS, DocumentKind, schema_text
from pytest_aorta.suite.opening import DEFAULT_OUTPUT, find_run

output_option = click.option(
    "--output",
    "output_dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_OUTPUT,
    show_default=True,
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
@click.pass_context
def runs(context: click.Context) -> None:
    """List runs, or show one.

    Example: aorta runs show last
    """
    if context.invoked_subcommand is None:
        _list(Path(DEFAULT_OUTPUT))


@runs.command("list")
@output_option
def list_runs(output_dir: Path) -> None:
    """List every run with its state: a verdict, running, abandoned, or elsewhere (begun on another machine).

    Example: aorta runs list --output aorta_results
    """
    _list(output_dir)


@runs.command()
@click.argument("run")
@output_option
@reports_option
def show(run: str, output_dir: Path, report_dir: Path) -> None:
    """Show a run: its verdict, stages and metrics. RUN is an id, a unique prefix, a folder, or `last`.

    Example: aorta runs show last
    """
    folder = find_run(run, report_dir.absolute(), output_dir.absolute())
    record = read(folder)
    view = view_of(record, folder)
    click.echo(f"run {record.run_id} ({record.state}), {record.created}, aorta_{record.suite}")
    for stage in view.stages:
        click.echo(f"  {stage.outcome:<11} {stage.name:<26} {stage.seconds:8.2f} s  {stage.reason}".rstrip())
    for name, metric in view.metrics.items():
        if metric.value is not None:
            click.echo(f"  {name:<32} {show_value(metric.value, metric.unit):>18}  {metric.source}")
    for line in summary(view):
        click.echo(line)
    if record.remark:
        click.echo(f"this run was {record.remark}")


@runs.command()
@click.argument("kind", type=click.Choice(list(DOCUMENTS)))
def schema(kind: DocumentKind) -> None:
    """Print the JSON schema of a document in the run folder.

    Example: aorta runs schema metrics
    """
    click.echo(schema_text(kind), nl=False)


@click.command()
@click.argument("run", required=False)
@click.option("--all", "every", is_flag=True, help="Every run that is not running now.")
@click.option("--force", is_flag=True, help="Also a RUN begun on another machine whose pytest is certainly gone.")
@output_option
@reports_option
def clean(run: str | None, every: bool, force: bool, output_dir: Path, report_dir: Path) -> None:
    """End processes and remove work folders that runs left behind; without RUN, those of abandoned and uncleaned runs.

    Run folders with results are kept. A run that is running now is never touched, one begun on another machine only
    when it is named by its id with --force.

    Example: aorta clean --all
    """
    if run is not None and not run.strip():
        raise ConfigError("RUN is empty; give an id, or leave it out to clean abandoned runs")
    if force and (run is None or run == "last"):
        raise ConfigError("--force needs the run's id: aorta clean RUN --force; see `aorta runs`")
    if run is not None:
        folder = find_run(run, report_dir.absolute(), output_dir.absolute())
        record = read(folder)
        if refused := why_not(record, named=run != "last", force=force):
            raise ConfigError(refused)
        sys.exit(not _clean(folder, record))
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
            good = _clean(folder, record) and good
    if not touched:
        click.echo(f"nothing to clean: no abandoned or uncleaned run in {output_dir}")
    sys.exit(not good)


def _clean(folder: RunFolder, record: RunRecord) -> bool:
    click.echo(f"{record.run_id} ({record.state})")
    try:
        result = clean_run(folder, record)
    except (AortaError, OSError) as error:
        click.echo(f"  could not be cleaned: {error}", err=True)
        return False
    for line in result.done:
        click.echo(f"  {line}")
    for line in result.problems:
        click.echo(f"  could not be cleaned: {line}", err=True)
    return not result.problems


def _list(output_dir: Path) -> None:
    found: list[RunFolder] = find_runs(output_dir)
    if not found:
        click.echo(f"no runs in {output_dir}")
    for folder in found:
        try:
            record = read(folder)
        except ConfigError as error:
            click.echo(f"{folder.run_id}  damaged: {error}", err=True)
            continue
        said = "; ".join(part for part in (record.sentence, record.remark) if part)
        click.echo(f"{record.run_id}  {record.state:<17}  {record.created}  aorta_{record.suite}  {said}")
