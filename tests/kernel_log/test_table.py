from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.kernel_log.judge import judge, worst
from pytest_aorta.kernel_log.table import FAMILIES, find_row
from pytest_aorta.kernel_log.verdict import ACTIONS, SEVERITIES
from pytest_aorta.kernel_log.xid import XIDS
from tests.kernel_log.printed import parse

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "kernel_log" / "corpus.json"


def _corpus() -> list[Any]:
    if not CORPUS.is_file():
        pytest.skip(f"the corpus of kernel lines is not beside the checkout ({CORPUS.name})")
    entries = json.loads(CORPUS.read_text(encoding="utf-8"))
    assert isinstance(entries, list)
    return entries


def test_the_corpus_is_judged_as_written_in_it() -> None:
    wrong = []
    for entry in _corpus():
        finding = worst(judge([parse(line) for line in entry["lines"]]))
        got = (finding.class_, finding.severity, finding.action) if finding is not None else ("", "none", "none")
        expected_class = entry["class"] if entry["severity"] != "none" else ""
        if got != (expected_class, entry["severity"], entry["action"]):
            wrong.append((entry["id"], got))

    assert wrong == []


def test_every_line_of_a_harmless_entry_is_no_finding() -> None:
    lines = [parse(line) for entry in _corpus() if entry["severity"] == "none" for line in entry["lines"]]

    assert judge(lines) == ()


def test_every_row_is_complete() -> None:
    for family in FAMILIES:
        assert all(word == word.lower() for word in family.words)
        for row in family.rows:
            assert row.source
            if row.verdict is not None:
                assert re.fullmatch(r"[a-z]+(_[a-z]+)*", row.verdict.class_)
                assert row.verdict.severity in SEVERITIES
                assert row.verdict.action in ACTIONS
                assert row.verdict.severity != "note" or row.verdict.action == "none"


def test_every_published_number_has_a_complete_judgement() -> None:
    for number, (class_, severity, action, reason) in XIDS.items():
        line = f"NVRM: Xid (PCI:0000:4a:00): {number}, pid=1, name=x"
        (finding,) = judge([parse(line)])

        assert (finding.class_, finding.severity, finding.action) == (class_, severity, action)
        assert finding.reason == f"Xid {number}: {reason}"
        assert severity != "note" or action == "none"


def test_an_unknown_number_is_judged_carefully() -> None:
    (finding,) = judge([parse("NVRM: Xid (PCI:0000:4a:00): 999, pid=1, name=x")])

    assert (finding.severity, finding.action) == ("degrade", "none")
    assert "999" in finding.reason


def test_every_class_stands_in_the_documentation() -> None:
    documented = set(
        re.findall(r"`([a-z]+(?:_[a-z]+)*)`", (ROOT / "docs" / "kernel-log.md").read_text(encoding="utf-8"))
    )
    classes = {row.verdict.class_ for family in FAMILIES for row in family.rows if row.verdict is not None}
    classes |= {class_ for class_, *_ in XIDS.values()}

    assert classes - documented == set()


def test_text_beyond_what_the_kernel_can_print_is_not_read() -> None:
    assert find_row("x" * 5000 + " GPU reset begin amdgpu") is None
