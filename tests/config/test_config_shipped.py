from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from pytest_aorta.config.cluster_file import ClusterFile
from pytest_aorta.config.load import load
from pytest_aorta.config.model import RunConfig, ThresholdFile
from pytest_aorta.config.schema import SchemaKind, schema, schema_text
from pytest_aorta.config.shipped import shipped, shipped_configs, shipped_thresholds
from pytest_aorta.config.validation import field_places
from pytest_aorta.errors import ConfigError

ROOT = Path(__file__).parents[2]
KINDS: tuple[SchemaKind, ...] = ("config", "cluster", "thresholds")


def test_everything_promised_is_shipped() -> None:
    assert [path.name for path in shipped_configs()] == [
        "h200_2gpu.json",
        "local_cpu.json",
        "local_gpu.json",
        "mi3xx_aorta_profile_overlap_2gpu_distributed.json",
        "mi3xx_aorta_profile_overlap_2gpu_single.json",
        "slurm_distributed.json",
    ]
    assert len(shipped_thresholds()) == 5


@pytest.mark.parametrize("path", shipped_configs(), ids=lambda path: path.stem)
def test_a_sample_loads_once_its_placeholders_are_filled(path: Path, tmp_path: Path) -> None:
    for source in (path, *shipped_thresholds()):
        target = tmp_path / source.parent.name / source.name
        target.parent.mkdir(exist_ok=True)
        target.write_text(source.read_text().replace("<changeme>", "site"))
    settings = load(tmp_path / "configs" / path.name, cwd=tmp_path)
    assert settings.thresholds.any_set()
    assert settings.config.enforce_thresholds
    assert settings.warnings == ()


def test_the_local_cpu_sample_needs_nothing() -> None:
    settings = load(shipped("configs/local_cpu.json"))
    assert settings.launch_mode == "torchrun"
    assert settings.world_size == 2
    assert not settings.uses_container
    assert not settings.config.kernel_log.required
    assert settings.skip_rccl_build


def test_published_sample_limits() -> None:
    document = json.loads(shipped("thresholds/mi3xx_aorta_profile_overlap_2gpu_threshold.json").read_text())
    assert list(document["expected_results"].values()) == [12000, 0.01, 0.0, 0.5]


@pytest.mark.parametrize("name", ["configs/nope.json", "../etc", "configs/../pyproject.toml", "docs", ""])
def test_nothing_else_is_shipped(name: str) -> None:
    with pytest.raises(ConfigError, match="is not shipped"):
        shipped(name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_in_the_docs_is_the_models(kind: SchemaKind) -> None:
    assert (ROOT / "docs" / "schema" / f"{kind}.schema.json").read_text() == schema_text(kind)


def test_schemas_allow_comments_and_refuse_unknown_fields() -> None:
    assert schema("config")["additionalProperties"] is False
    assert "^_" in schema("config")["patternProperties"]


@pytest.mark.parametrize("model", [RunConfig, ClusterFile, ThresholdFile])
def test_the_documentation_names_every_field(model: type[BaseModel]) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    assert [
        place
        for place in field_places(model)
        if place[-1] not in {"mgmt_ip", "secret"} and f"`{place[-1]}`" not in text
    ] == []
