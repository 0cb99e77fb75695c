"""Secrecy: no secret in what a run writes, and what a run writes can still be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_aorta.run.folder import RunFolder, new_run_id
from pytest_aorta.run.record import RecordKeeper, StageRecord, read
from pytest_aorta.run.secrecy import clean_line


@pytest.mark.parametrize("secret", ["passed", "stages", "test", "name", "single", "reason", "1", "run", "hunter"])
def test_a_record_stays_readable_whatever_word_is_secret(tmp_path: Path, secret: str) -> None:
    folder = replace(RunFolder.create(tmp_path, new_run_id()), secrets=(secret,))
    keeper = RecordKeeper.begin(folder, suite="single", plan=("test_x",), config={}, inputs={}, environment={})
    keeper.stage(StageRecord(name="test_x", outcome="passed", reason=f"it said {secret} and ended"))
    record = read(folder)
    assert record.stages["test_x"].outcome == "passed"
    assert record.stages["test_x"].reason == "it said <redacted> and ended"


def test_a_heartbeat_stays_one_whatever_number_is_secret() -> None:
    line = '{"aorta": "step", "step": 7, "loss": 1.25}'
    assert clean_line(line, ("7", "1", "step")) == line
    assert json.loads(clean_line('{"aorta": "step", "note": "7"}', ("7",)))["note"] == "<redacted>"
    assert clean_line("the token is hunter", ("hunter",)) == "the token is <redacted>"
