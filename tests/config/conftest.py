from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.config_site import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in ("SLURM_JOB_ID", "SPUR_NODES"):
        monkeypatch.delenv(name, raising=False)
    return Site(tmp_path)
