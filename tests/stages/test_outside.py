"""Where a host has what a container saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_aorta.config.load import load
from pytest_aorta.stages.outside import path_on_the_host

VOLUMES = ["/data/aorta:/mnt", "/scratch/out:/mnt/out", "/etc/hosts"]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/mnt", "/data/aorta"),
        ("/mnt/artifacts/x", "/data/aorta/artifacts/x"),
        ("/mnt/out/x", "/scratch/out/x"),
        ("/mnt2/x", "/mnt2/x"),
        ("/root/.cache/pytest-aorta/1/workload", "/root/.cache/pytest-aorta/1/workload"),
    ],
)
def test_a_path_is_followed_through_the_nearest_mount(tmp_path: Path, inside: str, outside: str) -> None:
    config = {
        "schema_version": 1,
        "gpus_per_node": 1,
        "enforce_thresholds": False,
        "aorta_path": "/data/aorta",
        "container": {"name": "work", "image": "machine:1", "runtime": {"args": {"volumes": VOLUMES}}},
    }

    assert path_on_the_host(load(tmp_path / "c.json", config_text=config, cwd=tmp_path), inside) == outside
