"""The kernel-log scan and the last look at hosts, of hosts that answer from a script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.checks import Check
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.products import LogWindow
from pytest_aorta.run.record import StageRecord
from pytest_aorta.stages.examine import look_again
from pytest_aorta.stages.kernel import scan
from tests.run.test_context import context

XID_94 = "NVRM: Xid (PCI:0000:c1:00): 94, pid=1, name=python, Contained"
XID_79 = "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus."
STALL = "nfs: server 10.0.0.1 not responding, still trying"


def kernel_log(*texts: str) -> dict[str, Any]:
    lines = [{"stamp_s": float(i), "facility": "kern", "level": "err", "text": text} for i, text in enumerate(texts)]
    return {"status": "read", "boot_id": "b", "lines": lines, "dropped": 0}


@pytest.fixture
def hosts() -> dict[str, ScriptedTransport]:
    return {
        "a": ScriptedTransport([Reply("kernel_log", kernel_log(XID_94, STALL, XID_79), times=0)]),
        "b": ScriptedTransport([Reply("kernel_log", kernel_log("usb 1-1: new device"), times=0)]),
    }


@pytest.fixture
def run(tmp_path: Path, hosts: dict[str, ScriptedTransport]) -> Iterator[RunContext]:
    fleet = Fleet(dict(hosts))
    fleet.open(dict.fromkeys(hosts, "/state"))
    yield context(tmp_path, fleet)
    fleet.close()


def test_what_only_warns_is_one_check_of_its_host_beside_what_is_fatal(run: RunContext) -> None:
    windows = dict.fromkeys(("a", "b"), LogWindow(boot_id="b", since_uptime_s=0.0))
    fatal, warned = sorted(scan(run, windows, "cpu", {}, completed=False).checks, key=lambda check: check.state)
    assert (fatal.state, fatal.label) == ("failed", "[evidence] (host=a, check=kernel_log)")
    assert "Xid (PCI:0000:c1:00): 79" in fatal.reason
    assert (warned.state, warned.label) == ("warned", "[evidence] (host=a, check=kernel_log_warnings)")
    assert (warned.host, warned.subtest) == ("a", False)
    assert "nv_xid_ecc: " in warned.reason
    assert "nfs_stall: " in warned.reason
    assert warned.next_step == "a: restart job: Xid 94: contained memory error, one job was killed"


def test_the_log_that_is_kept_holds_no_secret(run: RunContext) -> None:
    run.folder = replace(run.folder, secrets=("10.0.0.1",))
    scan(run, {"a": LogWindow(boot_id="b", since_uptime_s=0.0)}, "cpu", {}, completed=False)
    kept = run.folder.kernel_log("a").read_text("utf-8")
    assert "nfs: server <redacted> not responding" in kept
    assert "Xid (PCI:0000:c1:00): 79" in kept


def scanned(tmp_path: Path, answer: dict[str, Any], **fields: Any) -> tuple[list[Check], RunContext]:
    """Scan the log of one host."""
    fleet = Fleet({"a": ScriptedTransport([Reply("kernel_log", answer)])})
    fleet.open({"a": "/state"})
    run = context(tmp_path, fleet, **fields)
    found = scan(run, {"a": LogWindow(boot_id="b", since_uptime_s=1.0)}, "cpu", {}, completed=False)
    fleet.close()
    return found.checks, run


def test_a_log_of_which_lines_were_left_out_is_not_clean(tmp_path: Path) -> None:
    answer = kernel_log("usb 1-1: new device", "usb 1-1: gone") | {"dropped": 1998}
    (check,), run = scanned(tmp_path, answer)
    assert (check.state, check.fault) == ("failed", "rig")
    assert "scan incomplete: of 2000 lines since the launch 1998 in the middle were left out" in check.reason
    assert "(1998 lines were left out here)\n[1.000000]" in run.folder.kernel_log("a").read_text("utf-8")


def test_a_log_that_was_cleared_is_not_clean(tmp_path: Path) -> None:
    answer = kernel_log() | {"status": "cleared"}
    (check,), _ = scanned(tmp_path, answer, kernel_log={"required": False})
    assert check.state == "not_judged"
    assert "somebody cleared it" in check.reason


def test_what_to_do_goes_by_the_worst_line_not_by_the_first(tmp_path: Path) -> None:
    crash = "python3[4711]: segfault at 10 ip 0f sp 0f error 4 in libx.so[7f+1]"
    (check,), _ = scanned(tmp_path, kernel_log(crash, XID_79))
    assert check.next_step.startswith("a: reboot: Xid 79")
    assert check.fault == "cluster"


@pytest.mark.parametrize(
    ("is_inside", "completed", "blamed"),
    [(False, False, ["ours"]), (True, False, ["ours", "unseen", "unasked"]), (True, True, ["ours"])],
    ids=["bare", "inside", "inside of a run that ended well"],
)
def test_a_crash_is_the_jobs_by_the_threads_of_its_own_host(
    tmp_path: Path, is_inside: bool, completed: bool, blamed: list[str]
) -> None:
    crash = kernel_log("python3[4711]: segfault at 10 ip 0f sp 0f error 4 in libx.so[7f+1]")
    pids = {"ours": {4711}, "foreign": {12}, "unseen": set[int]()}
    fleet = Fleet({host: ScriptedTransport([Reply("kernel_log", crash)]) for host in (*pids, "unasked")})
    fleet.open(dict.fromkeys(fleet.hosts, "/state"))
    windows = dict.fromkeys(fleet.hosts, LogWindow(boot_id="b", since_uptime_s=0.0))
    run = context(tmp_path, fleet)
    if is_inside:
        run.enter(Fleet({}))
    found = scan(run, windows, "cpu", pids, completed=completed)
    fleet.close()
    assert [check.host for check in found.checks if check.failed] == blamed


def test_a_machine_that_is_fine_is_not_blamed_for_its_job(tmp_path: Path) -> None:
    killed = "Memory cgroup out of memory: Killed process 4321 (python3) total-vm:11964kB"
    logs = {"a": kernel_log(killed), "b": kernel_log(killed, XID_79)}
    fleet = Fleet({host: ScriptedTransport([Reply("kernel_log", told)]) for host, told in logs.items()})
    fleet.open(dict.fromkeys(logs, "/state"))
    windows = dict.fromkeys(logs, LogWindow(boot_id="b", since_uptime_s=0.0))
    found = scan(context(tmp_path, fleet), windows, "cpu", {"a": {4321}, "b": {4321}}, completed=False)
    fleet.close()
    assert [(check.host, check.state, check.fault) for check in found.checks] == [
        ("a", "failed", "workload"),
        ("b", "failed", "cluster"),
    ]


def test_a_host_that_failed_is_looked_at_again_and_no_other(
    run: RunContext, hosts: dict[str, ScriptedTransport]
) -> None:
    run.folder.write_document(run.folder.facts("a"), {"nvidia": ["/dev/nvidia0"], "kfd": False})
    hosts["a"].replies += [
        Reply("devices", {"machine": {}, "pci": [], "counters": {"x": 1}}),
        Reply("run", {"exit_code": 0, "stdout": "Serial Number : 165\n", "stderr": ""}),
    ]
    bad = Check(label="x", state="failed", host="a", reason="bad")
    rig = Check(label="y", state="failed", host="b", reason="not reached", fault="rig")
    run.record.stage(StageRecord(name="test_run_benchmark", outcome="failed", checks=(bad, rig)))

    look_again(run)

    assert '"x": 1' in run.folder.devices("a", after=True).read_text("utf-8")
    kept = {path.name: path.read_text("utf-8") for path in run.folder.tools("a").iterdir()}
    assert kept["nvidia-smi-q.txt"] == "Serial Number : 165\n"
    assert "Xid (PCI:0000:c1:00): 79" in kept["kernel-since-boot.txt"]
    assert [ask.args["argv"] for ask in hosts["a"].asked if ask.do == "run"] == [["nvidia-smi", "-q"]]
    assert hosts["b"].asked == []
