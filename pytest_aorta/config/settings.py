"""Settings: everything that was decided before a run starts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pytest_aorta.config import rules
from pytest_aorta.config.cluster import Cluster, Host, examine_cluster
from pytest_aorta.config.document import PathFault, Table, first_faults, parse_json, path_text
from pytest_aorta.config.fields import open_environment, plain_environment
from pytest_aorta.config.model import RunConfig, Thresholds
from pytest_aorta.config.redact import redact, secrets_in
from pytest_aorta.config.validation import validate
from pytest_aorta.errors import ConfigError, Fault

Suite = Literal["single", "distributed"]
InputKind = Literal["config", "cluster", "thresholds"]
SECRET_LINE_CHARS = 8
_STORED = "run.json"
_SUITES: dict[str, Suite] = {"single": "single", "distributed": "distributed"}
_INPUT_KINDS: dict[object, InputKind] = {"config": "config", "cluster": "cluster", "thresholds": "thresholds"}


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that the settings came from; `text` holds no secret and may be copied into reports."""

    kind: InputKind
    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration with its cluster and thresholds: complete, checked, and the same for the whole run."""

    config: RunConfig
    thresholds: Thresholds
    cluster: Cluster
    suite: Suite
    output_dir: Path
    inputs: tuple[InputFile, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts in rank order."""
        return self.cluster.hosts

    @property
    def head(self) -> Host:
        """The host of rank 0."""
        return self.cluster.hosts[0]

    @property
    def nproc_per_node(self) -> int:
        """Ranks on each host."""
        return self.config.multi_node.nproc_per_node or self.config.gpus_per_node

    @property
    def ranks_per_host(self) -> int:
        """Ranks on each host as `place_of` takes them; 0 where the workload starts and places its ranks itself."""
        workload = self.config.workload
        return 0 if workload is not None and workload.launcher == "none" else self.nproc_per_node

    @property
    def world_size(self) -> int:
        """Ranks on all hosts."""
        return len(self.hosts) * self.nproc_per_node

    @property
    def launch_mode(self) -> Literal["script", "torchrun"]:
        """How the workload is launched, `auto` resolved by the number of hosts."""
        return "script" if rules.launch_mode(self.config, len(self.hosts)) == "script" else "torchrun"

    @property
    def skip_rccl_build(self) -> bool:
        """Whether RCCL is not built: as the configuration says, else unless the accelerator is rocm."""
        asked = self.config.skip_rccl_build
        return self.config.accelerator != "rocm" if asked is None else asked

    @property
    def uses_container(self) -> bool:
        """Whether the workload runs in a container."""
        return self.config.container is not None and self.config.container.is_used

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the configuration: `container.env`, then `multi_node.extra_env`, with their secrets."""
        container = self.config.container.env if self.config.container is not None else {}
        return plain_environment(container, self.config.multi_node.extra_env)

    def work_dir(self, run_id: str) -> str:
        """Give the work folder on each node; it may begin with `~`."""
        if self.config.work_dir is not None:
            return self.config.work_dir
        if self.cluster.transport == "slurm":
            return str(self.output_dir / run_id / "work")
        return f"~/.cache/pytest-aorta/{run_id}"

    def document(self) -> dict[str, Any]:
        """Write the settings as run.json stores them, secrets redacted; `restore` reads it."""
        document: dict[str, Any] = redact(self._clear_document(), self.secrets())
        return document

    def secrets(self) -> tuple[str, ...]:
        """Give every secret text, so that others can keep it out of what they write.

        Also as it looks inside JSON, and line by line where it has several: logs are read by lines.
        """
        plain = secrets_in(self._clear_document())
        lines = [line.strip() for secret in plain for line in secret.splitlines() if secret.strip() != line.strip()]
        told = (*plain, *(line for line in lines if len(line) >= SECRET_LINE_CHARS))
        stripped = (*told, *(secret.strip() for secret in told if secret.strip()))
        written = (
            form for secret in stripped for form in (json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret))
        )
        return tuple(dict.fromkeys((*stripped, *written)))

    def _clear_document(self) -> dict[str, Any]:
        config = self.config.model_dump(mode="json", exclude={"cluster"})
        config["multi_node"]["extra_env"] = open_environment(self.config.multi_node.extra_env)
        if self.config.container is not None:
            config["container"]["env"] = open_environment(self.config.container.env)
        return {
            **config,
            "output_dir": str(self.output_dir),
            "cluster": {**self.cluster.document(), "given": self.cluster.given},
            "thresholds": self.thresholds.model_dump(mode="json"),
            "suite": self.suite,
            "inputs": [{"kind": file.kind, "path": str(file.path)} for file in self.inputs],
            "warnings": list(self.warnings),
        }


def restore(document: Mapping[str, Any]) -> Settings:
    """Make settings of what run.json stored; secrets are gone for good, and so are the texts of the input files.

    Raises:
        ConfigError: The document is not what `Settings.document` writes.
    """
    stored = parse_json(json.dumps(document))
    extras = {name: stored.pop(name, None) for name in ("cluster", "thresholds", "suite", "inputs", "warnings")}
    described = extras["cluster"] if isinstance(extras["cluster"], Table) else Table()
    given = described.pop("given", True) is not False
    config, faults = validate(RunConfig, stored)
    thresholds, of_thresholds = validate(Thresholds, extras["thresholds"] or {})
    cluster, of_cluster, _ = examine_cluster(described)
    faults += _below("thresholds", of_thresholds) + _below("cluster", of_cluster)
    suite = _SUITES.get(str(extras["suite"]))
    if suite is None:
        faults += (PathFault(("suite",), f"seen {extras['suite']!r}, expected single or distributed"),)
    if config is None or thresholds is None or cluster is None or suite is None:
        told = (Fault(f"{_STORED}: config.{path_text(fault.path)}", fault.message) for fault in faults)
        raise ConfigError(first_faults(told, _STORED))
    return Settings(
        config=config,
        thresholds=thresholds,
        cluster=replace(cluster, given=given),
        suite=suite,
        output_dir=Path(config.output_dir),
        inputs=tuple(_stored_inputs(extras["inputs"])),
        warnings=tuple(str(warning) for warning in extras["warnings"] or ()),
    )


def _below(name: str, faults: Iterable[PathFault]) -> tuple[PathFault, ...]:
    return tuple(PathFault((name, *fault.path), fault.message) for fault in faults)


def _stored_inputs(items: Any) -> Iterator[InputFile]:
    for item in items if isinstance(items, list) else ():
        kind = _INPUT_KINDS.get(item.get("kind")) if isinstance(item, dict) else None
        if kind is not None:
            yield InputFile(kind, Path(str(item.get("path", ""))), "")
