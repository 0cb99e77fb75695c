"""The failure table: what breaks on two hosts, and what each stage, the verdict and the reports then say of it.

The last test prints the table, each row as expected and as seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import broken
from tests.lab.broken import GPU_RESET, RDMA_CM
from tests.lab.cluster import Cluster
from tests.lab.conftest import python_folders
from tests.lab.lab import Lab
from tests.lab.run_ending import PRIOR, STAGES, Ending, differences, see

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]


@dataclass(frozen=True)
class Row:
    """One failure: what is broken and how, how the run has to end, and what else is looked at before it is mended."""

    number: str
    case: str
    arrange: Callable[[Cluster, ExitStack], None]
    expected: Ending
    look: Callable[[Cluster, str], None] = broken.look_no_further
    act: Callable[[Cluster], tuple[int, str]] = broken.run_to_its_end


RIG: dict[str, Any] = {"code": 1, "verdict": "could_not_measure", "fault": "rig"}
BAD: dict[str, Any] = {"code": 1, "verdict": "failed"}
GOOD: dict[str, Any] = {"code": 0, "verdict": "passed", "fault": "none", "status": "completed"}

ROWS = (
    Row(
        "1", "the image cannot be pulled on node2", broken.image_cannot_be_pulled,
        Ending(
            stages="FSSSSSSSSSP", **RIG, hosts=("node2",),
            why={
                "launch": r"could not measure: could not get the image \S+: node2: .*no basic auth credentials; "
                r"check container\.image, .*"
            },
        ),
    ),
    Row(
        "2", "train_script is missing on node2", broken.file_is_missing,
        Ending(
            stages="FSSSSSSSSSP", **RIG, hosts=("node2",),
            why={"launch": r"could not measure: node2: no file /opt/aorta/train\.py; correct base_config, .*"},
        ),
    ),
    Row(
        "3", "node2's container mounts something else", broken.mount_shows_something_else,
        Ending(
            stages="PFSSSSSSSSP", **RIG, hosts=("node2",),
            why={
                "clone": r"could not measure: node2: no file /mnt/config/tiny_cpu\.yaml, /mnt/train\.py; the host has "
                r"them: does the container mount /opt/aorta:/mnt, and nothing over it\?"
            },
        ),
        look=broken.containers_still_run,
    ),
    Row(
        "4", "no rdma_cm on node2", broken.device_is_missing,
        Ending(
            stages="PPFSSSSSSSP", **RIG, hosts=("node2",),
            why={"rdma": rf"could not measure: node2: no {RDMA_CM}; load the RDMA driver there or .*"},
        ),
        look=broken.device_is_noted,
    ),
    Row(
        "4b", "no torchrun in node2's container", broken.torchrun_is_missing,
        Ending(
            stages="PPFSSSSSSSP", **RIG, hosts=("node2",),
            why={"rdma": r"could not measure: node2: /mnt/python of the image \S+ has no torch, which .*"},
        ),
    ),
    Row(
        "5", "the RCCL build exits 2 on node2 and hangs on node1", broken.build_fails,
        Ending(
            stages="PPPFSSSSSSP", **RIG, hosts=("node2",),
            why={
                "rccl": r"could not measure: node2: scripts/build_rccl\.sh ended with 2: building on node2; RCCL "
                r"build: node1 still ran 1 s after the first failure and was ended"
            },
        ),
        look=broken.both_build_logs_are_kept,
    ),
    Row(
        "6", "rank 1 dies after step 3", broken.rank_dies,
        Ending(
            stages="PPPSFFSPSPP", **BAD, fault="workload", hosts=("node2",), status="failed", uncollected=("node2",),
            why={
                "bench": r"measured, bad: node2: rank 1 exited 13 \(1 more host ended after it\)",
                "collect": r"could not measure: 1 of 2 hosts gave no traces: node2 has no trace file .* written by "
                r"this run .*",
            },
            bad=("[trace collection] (host=node2)",),
        ),
        look=broken.survivors_are_parsed,
    ),
    Row(
        "6b", "rank 1 dies, and rank 0 waits for ever", broken.rank_dies_and_its_peer_waits,
        Ending(
            stages="PPPSFFSPSPP", **BAD, fault="workload", hosts=("node2",), status="failed", uncollected=("node2",),
            why={
                "bench": r"measured, bad: node2: rank 1 exited 13; node1 still ran 5 s after the first failure and was "
                r"ended",
                "collect": r"could not measure: 1 of 2 hosts gave no traces: node2: the workload wrote nothing where "
                r"workload\.traces says .*",
            },
            bad=("[trace collection] (host=node2)",),
        ),
        look=broken.survivors_are_parsed,
    ),
    Row(
        "7", "a GPU reset in node2's kernel log", broken.gpu_resets,
        Ending(
            stages="PPPSFPSPSPP", **BAD, fault="cluster", hosts=("node2",), status="completed",
            why={"bench": rf"measured, bad: node2: kernel log: amd_gpu_reset: {GPU_RESET}"},
            bad=("[evidence] (host=node2, check=kernel_log)",),
        ),
        look=broken.programs_word_is_a_note, act=broken.reset_is_run_into,
    ),
    Row(
        "8", "the analysis script is missing", broken.analysis_script_is_missing,
        Ending(stages="PPPSPPPPPPP", **GOOD), look=broken.analysis_warns,
    ),
    Row(
        "9", "a threshold is missed", broken.threshold_is_missed,
        Ending(
            stages="PPPSPPSPFPP", **BAD, fault="cluster", status="completed",
            why={"thresholds": r"measured, bad: 1 of 2 gates failed: max_avg_iteration_ms"},
            bad=("[threshold] (metric=max_avg_iteration_ms)",),
        ),
        look=broken.other_threshold_is_held,
    ),
    Row(
        "10", "thresholds are not enforced", broken.thresholds_are_not_enforced,
        Ending(stages="PPPSPPSPSPP", **GOOD), look=broken.metrics_are_recorded,
    ),
    Row(
        "11", "no end within timeout_seconds", broken.nobody_ends,
        Ending(
            stages="PPPSFPSPSPP", **BAD, fault="workload", status="timeout",
            why={
                "bench": r"measured, bad: no end within timeout_seconds=5 \(benchmark [56] s of 5 s, 2 of 2 hosts "
                r"alive\)"
            },
        ),
    ),
    Row(
        "12", "an owner cannot be changed on node2", broken.ownership_is_kept,
        Ending(
            stages="PPPSPPSPPPF", **RIG, hosts=("node2",), status="completed",
            why={
                "teardown": r"could not measure: ownership given back: node2: 1 files could not be given to user 7001: "
                r"/mnt/of_root\.log: Operation not permitted"
            },
        ),
        look=broken.everything_else_is_given_back,
    ),
    Row(
        "13", "node2's kernel log cannot be read", broken.kernel_log_is_closed,
        Ending(
            stages="PPPSFPSPSPP", **RIG, hosts=("node2",), status="completed",
            why={
                "bench": r"could not measure: node2: kernel-log scan incomplete: reading it is not permitted; run as "
                r"root or allow `sudo -n dmesg` .*"
            },
            bad=("[evidence] (host=node2, check=kernel_log)",),
        ),
    ),
    Row(
        "14", "Ctrl-C during the benchmark", broken.steps_without_end,
        Ending(
            stages="PPPSI", code=2, verdict="interrupted", fault="none", status="failed",
            why={"bench": r"interrupted by SIGINT after \d+ s"},
        ),
        look=broken.logs_are_kept, act=broken.interrupted_at_a_step,
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def endings() -> dict[str, Ending]:
    """How the rows ended, by number."""
    return {}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_row(row: Row, lab: Lab, tmp_path: Path, endings: dict[str, Ending]) -> None:
    cluster = Cluster(tmp_path, lab=lab)
    with ExitStack() as undo:
        undo.callback(broken.end, cluster.children)
        row.arrange(cluster, undo)
        code, output = row.act(cluster)
        print(output)
        seen = endings[row.number] = see(cluster, code)
        assert list(differences(row.expected, seen)) == []
        row.look(cluster, output)
    cluster.assert_nothing_left()


def test_the_table(endings: dict[str, Ending], capsys: pytest.CaptureFixture[str]) -> None:
    seen = [row for row in ROWS if row.number in endings]
    with capsys.disabled():
        print("", f"stages: {' '.join(STAGES)}", sep="\n")
        for row in seen:
            print(f"{row.number:>3} {row.case}")
            print(f"    expected  {row.expected.line}")
            print(f"    seen      {endings[row.number].line}")
            for reason in [reason for reason in endings[row.number].why.values() if not reason.startswith(PRIOR)]:
                print(f"              {reason[:160]}")

    assert {row.number: list(differences(row.expected, endings[row.number])) for row in seen} == {
        row.number: [] for row in seen
    }
