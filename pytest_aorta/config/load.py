"""Loading: from files and options to settings, or to every fault in them at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pytest_aorta.config import overrides, placeholders, rules, soundness, threshold_file
from pytest_aorta.config.cluster import (
    REGION,
    Cluster,
    examine_cluster,
    ignored_warnings,
    login_user,
    this_machine,
    username_of,
)
from pytest_aorta.config.document import (
    JsonPath,
    PathFault,
    Places,
    Source,
    Table,
    checked_object,
    first_faults,
    located,
    parse_json,
    path_text,
    read,
    shortened,
)
from pytest_aorta.config.model import RunConfig, Thresholds
from pytest_aorta.config.overrides import Override
from pytest_aorta.config.redact import redact, scrub, secrets_in
from pytest_aorta.config.scalars import parse_scalar
from pytest_aorta.config.settings import InputFile, InputKind, Settings, Suite, restore
from pytest_aorta.config.validation import examine, validate_pruned
from pytest_aorta.errors import ConfigError, Fault

__all__ = ["InputFile", "Settings", "load", "parse_scalar", "restore"]

Examiner = Callable[[RunConfig, Cluster | None], Iterable[PathFault]]

_SECRET_CHARS = 4
_STAND_INS = {"schema_version": 1, "gpus_per_node": 1}
_OTHER_SUITE: dict[str, Suite] = {"single": "distributed", "distributed": "single"}


def load(
    config: Path,
    *,
    cluster: Path | None = None,
    thresholds: Path | None = None,
    sets: Sequence[str] = (),
    output: Path | None = None,
    suite: str | None = None,
    cwd: Path | None = None,
    config_text: Mapping[str, Any] | None = None,
    also: Examiner = lambda _config, _cluster: (),
) -> Settings:
    """Read a configuration with its cluster and thresholds; nothing is contacted.

    Paths of options are relative to `cwd` (the folder pytest was started in), those in the configuration to its
    file. With `config_text` that document is taken instead of the file's, and the file need not exist. `also` finds
    what only its caller can know to be wrong with a configuration.

    Raises:
        ConfigError: Every fault of every file and option.
    """
    return _Loading(config, cluster, thresholds, (cwd or Path.cwd()).absolute(), also).settings(
        sets, output, suite, config_text
    )


@dataclass(slots=True)
class _Loading:
    """The work of one `load`: sources read and faults found on the way."""

    config_option: Path
    cluster_option: Path | None
    thresholds_option: Path | None
    cwd: Path
    also: Examiner
    faults: list[Fault] = field(default_factory=list)
    sources: dict[InputKind, Source] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    overrides: list[Override] = field(default_factory=list)
    cluster_place: tuple[str, JsonPath] = ("", REGION)

    def settings(
        self, sets: Sequence[str], output: Path | None, suite: str | None, config_text: Mapping[str, Any] | None
    ) -> Settings:
        """Do the work."""
        self.overrides, wrong = overrides.parse(sets)
        self.faults += wrong
        source = self._config_source(config_text)
        document = source.document if source is not None else Table(_STAND_INS, enforce_thresholds=False)
        self.faults += overrides.apply(document, self._overrides_of(cluster=False))
        cluster, document = self._cluster(document)
        document.pop("cluster", None)
        model, faults = examine(RunConfig, document)
        thresholds = self._thresholds(document, faults)
        faults += self._broken_rules(document, model, faults, thresholds, cluster)
        faults += tuple(soundness.redacted(document))
        label, below = self.cluster_place
        self._tell([fault for fault in faults if fault.path[:1] != REGION], str(self.config_option))
        self._tell([_inside(fault) for fault in faults if fault.path[:1] == REGION], label, below)
        resolved = self._suite(suite, cluster)
        if self.faults or model is None or cluster is None or thresholds is None:
            raise ConfigError(self._told())
        self.warnings += rules.doubts(model, None if cluster.transport == "local" else self.cwd)
        if model.container is not None:
            self.warnings[:0] = ignored_warnings(model.container.runtime, ("container", "runtime"))
        return Settings(
            config=model,
            thresholds=thresholds,
            cluster=cluster,
            suite=resolved,
            output_dir=located(output or model.output_dir, self.cwd),
            inputs=tuple(InputFile(kind, file.path, _safe_text(kind, file)) for kind, file in self.sources.items()),
            warnings=tuple(self.warnings),
        )

    def _told(self) -> list[Fault]:
        """Give the faults to tell; should one still show a secret, a second look takes it out."""
        regions: dict[InputKind, JsonPath] = {"cluster": REGION}
        known = [secret for item in self.overrides for secret in item.secrets()]
        for kind, source in self.sources.items():
            known += secrets_in(source.document, regions.get(kind, ()))
        telling = {secret for secret in known if len(secret) >= _SECRET_CHARS}
        told = first_faults(self.faults, str(self.config_option))
        return [Fault(scrub(fault.where, telling), scrub(fault.message, telling)) for fault in told]

    def _read(self, kind: InputKind, path: Path, label: str) -> Source | None:
        try:
            self.sources[kind] = source = read(path, label)
        except ConfigError as error:
            self.faults += error.faults
            return None
        return source

    def _config_source(self, config_text: Mapping[str, Any] | None) -> Source | None:
        path, label = located(self.config_option, self.cwd), str(self.config_option)
        if config_text is None:
            found = self._read("config", path, label)
            if found is not None and (what := _other_kind(found.document)):
                self.faults.append(Fault(label, what))
                del self.sources["config"]
                return None
            return found
        try:
            text = json.dumps(config_text)
            self.sources["config"] = source = Source(label, path, text, checked_object(parse_json(text), label))
        except ConfigError as error:
            self.faults += error.faults
            return None
        except (TypeError, ValueError) as error:
            self.faults.append(Fault(label, f"the document given is not JSON: {error}"))
            return None
        return source

    def _overrides_of(self, *, cluster: bool) -> list[Override]:
        """Give the overrides of the cluster, or those of everything else; `cluster` itself belongs to the latter."""
        return [item for item in self.overrides if (len(item.path) > 1 and item.path[0] == "cluster") is cluster]

    def _cluster(self, document: Table) -> tuple[Cluster | None, Table]:
        """Read the cluster of the option, of the configuration or of this machine; and solve the placeholders."""
        found = self._cluster_source(document)
        if found is None:
            return None, placeholders.substitute(document, login_user())
        described, label, below = found
        self.cluster_place = label, below
        changes = self._overrides_of(cluster=True)
        if described is None and not changes:
            return this_machine(), placeholders.substitute(document, login_user())
        if described is None:
            document["cluster"] = described = Table()
        self.faults += overrides.apply(described, changes, below=REGION)
        document = placeholders.substitute(document, username_of(described))
        chosen = document["cluster"] if below else described
        cluster, faults, warnings = examine_cluster(chosen)
        faults += tuple(soundness.redacted(chosen))
        self._tell(faults, label, below)
        self.warnings += warnings
        return cluster, document

    def _cluster_source(self, document: Table) -> tuple[Table | None, str, JsonPath] | None:
        """Find the cluster document, its file and its place in it; no document: none is named; None: it is faulty."""
        given = document.get("cluster")
        config_label = str(self.config_option)
        if self.cluster_option is not None:
            path, label = located(self.cluster_option, self.cwd), str(self.cluster_option)
        elif isinstance(given, str):
            named = placeholders.substitute(document, login_user())["cluster"]
            if unsound := list(soundness.faults(Table(cluster=named))):
                self._tell(unsound, config_label)
                return None
            path = located(named, located(self.config_option, self.cwd).parent)
            label = f"{config_label}: cluster: {shortened(named)}"
        elif given is None or isinstance(given, Table):
            return given, config_label, REGION
        else:
            self._tell([PathFault(REGION, "expected an object with node_dict, or a cluster file's path")], config_label)
            return None
        source = self._read("cluster", path, label)
        return (source.document, label, ()) if source is not None else None

    def _thresholds(self, document: Table, faults: Sequence[PathFault]) -> Thresholds | None:
        try:
            path, label = self._threshold_path(document, faults)
            source = self._read("thresholds", path, label) if path is not None else None
            if path is not None and source is None:
                return None
            return threshold_file.check(source) if source is not None else Thresholds()
        except ConfigError as error:
            self.faults += error.faults
            return None

    def _threshold_path(self, document: Table, faults: Sequence[PathFault]) -> tuple[Path | None, str]:
        if self.thresholds_option is not None:
            return located(self.thresholds_option, self.cwd), str(self.thresholds_option)
        reference = document.get("threshold_json", "")
        if "config" not in self.sources or not isinstance(reference, str) or Places(faults).touch(("threshold_json",)):
            return None, ""
        found = threshold_file.find(
            reference,
            located(self.config_option, self.cwd),
            self.cwd,
            label=str(self.config_option),
            needed=document.get("enforce_thresholds", True) is True and not document.get("gates"),
            enforced=document.get("enforce_thresholds", True) is not False,
        )
        return found, shortened(reference) or (found.name if found else "")

    def _broken_rules(
        self,
        document: Table,
        model: RunConfig | None,
        faults: Sequence[PathFault],
        thresholds: Thresholds | None,
        cluster: Cluster | None,
    ) -> tuple[PathFault, ...]:
        readable = model or validate_pruned(RunConfig, document, _STAND_INS)
        if readable is None:
            return ()
        together = rules.Together(readable, thresholds, len(cluster.hosts) if cluster else None)
        return (*rules.broken(together, faults), *self.also(readable, cluster))

    def _suite(self, asked: str | None, cluster: Cluster | None) -> Suite:
        count = len(cluster.hosts) if cluster is not None else 1
        fitting: Suite = "single" if count == 1 else "distributed"
        if asked is not None and asked not in _OTHER_SUITE:
            self.faults.append(Fault("--aorta-suite", f"seen {asked!r}, expected single or distributed"))
        elif asked is not None and cluster is not None and asked != fitting:
            needs = "exactly one node" if asked == "single" else "two or more nodes"
            self.faults.append(
                Fault("--aorta-suite", f"{asked} needs {needs}, seen {count}; use --aorta-suite {fitting}")
            )
        return fitting

    def _tell(self, faults: Sequence[PathFault], label: str, below: JsonPath = ()) -> None:
        for fault in faults:
            path = (*below, *fault.path)
            set_path = path if below or label == str(self.config_option) else (*REGION, *path)
            where = f"{label}: {path_text(path)}{overrides.origin(set_path, self.overrides)}"
            self.faults.append(Fault(where, fault.message))


def _inside(fault: PathFault) -> PathFault:
    """Give a fault of the cluster with its path in the cluster's own document."""
    return PathFault(fault.path[len(REGION) :], fault.message)


def _other_kind(document: Table) -> str:
    """Say that a file is one of another kind, given in a configuration's place; nothing when it may be one."""
    if document.keys() & {"schema_version", "gpus_per_node"}:
        return ""
    if "expected_results" in document:
        return (
            "is a threshold file, not a configuration; give it by --aorta-thresholds (of `aorta config check`: "
            "--thresholds) beside a configuration"
        )
    if "node_dict" in document:
        return (
            "is a cluster file, not a configuration; give it by --aorta-cluster (of `aorta config check`: --cluster) "
            "beside a configuration"
        )
    return ""


def _safe_text(kind: InputKind, source: Source) -> str:
    """Give a file's text as it is, or, when secrets stand in it, its document without them."""
    region = REGION if kind == "cluster" else ()
    secrets = secrets_in(source.document, region)
    if not secrets:
        return source.text
    document = {"cluster": source.document} if kind == "cluster" else source.document
    redacted = redact(document, secrets)
    redacted = redacted["cluster"] if kind == "cluster" else redacted
    if source.path.suffix.lower() in {".yaml", ".yml"}:
        return yaml.safe_dump(redacted, sort_keys=False)
    return json.dumps(redacted, indent=2) + "\n"
