"""The command of a workload of one's own: which file it starts, if it names one, and how it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.load import load
from pytest_aorta.stages.command import launch_text, own_script

MINIMAL = {"schema_version": 1, "gpus_per_node": 1, "enforce_thresholds": False}


def own(command: str, launcher: str) -> dict[str, Any]:
    """Write a configuration with a workload of one's own."""
    return {**MINIMAL, "workload": {"command": command.split(), "launcher": launcher}}


@pytest.mark.parametrize(
    ("command", "launcher", "script"),
    [
        ("my_training.py --steps 6", "torchrun", "my_training.py"),
        ("python my_training.py", "torchrun", "my_training.py"),
        ("/opt/venv/bin/python3.11 -u -O sub/train.py -x", "none", "sub/train.py"),
        ("./train.sh a", "none", "./train.sh"),
        ("/opt/run", "torchrun", "/opt/run"),
        ("python -m mine.training a.py", "none", None),
        ("python -c print() a.py", "torchrun", None),
        ("python -X dev a.py", "none", None),
        ("python", "none", None),
        ("sh train.sh", "none", None),
        ("train.py", "none", None),
        ("trainer", "torchrun", None),
    ],
)
def test_the_file_that_a_command_starts(tmp_path: Path, command: str, launcher: str, script: str | None) -> None:
    assert own_script(load(tmp_path / "c.json", config_text=own(command, launcher), cwd=tmp_path)) == script


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python a.py --steps 6", "torchrun: a.py --steps 6"),
        ("a.py", "torchrun: a.py"),
        ("trainer x", "torchrun: --no-python trainer x"),
    ],
)
def test_what_is_shown_is_what_torchrun_starts(tmp_path: Path, command: str, shown: str) -> None:
    settings = load(tmp_path / "c.json", config_text=own(command, "torchrun"), cwd=tmp_path)
    assert launch_text(settings) == shown


def test_without_a_workload_of_ones_own_there_is_none(tmp_path: Path) -> None:
    assert own_script(load(tmp_path / "c.json", config_text=MINIMAL, cwd=tmp_path)) is None
