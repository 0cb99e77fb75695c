"""What tests on GPUs share: the lifecycle's rig, and how many devices there are."""

from __future__ import annotations

import pytest

from tests.suite.conftest import rig

torch = pytest.importorskip("torch", reason="torch is not installed")

__all__ = ["rig"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs more devices than there are: `gpu(n)`, one without a number."""
    for mark in item.iter_markers("gpu"):
        wanted = mark.args[0] if mark.args else 1
        if torch.cuda.device_count() < wanted:
            pytest.skip(f"needs {wanted} GPUs, torch sees {torch.cuda.device_count()}")
