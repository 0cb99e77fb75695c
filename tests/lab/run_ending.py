"""How a run ended: what it left, read once, and how that differs from what was expected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.lab.cluster import Cluster

STAGES = {
    "launch": "test_launch_container",
    "clone": "test_clone_aorta",
    "rdma": "test_setup_rdma",
    "rccl": "test_build_rccl",
    "bench": "test_run_benchmark",
    "collect": "test_collect_traces",
    "analyze": "test_analyze",
    "parse": "test_parse_results",
    "thresholds": "test_validate_thresholds",
    "report": "test_generate_report",
    "teardown": "test_teardown",
}
PRIOR = "a prior lifecycle stage failed"
NOT_NEEDED = {
    "rccl": "skip_rccl_build=true",
    "analyze": "Optional TraceLens/GEMM analysis is disabled",
    "thresholds": "enforce_thresholds=false; metrics are recorded without threshold assertions",
}


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: a letter a stage, the exit code, the verdict, on whose account, and the hosts it points at.

    `why` are reasons by stage: as seen, of every stage that did not pass; as expected, patterns of whole reasons, of
    every stage that failed. `bad` are the labels of the sub-tests that failed, `status` and `uncollected` stand in the
    report.
    """

    stages: str
    code: int
    verdict: str
    fault: str
    hosts: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)
    bad: tuple[str, ...] = ()
    status: str = "pending"
    uncollected: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """What fits into a line of the table."""
        letters = " ".join(self.stages.ljust(len(STAGES), "-"))
        return f"{letters}  {self.code}  {self.verdict}/{self.fault} {','.join(self.hosts)}".rstrip()


def report_of(cluster: Cluster) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((cluster.folder / "aorta_benchmark_report.json").read_text("utf-8"))
    return document


def subtests(cluster: Cluster) -> dict[str, str]:
    """Give how each sub-test went, by label, as JUnit tells it."""
    properties = cluster.junit("aorta_distributed.xml").iter("property")
    told = [str(one.get("value")) for one in properties if one.get("name") == "cvs_aorta_subtest"]
    return {label: rest.partition(";")[0] for label, _, rest in (text.partition(": ") for text in told)}


def see(cluster: Cluster, code: int) -> Ending:
    """Read how a run ended from what it left."""
    verdict = json.loads((cluster.folder / "verdict.json").read_text("utf-8"))
    stages = cluster.record()["stages"]
    report = report_of(cluster)
    assert report["validation_passed"] is (verdict["verdict"] == "passed")
    return Ending(
        stages=cluster.letters(),
        code=code,
        verdict=verdict["verdict"],
        fault=verdict["fault"],
        hosts=tuple(host["host"] for host in verdict["hosts"]),
        why={
            name: stages[test]["reason"]
            for name, test in STAGES.items()
            if test in stages and stages[test]["outcome"] != "passed"
        },
        bad=tuple(label for label, outcome in subtests(cluster).items() if outcome == "failed"),
        status=report["status"],
        uncollected=tuple(report["collection_errors"]),
    )


def differences(expected: Ending, seen: Ending) -> Iterator[str]:
    """Say in what a run ended otherwise than expected: also by the reason of any stage that did not pass."""
    for name in ("stages", "code", "verdict", "fault", "hosts", "bad", "status", "uncollected"):
        if getattr(seen, name) != getattr(expected, name):
            yield f"{name}: {getattr(seen, name)!r}, expected {getattr(expected, name)!r}"
    first = next((name for name, letter in zip(STAGES, expected.stages, strict=False) if letter in "FI"), "")
    before = True
    for name, letter in zip(STAGES, expected.stages, strict=False):
        before = before and name != first
        if letter == "S":
            pattern = re.escape(NOT_NEEDED[name]) if before else re.escape(f"{PRIOR}: {STAGES[first]}: ") + ".+"
        elif letter == "P":
            continue
        else:
            pattern = expected.why[name]
        if not re.fullmatch(pattern, seen.why.get(name, ""), re.DOTALL):
            yield f"{name}: {seen.why.get(name)!r}, expected {pattern!r}"
