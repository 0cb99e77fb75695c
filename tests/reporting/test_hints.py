"""Hints: each speaks about its failures and no others, and the most specific one is shown."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from pytest_aorta.kernel_log.judge import judge
from pytest_aorta.kernel_log.line import Line
from pytest_aorta.reporting.hints import HINTS, Hint, find
from pytest_aorta.reporting.hints.hint import Symptom
from tests.reporting import hint_lines_of_machines as machines
from tests.reporting import hint_lines_of_runs as runs

CLASSES = Path(__file__).parents[2] / "docs" / "kernel-log.md"
LINES = (
    *(*machines.LOST, *machines.KERNEL, *machines.DEVICES, *runs.COLLECTIVES, *machines.HOSTS, *runs.WORKLOAD),
    *(*runs.WAITING, *runs.FOLLOWERS, *runs.CHECKS, *runs.UNSPECIFIC, *runs.ENDINGS),
)
BY_KEY = {hint.key: hint for hint in HINTS}


@pytest.mark.parametrize(
    ("key", "said", "label"), [(row.key, said, row.label) for row in LINES for said in row.said], ids=str
)
def test_a_failure_gets_its_own_hint_whatever_stands_around_it(key: str, said: str, label: str) -> None:
    labels = (label,) if label else ()
    assert BY_KEY[key].matches(Symptom.of(said, labels))
    found = find(f"node-7: {said}", labels)
    assert found is BY_KEY[key], f"shadowed by {found.key if found else None}"


@pytest.mark.parametrize(("key", "unlike"), [(row.key, unlike) for row in LINES for unlike in row.unlike])
def test_a_look_alike_does_not(key: str, unlike: str) -> None:
    assert not BY_KEY[key].matches(Symptom.of(unlike))


def test_every_hint_has_its_lines_and_no_name_twice() -> None:
    assert [row.key for row in LINES] == [hint.key for hint in HINTS]
    assert Counter(hint.key for hint in HINTS).most_common(1)[0][1] == 1
    assert len(HINTS) >= 40


@pytest.mark.parametrize("row", HINTS, ids=lambda row: row.key)
def test_a_hint_is_a_likely_cause_and_one_next_step_and_blames_no_host(row: Hint) -> None:
    matched_by = [row.words, row.classes, row.endings, row.checks]
    assert sum(bool(how) for how in matched_by) == 1
    for text in (row.cause, row.next_step, row.source):
        assert text
        assert text == text.strip()
        assert not text.endswith(".")
        assert "\n" not in text
        assert "docs/" not in text  # a path of the repository is none where the package is installed
        assert "HOST" not in re.findall(r"\w+", text)  # a placeholder is no command: the failure names the host
    assert len(row.cause) <= 140
    assert len(row.next_step) <= 180
    assert row.line().startswith(f"[{row.severity}] ")


def test_every_class_of_the_kernel_log_that_fails_a_run_has_a_hint() -> None:
    known = {name for hint in HINTS for name in hint.classes}
    pattern = re.compile(r"\| (?P<classes>`[^|]+`) \|[^|]*\| (?P<grave>[^|]*fatal[^|]*) \|")
    rows = pattern.findall(CLASSES.read_text("utf-8"))
    assert len(rows) > 20
    graves = {name for classes, _ in rows for name in re.findall(r"`(\w+)`", classes)}
    harmless = {"amd_gpu_reset_ok", "amd_page_fault_detail", "amd_ras_ce", "user_traceback", "pcie_aer_corrected"}
    harmless |= {"mce_corrected", "edac_ce"}
    assert graves - harmless <= known


def test_a_finding_of_the_judge_finds_its_hint() -> None:
    finding = judge([Line(1.0, "kern", "err", "amdgpu 0000:c6:00.0: amdgpu: GPU reset begin!")])[0]
    found = find(f"n1: kernel log: {finding.class_}: {finding.text}")
    assert found is BY_KEY["kernel_gpu_reset"]


def test_the_log_says_why_where_the_reason_says_only_that() -> None:
    lines = ["rank 0 says nothing", "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory"]
    assert find("n1: rank 0 was ended by SIGABRT", (), lines) is BY_KEY["ib_memlock"]
    assert find("ncclSystemError: unhandled system error", (), lines) is BY_KEY["ib_memlock"]
    assert find("n1: CUDA out of memory. Tried to allocate", (), lines) is BY_KEY["gpu_memory"]
    assert find("n1: rank 0 exited 1", (), lines) is BY_KEY["ib_memlock"]
    assert find("n1: rank 0 exited 13: RuntimeError: planned", (), lines) is None
    everyday = ['NCCL WARN Missing "iommu=pt" from kernel command line', "libibverbs.so: cannot open shared object"]
    assert find("n1: rank 0 was ended by SIGABRT", (), everyday[:1]) is BY_KEY["ended_sigabrt"]


def test_nothing_known_is_no_hint() -> None:
    for reason in ("", "n1: no answer within 60 s", "rank 1 exited 13: RuntimeError: planned", "rank 1 exited 1"):
        assert find(reason) is None


def test_a_hostile_reason_costs_little() -> None:
    for part in ("a", " ", "got completion ", "/shared/ ", "error 1 ", "; a: "):
        assert find(part * 200_000) is None or len(part) > 1
