"""The copy prototype without a GPU: what it refuses, and what it makes of its times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the prototype needs torch")
pytestmark = pytest.mark.torch


def overlap(sequential_ms: float, overlapped_ms: float) -> Any:
    from aorta_train.copy_overlap import CopyOverlap

    return CopyOverlap(4.0, 2.0, sequential_ms, overlapped_ms, copy_bytes=64_000_000, activity=None)


def test_what_follows_from_the_times() -> None:
    hidden = overlap(6.0, 4.0)
    assert hidden.savings_percent == pytest.approx(100 / 3)
    assert hidden.overlap_fraction == 1
    assert hidden.copy_gb_per_s == 32
    slower = overlap(6.0, 6.6)
    assert slower.savings_percent == pytest.approx(-10)
    assert slower.overlap_fraction == pytest.approx(-0.3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "99"], "--device 99: torch sees"),
        (["--copy-mb", "0"], "--copy-mb: seen '0', expected a whole number of at least 1"),
        (["--matrix-size", "4k"], "--matrix-size: seen '4k'"),
    ],
)
def test_what_cannot_be_measured_is_refused(tree: Path, arguments: list[str], said: str) -> None:
    command = [sys.executable, str(tree / "scripts" / "run_sdma_prototype.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
