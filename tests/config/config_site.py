"""A folder of configuration files for the tests of this room."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.load import Settings, load
from pytest_aorta.errors import ConfigError

MINIMAL: dict[str, Any] = {"schema_version": 1, "gpus_per_node": 2, "enforce_thresholds": False}
CONTAINER: dict[str, Any] = {
    "name": "aorta",
    "image": "site/image:1",
    "runtime": {"name": "docker", "args": {"volumes": ["/data/aorta:/mnt"]}},
}
TWO_NODES: dict[str, Any] = {
    "username": "me",
    "priv_key_file": "/home/me/.ssh/id",
    "node_dict": {"n0": {"vpc_ip": "10.0.0.1"}, "n1": {"vpc_ip": "10.0.0.2"}},
}


class Site:
    """A folder with configuration files in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: Mapping[str, Any] | str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def load(self, content: Mapping[str, Any] | str, **options: Any) -> Settings:
        self.write("run.json", content)
        return load(Path("run.json"), cwd=self.folder, **options)

    def minimal(self, **fields: Any) -> Settings:
        return self.load({**MINIMAL, **fields})

    def faults(self, content: Mapping[str, Any] | str, **options: Any) -> dict[str, str]:
        with pytest.raises(ConfigError) as caught:
            self.load(content, **options)
        assert len({fault.where for fault in caught.value.faults}) == len(caught.value.faults)
        return {fault.where.removeprefix("run.json: "): fault.message for fault in caught.value.faults}

    def minimal_faults(self, **fields: Any) -> dict[str, str]:
        return self.faults({**MINIMAL, **fields})

    def load_at(self, name: str, **options: Any) -> Settings:
        return load(Path(name), cwd=self.folder, **options)
