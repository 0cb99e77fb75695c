"""Copies of the input files beside the report, without their secrets; the hint in every report of a failed run."""

from __future__ import annotations

import json
import zipfile
from typing import Any

import pytest

from pytest_aorta.reporting.hints import HINTS

SECRET = "hf_Zq81xYw7"  # noqa: S105 planted


def test_a_failed_run_has_copies_without_secrets_and_its_hint_everywhere(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JENKINS_URL", "http://ci/")
    monkeypatch.setenv("GIT_URL", "https://bot:g1t-Secret@github.com/x/y")
    database = "postgres://u:db-Secret@h:5432/d"
    extra = {"HF_TOKEN": SECRET, "PLAIN": "kept", "PIN_PASSWORD": "60", "DATABASE": database}
    rig.configure("--exit", "137", "--steps", "3", multi_node={"extra_env": extra})

    output = rig.run(code=1)

    copy = json.loads((rig.reports / "aorta_single_html" / "config_config.json").read_text("utf-8"))
    assert copy["multi_node"]["extra_env"] == {
        "HF_TOKEN": "<redacted>", "PLAIN": "kept", "PIN_PASSWORD": "<redacted>",
        "DATABASE": "postgres://u:<redacted>@h:5432/d",
    }  # fmt: skip
    assert copy["timeout_seconds"] == 60
    assert copy["workload"]["traces"] == "out/torch_profiler/*/*"
    limits = rig.reports / "aorta_single_html" / "thresholds_limits_threshold.json"
    assert limits.read_text("utf-8") == (rig.path / "limits_threshold.json").read_text("utf-8")
    page = (rig.reports / "aorta_single.html").read_text("utf-8")
    assert 'href="https://bot' not in page
    assert "https://bot:&lt;redacted&gt;@github.com/x/y" in page
    with zipfile.ZipFile(next(rig.reports.glob("*.zip"))) as archive:
        archive.extractall(rig.path / "unpacked")
    for folder in (rig.reports, rig.path / "unpacked", rig.folder):
        for file in folder.rglob("*"):
            text = b"" if file.is_dir() else file.read_bytes()
            assert [word for word in (SECRET, "g1t-Secret", "db-Secret") if word.encode() in text] == [], file

    killed = next(hint for hint in HINTS if hint.key == "ended_sigkill")
    assert f"hint: [fatal] {killed.cause}" in output
    assert json.loads((rig.reports / "verdict.json").read_text("utf-8"))["hint"]["key"] == "ended_sigkill"
    assert json.loads((rig.folder / "verdict.json").read_text("utf-8"))["hint"]["key"] == "ended_sigkill"
    benchmark = rig.junit().find("testcase[@name='test_run_benchmark']")
    properties = {found.get("name"): found.get("value") for found in benchmark.iter("property")}
    assert properties["aorta.hint"] == killed.line()
    failures = [failure.text for failure in benchmark.findall("failure")]
    assert sum(killed.line() in text for text in failures) == 1
    assert killed.cause in (rig.reports / "aorta_single.html").read_text("utf-8")
