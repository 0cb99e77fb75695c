"""Hints: an error that somebody can mend says how."""

from __future__ import annotations

import pytest

from pytest_aorta.reporting.hints import advice


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("could not measure: a: the folder /root/.cache/x cannot be written: Permission denied", "set work_dir"),
        ("could not measure: a: [Errno 28] No space left on device", "free space"),
        ("could not measure: a: python3 has no torch, which the workload needs", "install torch"),
        ("could not measure: a: no answer within 60 s", ""),
    ],
)
def test_advice_is_told_by_the_words_of_the_reason(reason: str, said: str) -> None:
    assert advice(reason).startswith(said)
    assert bool(advice(reason)) is bool(said)
