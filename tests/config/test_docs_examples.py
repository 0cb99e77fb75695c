"""Every whole configuration and cluster that a page shows is right as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.load import load
from pytest_aorta.suite.opening import undoable
from tests.config.config_site import Site

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```json\n(\{\n[^`]*\n\})\n```")


def shown(key: str) -> list[Any]:
    """The documents on all pages that have a key."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [(page.stem, block) for page in pages for block in BLOCK.findall(page.read_text("utf-8"))]
    return [
        pytest.param(json.loads(block), id=f"{name}-{number}")
        for number, (name, block) in enumerate(blocks)
        if f'"{key}": ' in block
    ]


def test_the_pages_for_newcomers_have_examples() -> None:
    named = [str(example.id) for key in ("schema_version", "node_dict") for example in shown(key)]
    assert sum(name.startswith("first-cluster") for name in named) == 3
    assert sum(name.startswith("own-workload") for name in named) == 3


@pytest.mark.parametrize("document", shown("schema_version"))
def test_a_configuration_that_a_page_shows(site: Site, document: dict[str, Any]) -> None:
    [cluster] = (example.values[0] for example in shown("node_dict") if str(example.id).startswith("first-cluster"))
    site.write("run.json", document)
    site.write("cluster.json", cluster)
    settings = load(Path("run.json"), cluster=Path("cluster.json"), cwd=site.folder, also=undoable)
    assert [warning for warning in settings.warnings if "workload is not sent" not in warning] == []
    assert bool(settings.warnings) == (settings.config.workload is not None and settings.config.aorta_path is None)


@pytest.mark.parametrize("document", shown("node_dict"))
def test_a_cluster_that_a_page_shows(site: Site, document: dict[str, Any]) -> None:
    assert len(site.minimal(cluster=document).hosts) == len(document["node_dict"])
