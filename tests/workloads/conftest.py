"""Where the workload stands, and how its ranks are started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2] / "workloads"
sys.path.insert(0, str(TREE))

Ended = subprocess.CompletedProcess[str]
Start = Callable[..., Ended]


def environment_of_ranks(extra: Mapping[str, str]) -> dict[str, str]:
    """Give the ranks what they need and nothing of a launcher around this test."""
    names = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, "OMP_NUM_THREADS": "1", **extra}


@pytest.fixture(scope="session")
def tree() -> Path:
    return TREE


@pytest.fixture(scope="session")
def tiny_config() -> Path:
    return TREE / "config" / "tiny_cpu.yaml"


@pytest.fixture(scope="session")
def rank_environment() -> dict[str, str]:
    return environment_of_ranks({})


@pytest.fixture(scope="session")
def train_command() -> list[str]:
    return [sys.executable, str(TREE / "train.py")]


@pytest.fixture(scope="session")
def torchrun_command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Start ranks; torchrun leaves a folder of logs behind, which goes where pytest clears up."""
    logs = tmp_path_factory.mktemp("torchrun")
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--log-dir", str(logs), "--nproc_per_node"]


@pytest.fixture(scope="session")
def start_ranks(torchrun_command: list[str]) -> Start:
    """Run a script as several ranks and wait for the end."""

    def start(folder: Path, script: Path, *arguments: str, num_ranks: int = 2, **extra: str) -> Ended:
        command = [*torchrun_command, str(num_ranks), str(script), *arguments]
        return subprocess.run(
            command,
            cwd=folder,
            env=environment_of_ranks(extra),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return start


@pytest.fixture(scope="session")
def start_alone(train_command: list[str]) -> Start:
    """Run train.py as a job of one and wait for the end."""

    def start(folder: Path, *arguments: str, **extra: str) -> Ended:
        command = [*train_command, *arguments]
        return subprocess.run(
            command,
            cwd=folder,
            env=environment_of_ranks(extra),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return start
