"""Copies of the input files beside the report, without their secrets; the hint in every report of a failed run."""

from __future__ import annotations

import json
from typing import Any

from pytest_aorta.reporting.hints import HINTS

SECRET = "hf_Zq81xYw7"  # noqa: S105 planted


def test_a_failed_run_has_copies_without_secrets_and_its_hint_everywhere(rig: Any) -> None:
    rig.configure("--exit", "137", "--steps", "3", multi_node={"extra_env": {"HF_TOKEN": SECRET, "PLAIN": "kept"}})

    output = rig.run(code=1)

    copy = json.loads((rig.reports / "aorta_single_html" / "config_config.json").read_text("utf-8"))
    assert copy["multi_node"]["extra_env"] == {"HF_TOKEN": "<redacted>", "PLAIN": "kept"}
    assert copy["workload"]["traces"] == "out/torch_profiler/*/*"
    limits = rig.reports / "aorta_single_html" / "thresholds_limits_threshold.json"
    assert limits.read_text("utf-8") == (rig.path / "limits_threshold.json").read_text("utf-8")
    for file in rig.reports.rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file

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
