"""The committed schemas of the run folder's documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_aorta.run.schema import DOCUMENTS, DocumentKind, schema_text

FOLDER = Path(__file__).parents[2] / "docs" / "schema"


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_committed_schema_is_that_of_the_model(kind: DocumentKind) -> None:
    """Regenerate with: aorta runs schema KIND > docs/schema/KIND.schema.json."""
    assert (FOLDER / f"{kind}.schema.json").read_text("utf-8") == schema_text(kind)
