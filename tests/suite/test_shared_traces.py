"""A host is good only when its own ranks are known to have trained: folders of traces that several hosts share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = Path(__file__).with_name("sample_workload.py")
SAMPLE = f"{sys.executable} {WORKLOAD}"
TWO_HOSTS = {"transport": "local", "node_dict": {"n1": {"vpc_ip": "127.0.0.1"}, "n2": {"vpc_ip": "127.0.0.1"}}}
NOT_JUDGED = "not judged: whether n[1-2] trained: the folder of the traces is shared, no process with a RANK was seen"


def run_on_two(rig: Any, script: str, *, code: int, **fields: Any) -> str:
    """Run on two hosts that share their folder."""
    workload = {"command": ["sh", "-c", script], "traces": "out/torch_profiler/*/*"}
    rig.configure(workload=workload, cluster=TWO_HOSTS, gpus_per_node=1, **fields)
    return str(rig.run(code=code))


def good(rig: Any) -> str:
    return str((rig.reports / "good_nodes.txt").read_text("utf-8"))


def test_a_host_that_did_nothing_beside_one_that_wrote_all_ranks(rig: Any) -> None:
    output = run_on_two(rig, f"mkdir one 2>/dev/null || exit 0; {SAMPLE} --ranks 2", code=0)

    assert NOT_JUDGED in output
    assert output.count("whether n[1-2] trained") == rig.record()["sentence"].count("whether n[1-2] trained") == 1
    assert good(rig) == ""


def test_a_host_that_did_nothing_beside_one_that_trained_alone(rig: Any) -> None:
    run_on_two(rig, f"mkdir one 2>/dev/null || exit 0; {SAMPLE} --ranks 1", code=1)

    assert "1 rank wrote a trace on 2 hosts, expected one or more of each host" in rig.reason("test_parse_results")
    assert good(rig) == ""


@pytest.mark.parametrize("environment", ["RANK=$rank ", ""])
def test_hosts_whose_ranks_were_seen_are_good(rig: Any, environment: str) -> None:
    script = (
        f"mkdir one 2>/dev/null && rank=0 || rank=1; {environment}{SAMPLE} --ranks 2 --rank $rank --step-ms 40; exit $?"
    )

    output = run_on_two(rig, script, code=0)

    assert (NOT_JUDGED in output) is not bool(environment)
    assert good(rig) == ("n[1-2]\n" if environment else "")


def test_hosts_whose_traces_nobody_reads_are_not_good(rig: Any) -> None:
    script = f"mkdir one 2>/dev/null || exit 0; {SAMPLE} --ranks 1"

    output = run_on_two(rig, script, multi_node={"collect_traces": False}, code=0)

    assert "not judged: whether n2 trained: multi_node.collect_traces is false" in output
    assert good(rig) == "n1\n"
