"""A folder to run the lifecycle in: a configuration, its thresholds, and a workload that needs no torch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = Path(__file__).with_name("sample_workload.py")
PACKAGE_ROOT = Path(__file__).parents[2]
DEADLINE_S = 60


@dataclass
class Rig:
    """An empty folder with one configuration; runs pytest in it as a user would."""

    path: Path
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def configure(self, *workload: str, thresholds: dict[str, float | None] | None = None, **fields: Any) -> Path:
        """Write config.json and its thresholds; `workload` are the sample workload's arguments."""
        config = {
            "schema_version": 1,
            "accelerator": "cpu",
            "gpus_per_node": 2,
            "threshold_json": "limits_threshold.json",
            "kernel_log": {"required": False},
            "timeout_seconds": 60,
            "workload": {"command": [sys.executable, str(WORKLOAD), *workload], "traces": "out/torch_profiler/*/*"},
            "work_dir": str(self.path / "work"),
            **fields,
        }
        limits = {"max_avg_iteration_ms": 5000.0, "max_time_variance_ratio": 0.5} if thresholds is None else thresholds
        (self.path / "limits_threshold.json").write_text(json.dumps({"expected_results": limits}), "utf-8")
        path = self.path / "config.json"
        path.write_text(json.dumps(config, indent=1), "utf-8")
        return path

    def environment(self) -> dict[str, str]:
        ours = ("AORTA_", "PYTEST_", "PYTHONUNBUFFERED")  # the last as on a machine of which nobody has set it
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        env["PYTHONPATH"] = str(PACKAGE_ROOT)
        return env

    def command(self, *arguments: str) -> list[str]:
        loaded = [] if _is_installed() else ["-p", "pytest_aorta.plugin"]
        return [sys.executable, "-m", "pytest", *loaded, *arguments]

    def pytest(self, *arguments: str, code: int | None = None) -> str:
        """Run pytest to its end; check its exit code and give all its output."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.path, env=self.environment(), capture_output=True, text=True,
            timeout=DEADLINE_S * 2, check=False,
        )  # fmt: skip
        output = done.stdout + done.stderr
        if code is not None:
            assert done.returncode == code, output
        return output

    def run(self, *arguments: str, code: int | None = None) -> str:
        """Run pytest with the configuration."""
        return self.pytest("--aorta-config=config.json", *arguments, code=code)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pytest with the configuration and give the process."""
        child = subprocess.Popen(
            self.command("--aorta-config=config.json", *arguments), cwd=self.path, env=self.environment(),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    def aorta(self, *arguments: str, code: int | None = None) -> str:
        """Run the console command."""
        done = subprocess.run(
            [sys.executable, "-c", "from pytest_aorta.cli import main; main()", *arguments], cwd=self.path,
            env=self.environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        if code is not None:
            assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def reports(self) -> Path:
        return self.path / "aorta_reports"

    @property
    def folder(self) -> Path:
        """The only run folder."""
        (folder,) = [path.parent for path in (self.path / "aorta_results").glob("*/run.json")]
        return folder

    def record(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / "run.json").read_text("utf-8"))
        return document

    def verdict(self) -> dict[str, Any]:
        """Read verdict.json of the report folder."""
        document: dict[str, Any] = json.loads((self.reports / "verdict.json").read_text("utf-8"))
        return document

    def outcomes(self) -> dict[str, str]:
        return {name: stage["outcome"] for name, stage in self.record()["stages"].items()}

    def reason(self, test: str) -> str:
        return str(self.record()["stages"][test]["reason"])

    def letters(self) -> str:
        """The stages' outcomes as one letter each, in order."""
        return "".join(outcome[0].upper() for outcome in self.outcomes().values())

    def junit(self, name: str = "aorta_single.xml") -> ET.Element:
        suite = ET.parse(self.reports / name).getroot().find("testsuite")  # noqa: S314  our own file
        assert suite is not None
        return suite

    def left_over(self) -> list[str]:
        """Work folders that are still there."""
        work = self.path / "work"
        return sorted(path.name for path in work.iterdir()) if work.exists() else []


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    for child in made.children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    shutil.rmtree(tmp_path / "work", ignore_errors=True)


class Waiter:
    """Waits for processes and files, and fails saying what did not come true."""

    def until(self, what: str, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            if time.monotonic() > deadline:
                pytest.fail(f"{what}: not within {DEADLINE_S} s")
            time.sleep(0.05)

    def pids(self, path: Path) -> list[int]:
        """Wait for the workload's pid file; give its process and its child in another session."""
        self.until(f"{path} has two pids", lambda: path.exists() and len(path.read_text("utf-8").split()) == 2)
        return [int(pid) for pid in path.read_text("utf-8").split()]

    def gone(self, pids: list[int]) -> None:
        self.until(f"{pids} are gone", lambda: not any(self.alive(pid) for pid in pids))

    def alive(self, pid: int) -> bool:
        return self._state(pid) not in {"", "Z", "X"}

    def sleeping(self, pid: int) -> bool:
        return self._state(pid) == "S"

    def _state(self, pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return ""


@pytest.fixture
def waiter() -> Waiter:
    return Waiter()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "aorta-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _is_installed() -> bool:
    return any(point.value == "pytest_aorta.plugin" for point in entry_points(group="pytest11"))
