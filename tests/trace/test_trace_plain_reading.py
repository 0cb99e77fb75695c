"""The engine's times beside an independent reading of the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_aorta.trace.ranks import summarize
from tests.trace.plain_reading import times_us

TRACES = sorted((Path(__file__).parents[3] / "shared" / "traces").glob("h200_*/rank*/trace.json.gz"))
pytestmark = pytest.mark.skipif(not TRACES, reason="the corpus of traces (../shared/traces) is not here")


@pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_the_engine_reads_what_a_plain_reading_finds(path: Path) -> None:
    (rank,) = summarize(path).ranks
    found = times_us(path)
    assert found["total_comm_time_us"] > 0
    assert {name: getattr(rank, name) for name in found} == pytest.approx(found, abs=1e-3)
