"""`aorta config`: list, show, copy and check configurations, and print their schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click

from pytest_aorta.cli_layout import terminal_width, wrapped
from pytest_aorta.config.document import checked_object, parse_json, path_text
from pytest_aorta.config.load import Settings, load
from pytest_aorta.config.redact import scrub
from pytest_aorta.config.schema import SchemaKind, schema_text
from pytest_aorta.config.shipped import shipped_configs, shipped_thresholds
from pytest_aorta.config.validation import near
from pytest_aorta.errors import AortaError
from pytest_aorta.stages.clone import foreign_folder
from pytest_aorta.stages.command import launch_text
from pytest_aorta.suite.opening import lacking_here, undoable


class _Refused(click.ClickException):
    """A user's mistake: its sentences, one a line, on stderr; exit 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        for line in self.message.splitlines():
            click.echo(f"aorta config: {line}", file=file, err=file is None)


class _Absent(_Refused):
    """The command line names what is not there; exit 2."""

    exit_code = 2


def _example(text: str) -> str:
    return f"\b\nExample:\n  {text}"


@click.group()
def config() -> None:
    """Look at, copy and check configuration files."""


@config.command("list", epilog=_example("aorta config list"))
def list_() -> None:
    """List the configurations and threshold files that come with the package."""
    _list("configurations", shipped_configs())
    click.echo()
    _list("threshold files, each named by a configuration", shipped_thresholds())


@config.command(epilog=_example("aorta config show local_cpu"))
@click.argument("name")
def show(name: str) -> None:
    """Print the shipped file NAME."""
    click.echo(_found(name).read_text(encoding="utf-8"), nl=False)


@config.command(epilog=_example("aorta config copy mi3xx_aorta_profile_overlap_2gpu_single ./my.json"))
@click.argument("name")
@click.argument("dest", type=click.Path())
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
def copy(name: str, dest: str, force: bool) -> None:
    """Copy the shipped file NAME to DEST, and its threshold file along with it.

    DEST is a file, or a folder: one that is there, or one to be made when its name ends in a slash.
    """
    source = _found(name)
    place, is_folder = Path(dest), dest.endswith("/") or Path(dest).is_dir()
    target = place / source.name if is_folder else place
    text = source.read_text(encoding="utf-8")
    copies = {target: text}
    reference = checked_object(parse_json(text), name).get("threshold_json")
    if reference:
        beside = source.parent / str(reference)
        copies[target.parent / beside.name] = beside.read_text(encoding="utf-8")
        copies[target] = text.replace(json.dumps(reference), json.dumps(beside.name))
    if len(copies) == 1 and reference:
        raise _Refused(f"{target}: has the name of the threshold file that comes along; choose another name")
    _refuse_to_overwrite(copies, target, force=force, makes_folder=dest.endswith("/"))
    try:
        if dest.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
        for path, content in copies.items():
            path.write_text(content, encoding="utf-8")
            click.echo(f"wrote {path}")
    except OSError as error:
        raise _Refused(f"{error.filename}: cannot be written: {error.strerror}") from error
    if lacking := _lacking(source):
        click.echo(f"aorta config: warning: {target}: {lacking}; a run with it is refused", err=True)


@config.command(epilog=_example("aorta config check ./my.json --cluster ./cluster.json"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--cluster",
    "--aorta-cluster",
    "cluster",
    type=click.Path(path_type=Path),
    help="Cluster file; replaces the file's own.",
)
@click.option(
    "--thresholds",
    "--aorta-thresholds",
    "thresholds",
    type=click.Path(path_type=Path),
    help="Threshold file; replaces the file's own.",
)
@click.option("--set", "--aorta-set", "sets", multiple=True, metavar="KEY=VALUE", help="Override a value; repeatable.")
@click.option(
    "--suite",
    "--aorta-suite",
    "suite",
    type=click.Choice(["single", "distributed"]),
    help="The suite that it is meant for.",
)
def check(file: Path, cluster: Path | None, thresholds: Path | None, sets: tuple[str, ...], suite: str | None) -> None:
    """Check FILE with its cluster and thresholds; nothing is contacted.

    What this version cannot do is a fault like any other. What only this machine lacks (a parser's package, the key
    for SSH) is a warning.
    """
    try:
        settings = load(file, cluster=cluster, thresholds=thresholds, sets=sets, suite=suite, also=undoable)
    except AortaError as error:
        is_absent = any(path is not None and not path.exists() for path in (file, cluster, thresholds))
        raise (_Absent if is_absent else _Refused)(str(error)) from error
    for warning in settings.warnings:
        click.echo(f"aorta config: warning: {warning}", err=True)
    for fault in lacking_here(settings.config, settings.cluster):
        where = path_text(fault.path)
        click.echo(f"aorta config: warning: a run on this machine will be refused: {where}: {fault.message}", err=True)
    click.echo(f"ok: {file}")
    for label, value in _summary(settings, enforced=settings.config.enforce_thresholds or thresholds is not None):
        click.echo(f"  {label:<12} {value}")


@config.command(epilog=_example("aorta config schema --kind cluster > cluster.schema.json"))
@click.option("--kind", type=click.Choice(["config", "cluster", "thresholds"]), default="config", show_default=True)
def schema(kind: SchemaKind) -> None:
    """Print the JSON schema of a kind of file."""
    click.echo(schema_text(kind), nl=False)


def _found(name: str) -> Path:
    file = name if name.endswith(".json") else f"{name}.json"
    known = {path.name: path for path in (*shipped_configs(), *shipped_thresholds())}
    if file not in known:
        hint = near(file, known) or "; see `aorta config list`"
        raise _Absent(f"{name[:80]}: no file of this name comes with the package{hint}")
    return known[file]


def _list(heading: str, paths: Sequence[Path]) -> None:
    """Print files under a heading, the purpose of each beside it, or below it where the terminal is narrow."""
    width = terminal_width()
    name_width = max(len(path.name) for path in paths)
    purposes = [_purpose(path) for path in paths]
    beside = name_width + 4 + max(map(len, purposes)) <= width
    click.echo(f"{heading}:")
    for path, purpose in zip(paths, purposes, strict=True):
        if beside:
            click.echo(f"  {path.name:{name_width}}  {purpose}".rstrip())
        else:
            click.echo(f"  {path.name}")
            click.echo("\n".join(wrapped(f"      {purpose}", indent=6)))


def _purpose(path: Path) -> str:
    comment = parse_json(path.read_text(encoding="utf-8")).get("_comment", "")
    purpose = str(comment).partition(". ")[0].rstrip(".")
    return "; ".join(filter(None, (purpose, _lacking(path))))


def _lacking(path: Path) -> str:
    """Say what a shipped file asks for that this version does not do."""
    cluster = parse_json(path.read_text(encoding="utf-8")).get("cluster")
    return "the transport slurm is not in this version" if (cluster or {}).get("transport") == "slurm" else ""


def _refuse_to_overwrite(copies: dict[Path, str], target: Path, *, force: bool, makes_folder: bool) -> None:
    """Refuse before anything is written; a threshold file that is there already, unchanged, is no reason to."""
    problems = []
    for path, content in copies.items():
        if path.is_dir():
            problems.append(f"{path}: is a folder, expected a file")
        elif not path.parent.is_dir() and not makes_folder:
            problems.append(f"{path}: there is no folder {path.parent}; make it first")
        elif path.exists() and not force and (path == target or path.read_bytes() != content.encode()):
            problems.append(f"{path}: exists already; use --force to overwrite it, or choose another place")
    if problems:
        raise _Refused("\n".join(problems))


def _limits(settings: Settings, *, enforced: bool) -> str:
    """Name the limits that a run holds its metrics against, and the file that the documented ones come from."""
    if not enforced:
        return "none: enforce_thresholds is false, metrics are recorded only"
    limits = [f"{name} {value:g}" for name, value in settings.thresholds if value is not None]
    if limits and (path := next((file.path for file in settings.inputs if file.kind == "thresholds"), None)):
        limits[-1] += f" (of {path.name})"
    return ", ".join([*limits, *(f"{gate.metric} {gate.kind} {gate.value:g}" for gate in settings.config.gates)])


def _workload_folder(settings: Settings) -> str:
    where = "in the container" if settings.uses_container else "on each host"
    return f"{foreign_folder(settings)} {where}, where it must be: it is not sent"


def _summary(settings: Settings, *, enforced: bool) -> list[tuple[str, str]]:
    container = settings.config.container
    names = [host.name if host.name == host.address else f"{host.name} ({host.address})" for host in settings.hosts]
    return [
        ("suite", f"aorta_{settings.suite}"),
        ("hosts", f"{', '.join(names)} by {settings.cluster.transport}"),
        ("ranks", f"{settings.world_size} ({settings.nproc_per_node} on each node)"),
        ("started by", scrub(launch_text(settings), settings.secrets())),
        *([("runs in", _workload_folder(settings))] if settings.config.workload is not None else []),
        ("container", str(container.image) if container is not None and container.is_used else "none"),
        ("thresholds", _limits(settings, enforced=enforced)),
        ("output", str(settings.output_dir)),
    ]
