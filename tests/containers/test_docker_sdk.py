"""Docker's package, where no daemon is spoken to."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_aorta.containers.docker_sdk import SdkDriver


def test_certificates_that_are_asked_for_and_absent_are_the_cause_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    found = SdkDriver({}).find({"n1": "box"})
    assert found.good == {}
    assert "Path to a certificate and key files must be provided" in found.failed["n1"]
