"""The run folder: every path in it, named once."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from pytest_aorta.errors import ConfigError, Fault
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.json_report import write_json
from pytest_aorta.run.secrecy import cleaned

RESERVE_BYTES = 256 * 1024
_MOST_NAME_CHARS = 100


def new_run_id() -> str:
    """Make a run id: a UUIDv7 as 32 hexadecimal digits, so that ids sort by time.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = time.time_ns() // 1_000_000
    number = (
        (milliseconds & (1 << 48) - 1) << 80
        | 0x7 << 76
        | secrets.randbits(12) << 64
        | 0b10 << 62
        | secrets.randbits(62)
    )
    return f"{number:032x}"


def is_run_id(name: str) -> bool:
    """Tell a run id from the name that somebody gave to a copy of a run."""
    return re.fullmatch("[0-9a-f]{32}", name) is not None


class MetricsFile(BaseModel):
    """metrics.json: every metric of a run by its name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    metrics: dict[str, Metric]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`<output_dir>/<run-id>/` on the machine that runs pytest.

    A later judging (`judgement` names it) writes its documents to a folder of its own below.
    """

    path: Path
    judgement: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def create(cls, output_dir: Path, run_id: str) -> RunFolder:
        """Make the folder, with a small reserve that lets the record be closed on a full disk.

        Raises:
            ConfigError: output_dir cannot be written.
        """
        folder = cls(output_dir / run_id)
        try:
            folder.path.mkdir(parents=True)
            folder.reserve.write_bytes(bytes(RESERVE_BYTES))
        except OSError as error:
            raise ConfigError(
                [
                    Fault(
                        "output_dir",
                        f"{output_dir} cannot be written ({error.strerror}); name another with --aorta-output",
                    )
                ]
            ) from error
        return folder

    @property
    def run_id(self) -> str:
        """The run's id, which is the folder's name."""
        return self.path.name

    @property
    def record(self) -> Path:
        """run.json."""
        return self.path / "run.json"

    @property
    def reserve(self) -> Path:
        """Bytes given up when the disk is full."""
        return self.path / ".reserve"

    @property
    def documents(self) -> Path:
        """Where the JSON documents are written."""
        return self.path / "judgements" / self.judgement if self.judgement else self.path

    @property
    def benchmark_report(self) -> Path:
        """The published JSON report."""
        return self.documents / "aorta_benchmark_report.json"

    @property
    def metrics(self) -> Path:
        """Every metric with unit and source."""
        return self.documents / "metrics.json"

    @property
    def judged_metrics(self) -> Path:
        """The metrics that are judged: those of a later judging that parsed anew, else the run's own."""
        return self.metrics if self.metrics.exists() else self.path / self.metrics.name

    @property
    def verdict(self) -> Path:
        """The verdict for machines."""
        return self.documents / "verdict.json"

    @property
    def analysis(self) -> Path:
        """Tables of the optional analysis."""
        return self.path / "analysis"

    def facts(self, host: str) -> Path:
        """What a host was before the run."""
        return self.path / "facts" / f"{file_name(host)}.json"

    def devices(self, host: str, *, after: bool = False) -> Path:
        """What identifies a host's devices, and their counters: before the run, of one that failed also after it."""
        return self.path / "facts" / f"devices-{'after-' if after else ''}{file_name(host)}.json"

    def tools(self, host: str) -> Path:
        """The folder of what the vendor's tools said on a host that failed."""
        return self.path / "facts" / f"tools-{file_name(host)}"

    def host_evidence(self, host: str) -> Path:
        """The folder of everything that is known of a host that failed."""
        return self.path / "evidence" / file_name(host)

    def kernel_log(self, host: str) -> Path:
        """The kernel log lines of a host's window."""
        return self.path / "facts" / f"kernel-{file_name(host)}.log"

    def inventory(self, host: str) -> Path:
        """Which trace files a host had before launch."""
        return self.path / "facts" / f"inventory-{file_name(host)}.json"

    def phase_log(self, phase: str, rank: int) -> Path:
        """A phase's log of one node."""
        return self.path / f"{phase}-node-{rank}.log"

    def log_of(self, phase: str, rank: int, host: str) -> str:
        """Name a phase's log for people, who know hosts by their names: the file has the host's place, from 0."""
        return f"{self.phase_log(phase, rank)} (of {host})"

    def traces(self, layout: str, rank: int) -> Path:
        """Where a node's trace trees are kept."""
        return self.path / "combined_traces" / f"node_{rank}" if layout == "combined" else self.path / "traces"

    def relative(self, path: Path) -> str:
        """Give a path inside the folder as run.json stores it."""
        return path.relative_to(self.path).as_posix()

    def write_document(self, path: Path, document: Mapping[str, Any]) -> None:
        """Write a JSON document atomically, without secrets; on a full disk the reserve is given up first."""
        document = cleaned(document, self.secrets)
        try:
            write_json(path, document)
        except OSError:
            if not self.reserve.exists():
                raise
            self.reserve.unlink()
            write_json(path, document)

    def write_metrics(self, metrics: Mapping[str, Metric]) -> None:
        """Write metrics.json."""
        self.write_document(self.metrics, MetricsFile(metrics=dict(metrics)).model_dump(mode="json"))

    def read_metrics(self) -> dict[str, Metric]:
        """Read metrics.json.

        Raises:
            OSError: there is none.
            ValueError: it is not one of ours.
        """
        return MetricsFile.model_validate_json(read_regular(self.judged_metrics)).metrics


def read_regular(path: Path) -> bytes:
    """Read a file that must be a regular one: a pipe in its place would keep the reader waiting for ever.

    Raises:
        OSError: it is not, or cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    return path.read_bytes()


def file_name(host: str) -> str:
    """Give a host's name as a safe file name, another one for every host."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in host).lstrip(".")[:_MOST_NAME_CHARS]
    return safe if safe == host else f"{safe}-{hashlib.sha256(host.encode()).hexdigest()[:8]}"
