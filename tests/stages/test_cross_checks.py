"""What is wrong with the ranks of a run, told once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_aorta.config.load import load
from pytest_aorta.config.settings import Settings
from pytest_aorta.run.products import Artifacts
from pytest_aorta.stages.cross_checks import cross_checks
from pytest_aorta.trace.ranks import Summaries

CONFIG = Path(__file__).parents[2] / "configs" / "local_cpu.json"
ARTIFACTS = Artifacts(layout="single", torch_traces="traces", accelerator="cpu", completed=False)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(CONFIG, output=tmp_path)


@pytest.mark.parametrize("collected", [True, False])
def test_missing_ranks_only_warn_where_the_collection_failed_by_them(settings: Settings, collected: bool) -> None:
    host = settings.cluster.hosts[0].name
    errors = {} if collected else {host: f"{host} has no trace file"}

    (check,) = cross_checks(settings, ARTIFACTS.model_copy(update={"errors": errors}), Summaries((), ()), ())

    assert check.label == "[evidence] (check=missing_ranks)"
    assert check.reason == f"no trace of rank 0, 1 (on {host}); metrics are those of the others"
    assert check.state == ("failed" if collected else "warned")
