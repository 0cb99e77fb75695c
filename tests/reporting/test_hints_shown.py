"""Hints: shown in every report beside the first cause, and told by the logs where a reason says too little."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_aorta.checks import Check
from pytest_aorta.reporting.hints import find
from pytest_aorta.reporting.html_rows import summary_prefix
from pytest_aorta.reporting.json_report import verdict_document
from pytest_aorta.reporting.junit import gates_xml, stage_properties
from pytest_aorta.reporting.model import RunView, StageRow
from pytest_aorta.reporting.terminal import summary
from pytest_aorta.run.conclusion import hint_for, next_step
from pytest_aorta.run.folder import RunFolder
from pytest_aorta.run.record import StageRecord

REASON = "n2: cannot reach the rendezvous at 10.0.0.1:29500 on n1 (No route to host)"
CAUSE = "the other hosts cannot reach the head's rendezvous"
CHECK = Check(label="[evidence] (host=n2, check=reach)", state="failed", host="n2", reason=REASON)


@pytest.fixture
def view() -> RunView:
    row = StageRow("test_run_benchmark", "failed", 1.0, REASON, (CHECK,), hint=find(REASON))
    return RunView("r", "aorta_distributed", "failed", REASON, stages=(row,), first_cause=REASON, hint=row.hint)


def test_the_terminal_tells_it_once(view: RunView) -> None:
    lines = summary(view)
    assert [line for line in lines if line.startswith(f"hint: [fatal] {CAUSE}")]
    assert view.hint is not None
    told = summary(replace(view, next_step=view.hint.next_step))
    assert sum(view.hint.next_step in line for line in told) == 1


def test_verdict_json_has_it_and_null_without_one(view: RunView) -> None:
    hint = verdict_document(view)["hint"]
    assert hint["key"] == "rendezvous_unreachable"
    assert hint["cause"].startswith(CAUSE)
    assert set(hint) == {"key", "severity", "cause", "next_step", "source"}
    assert verdict_document(replace(view, hint=None))["hint"] is None


def test_junit_has_it_as_a_property_and_in_the_failing_gates_text(view: RunView) -> None:
    assert dict(stage_properties(view.stages[0]))["aorta.hint"].startswith(f"[fatal] {CAUSE}")
    assert "aorta.hint" not in dict(stage_properties(StageRow("s", "passed")))
    assert re.search(rf"hint: \[fatal\] {CAUSE}", gates_xml(view))


def test_the_page_has_it_with_its_source(view: RunView) -> None:
    page = summary_prefix(view)
    assert CAUSE in page.replace("&#39;", "'")
    assert "torchrun&#39;s documentation" in page


def test_the_logs_of_the_phase_tell_why_where_the_reason_says_only_that(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    stage = StageRecord(name="test_run_benchmark", outcome="failed", reason="n1: rank 0 was ended by SIGABRT")
    assert getattr(hint_for(stage, folder), "key", "") == "ended_sigabrt"
    handled = (
        "WARNING: ModuleNotFoundError: No module named 'flash_attn'\n[rank0]:[W1129 16:15:54 x] HIP out of memory\n"
    )
    (tmp_path / "benchmark-node-0.log").write_text(handled, "utf-8")
    assert getattr(hint_for(stage, folder), "key", "") == "ended_sigabrt"
    said = "n1:1:2 [0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n"
    (tmp_path / "benchmark-node-1.log").write_bytes(b"\xff step 1\n" * 100_000 + said.encode() + b"step 2\n")
    hint = hint_for(stage, folder)
    assert hint is not None
    assert hint.key == "ib_memlock"
    assert next_step({stage.name: stage}, folder) == hint.next_step
    late = "[rank0]:[E1129 16:16:21 x.cpp:1914] [PG ID 0 Rank 0] Received a dump signal due to a collective timeout\n"
    (tmp_path / "benchmark-node-1.log").write_text(late, "utf-8")
    assert getattr(hint_for(stage, folder), "key", "") == "collective_hang"
    other = stage.model_copy(update={"name": "test_collect_traces"})
    assert getattr(hint_for(other, folder), "key", "") == "ended_sigabrt"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate resources", "hsa_resources"),
        ("hipErrorNoBinaryForGpu: Unable to find code object for all current devices", "gpu_wrong_build"),
        (
            "[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to connect to (a, 29500)",
            "rendezvous_unreachable",
        ),
        ("bash: torchrun: command not found", "program_missing"),
        ("NVRM: GPU at PCI:0000:3b:00: GPU has fallen off the bus.", "gpu_off_the_bus"),
        ("Compile with `TORCH_USE_HIP_DSA` to enable device-side assertions.", ""),
        ("No module named flash_attn, falling back to sdpa", ""),
        ("/opt/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Found no NVIDIA driver", ""),
        ("[W socket.cpp:601] [c10d] The client socket has failed to connect to [::1]:29500 (errno: 97)", ""),
        ("n1:1:2 [0] NCCL INFO NET/IB : No device found.", ""),
        ("oom_kill 0", ""),
    ],
)
def test_a_line_of_the_log_that_a_hint_knows_is_enough_unless_it_was_handled(
    tmp_path: Path, line: str, key: str
) -> None:
    folder = RunFolder(tmp_path)
    stage = StageRecord(name="test_run_benchmark", outcome="failed", reason="n1: the launch command exited 1")
    log = tmp_path / "benchmark-node-0.log"
    log.write_text(f"step 1\n{line}\n", "utf-8")
    assert getattr(hint_for(stage, folder), "key", "") == key
    log.write_text(f"{line}\nRuntimeError: HIP out of memory\n", "utf-8")
    assert getattr(hint_for(stage, folder), "key", "") == "gpu_memory"


def test_what_passed_or_was_interrupted_has_none(tmp_path: Path) -> None:
    for outcome in ("passed", "skipped", "interrupted"):
        stage = StageRecord.model_validate({"name": "s", "outcome": outcome, "reason": REASON})
        assert hint_for(stage, RunFolder(tmp_path)) is None


def test_what_could_not_be_measured_beside_a_failure_is_not_its_cause(tmp_path: Path) -> None:
    checks = [
        Check(label="[execution]", state="failed", reason="n1: RuntimeError: HIP out of memory", fault="workload"),
        Check(label="[kernel log]", state="failed", reason="kernel-log scan incomplete: not permitted", fault="rig"),
    ]
    reason = "; ".join(check.reason for check in checks)
    stage = StageRecord(name="test_run_benchmark", outcome="failed", reason=reason, checks=tuple(checks))
    assert getattr(hint_for(stage, RunFolder(tmp_path)), "key", "") == "gpu_memory"
    unread = StageRecord(name="test_run_benchmark", outcome="failed", reason=checks[1].reason, checks=(checks[1],))
    unread = unread.model_copy(update={"failure": "unmeasured"})
    assert getattr(hint_for(unread, RunFolder(tmp_path)), "key", "") == "kernel_log_unread"
