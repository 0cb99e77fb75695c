"""The command of a workload of one's own: which file it starts, if it names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_aorta.config.load import load
from pytest_aorta.stages.command import own_script


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
    config = {
        "schema_version": 1,
        "gpus_per_node": 1,
        "enforce_thresholds": False,
        "workload": {"command": command.split(), "launcher": launcher},
    }
    assert own_script(load(tmp_path / "c.json", config_text=config, cwd=tmp_path)) == script


def test_without_a_workload_of_ones_own_there_is_none(tmp_path: Path) -> None:
    config = {"schema_version": 1, "gpus_per_node": 1, "enforce_thresholds": False}
    assert own_script(load(tmp_path / "c.json", config_text=config, cwd=tmp_path)) is None
