"""The copy prototype on a real GPU: exact bytes, times that fit each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

SCRIPT = Path(__file__).parents[2] / "workloads/scripts/run_sdma_prototype.py"


def prototype(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def test_copies_hide_behind_products(tmp_path: Path) -> None:
    ended = prototype("--matrix-size", "4096", "--copy-mb", "64", "--iterations", "20", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["copy_bytes"] == 64_000_000
    assert found["copy_gb_per_s"] == pytest.approx(found["copy_bytes"] / found["copy_ms"] / 1e6)
    assert found["overlapped_ms"] < found["sequential_ms"]
    assert found["overlap_fraction"] > 0.5
    assert "emcpy" in found["activity"]  # a copy engine's work, not a kernel's


def test_people_get_the_same_in_lines() -> None:
    ended = prototype("--matrix-size", "512", "--copy-mb", "1", "--iterations", "3", "--cold-iters", "0")
    assert ended.returncode == 0, ended.stderr
    assert "overlap fraction" in ended.stdout
    assert "copies of 1 MB to the host" in ended.stdout


def test_more_than_fits_is_one_sentence() -> None:
    ended = prototype("--copy-mb", "999999999")
    assert ended.returncode == 1
    assert "take less" in ended.stderr
    assert "Traceback" not in ended.stderr
