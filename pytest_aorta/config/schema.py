"""JSON schemas of the files that users write; those in docs/schema are made by this module."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel

from pytest_aorta.config.cluster_file import ClusterFile
from pytest_aorta.config.model import RunConfig, ThresholdFile

SchemaKind = Literal["config", "cluster", "thresholds"]
_MODELS: dict[SchemaKind, type[BaseModel]] = {"config": RunConfig, "cluster": ClusterFile, "thresholds": ThresholdFile}


def schema(kind: SchemaKind) -> dict[str, Any]:
    """Make the schema of one kind of file; comment keys (`_...`) of its top level are allowed."""
    document = _MODELS[kind].model_json_schema()
    document["patternProperties"] = {"^_": {"description": "A comment; it is left out."}}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}


def schema_text(kind: SchemaKind) -> str:
    """Write the schema as it stands in docs/schema."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"
