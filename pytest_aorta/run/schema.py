"""JSON schemas of the documents of a run; those in docs/schema are made by this module."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel

from pytest_aorta.reporting.deck_document import DeckDocument
from pytest_aorta.reporting.json_report import BenchmarkReport, VerdictReport
from pytest_aorta.run.folder import MetricsFile
from pytest_aorta.run.record import RunRecord

DocumentKind = Literal["run", "metrics", "aorta_benchmark_report", "verdict", "deck"]
DOCUMENTS: dict[DocumentKind, type[BaseModel]] = {
    "run": RunRecord,
    "metrics": MetricsFile,
    "aorta_benchmark_report": BenchmarkReport,
    "verdict": VerdictReport,
    "deck": DeckDocument,
}


def schema_text(kind: DocumentKind) -> str:
    """Write the schema of a document as it stands in docs/schema."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **DOCUMENTS[kind].model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
