"""The failure table: what breaks on two hosts, and what each stage, the verdict and the reports then say of it.

The last test prints the table, each row as expected and as seen.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cluster import CHECKOUT, CONTAINER, IMAGE, Cluster
from tests.lab.conftest import python_folders
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until
from tests.suite.conftest import WORKLOAD

pytestmark = [pytest.mark.lab(2, docker=True, binds=python_folders()), pytest.mark.torch]

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
SHORT = {"training.max_steps": 8}  # the profiled steps are 3 to 5
PRIVATE = "127.0.0.1:5000/private/machine:1"
RDMA_CM = "/dev/infiniband/rdma_cm"
GPU_RESET = "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"
CACHE = "/root/.cache/pytest-aorta"
USER_ID = 7001
DENYING_REGISTRY = """
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="private"')
        self.end_headers()

    do_HEAD = do_GET

http.server.HTTPServer(("127.0.0.1", 5000), Handler).serve_forever()
"""
# One process a node, without torch: writes its trace and waits for ever; `die`: that of node2 exits instead.
WAITING_WORKLOAD = f"""
import pathlib, socket, sys, time
sys.path.insert(0, {str(WORKLOAD.parent)!r})
import sample_workload

rank = int(socket.gethostname().removeprefix("node")) - 1
if rank == 1 and "die" in sys.argv:
    sys.exit(13)
out = pathlib.Path("out")
sample_workload.add_step(sample_workload.step_log(out, rank), rank, 2, 0, 1.0)
sample_workload.write_trace(out, rank, 2)
time.sleep(600)
"""


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


def run_to_its_end(cluster: Cluster) -> tuple[int, str]:
    """Run pytest; give its exit code and output."""
    child = cluster.start()
    output, _ = child.communicate(timeout=150)
    return child.returncode, output


def look_no_further(cluster: Cluster, output: str) -> None:
    """The table says everything."""


@dataclass(frozen=True)
class Row:
    """One failure: what is broken and how, how the run has to end, and what else is looked at before it is mended."""

    number: str
    case: str
    arrange: Callable[[Cluster, ExitStack], None]
    expected: Ending
    look: Callable[[Cluster, str], None] = look_no_further
    act: Callable[[Cluster], tuple[int, str]] = run_to_its_end


# 1 and 2: not everything is there.


def image_cannot_be_pulled(cluster: Cluster, undo: ExitStack) -> None:
    first, second = cluster.lab.hosts
    first.run(["docker", "tag", IMAGE, PRIVATE], check=True)
    undo.callback(first.run, ["docker", "rmi", PRIVATE], check=True)
    second.start("python3", "-c", DENYING_REGISTRY)
    knock = ["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 5000))"]
    wait_until(lambda: second.run(knock).returncode == 0, "the registry", 10)
    [server] = [process.pid for process in second.processes() if DENYING_REGISTRY in process.argv]
    undo.callback(second.run, ["kill", str(server)], check=True)
    cluster.configure_cluster(container={"image": PRIVATE})


def file_is_missing(cluster: Cluster, undo: ExitStack) -> None:
    fields = check_out(cluster, undo)
    cluster.lab.hosts[1].path(f"{CHECKOUT}/train.py").unlink()
    cluster.configure_cluster(**fields)


# 3: containers that somebody else started.


def mount_shows_something_else(cluster: Cluster, undo: ExitStack) -> None:
    fields = check_out(cluster, undo)
    for host, shown in zip(cluster.lab.hosts, (CHECKOUT, "/opt/elsewhere"), strict=True):
        host.run(["mkdir", "-p", shown, CACHE], check=True)
        mounts = [f"--volume={shown}:/mnt", f"--volume={CACHE}:{CACHE}"]
        argv = ["docker", "run", "--detach", "--network=host", f"--name={CONTAINER}", *mounts, IMAGE]
        host.run([*argv, "sleep", "infinity"], check=True)
        undo.callback(host.run, ["docker", "rm", "--force", CONTAINER], check=True)
    fields["container"]["lifetime"] = "no_launch"
    cluster.configure_cluster(**fields)


def containers_still_run(cluster: Cluster, output: str) -> None:
    for host in cluster.lab.hosts:
        assert [(each.name, each.state) for each in host.containers()] == [(CONTAINER, "running")]


# 4: what the ranks need to find each other.


def device_is_missing(cluster: Cluster, undo: ExitStack) -> None:
    first = cluster.lab.hosts[0]
    first.run(["mkdir", "-p", "/dev/infiniband"], check=True)
    os.mknod(first.path(RDMA_CM), 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    undo.callback(first.run, ["rm", "-r", "/dev/infiniband"], check=True)
    cluster.configure_cluster(container={"runtime": {"args": {"devices": [RDMA_CM]}}})


def torchrun_is_missing(cluster: Cluster, undo: ExitStack) -> None:
    fields = check_out(cluster, undo)
    for host, python in zip(cluster.lab.hosts, (sys.executable, "/usr/bin/python3"), strict=True):
        script = host.path(f"{CHECKOUT}/python")
        script.write_text(f'#!/bin/sh\nexec {python} "$@"\n', "utf-8")
        script.chmod(0o755)
    cluster.configure_cluster(**fields, python="/mnt/python")


# 5


def build_fails(cluster: Cluster, undo: ExitStack) -> None:
    fields = check_out(cluster, undo)
    for host, code in zip(cluster.lab.hosts, (0, 2), strict=True):
        script = host.path(f"{CHECKOUT}/scripts/build_rccl.sh")
        script.write_text(f"echo 'building on {host.name}'\nexit {code}\n", "utf-8")
    cluster.configure_cluster(**fields, skip_rccl_build=False)


def both_build_logs_are_kept(cluster: Cluster, output: str) -> None:
    for rank, name in enumerate(cluster.names):
        assert (cluster.folder / f"rccl-node-{rank}.log").read_text("utf-8") == f"building on {name}\n"
    assert f"next: read {cluster.folder / 'rccl-node-1.log'}\n" in output


# 6: a rank dies; what its peer had recorded until then is written by the peer as it ends.


def rank_dies(cluster: Cluster, undo: ExitStack) -> None:
    fault = {"kind": "exit", "rank": 1, "step": 4, "exit_code": 13}
    overrides = {f"fault_injection.{name}": value for name, value in fault.items()}
    cluster.configure_cluster(training_overrides={**SHORT, **overrides})


def rank_dies_and_its_peer_waits(cluster: Cluster, undo: ExitStack) -> None:
    fields = waiting_workload(cluster, undo, "die", launcher="torchrun")
    cluster.configure_cluster(**fields, failure_grace_seconds=5)


def survivors_are_parsed(cluster: Cluster, output: str) -> None:
    assert cluster.record()["products"]["Result"]["missing_ranks"] == [1]
    assert "no trace of rank 1 (on node2); metrics are those of the others" in output
    assert [path.name for path in (cluster.folder / "combined_traces").rglob("rank[0-9]")] == ["rank0"]
    for rank in (0, 1):
        assert (cluster.folder / f"benchmark-node-{rank}.log").read_text("utf-8")


# 7 and 13: the kernel's own word.


def gpu_resets(cluster: Cluster, undo: ExitStack) -> None:
    """What programs write to /dev/kmsg is never of the kernel's facility, and one ring serves all hosts of a lab.

    So node2's dmesg shows one more line, stamped when it is read. What a program writes into the ring is a note.
    """
    second = cluster.lab.hosts[1]
    second.run(["mv", "/usr/bin/dmesg", "/usr/bin/dmesg.real"], check=True)
    undo.callback(second.run, ["mv", "/usr/bin/dmesg.real", "/usr/bin/dmesg"], check=True)
    now = '$(cut -d " " -f 1 /proc/uptime)0000'
    script = second.path("/usr/bin/dmesg")
    script.write_text(f'#!/bin/sh\n/usr/bin/dmesg.real "$@" && echo "kern  :err   : [{now}] {GPU_RESET}"\n', "utf-8")
    script.chmod(0o755)
    cluster.configure_cluster(training_overrides=SHORT, kernel_log={"required": True})


def reset_is_run_into(cluster: Cluster) -> tuple[int, str]:
    """Run; a program on node1 says the same of another GPU meanwhile."""
    child = cluster.start()
    wait_until(lambda: child.poll() is not None or steps_on(cluster.lab.hosts[0]), "a step", 60)
    cluster.lab.hosts[0].log_kernel(GPU_RESET.replace("c1", "d1"))
    output, _ = child.communicate(timeout=120)
    return child.returncode, output


def programs_word_is_a_note(cluster: Cluster, output: str) -> None:
    assert cluster.record()["products"]["Execution"]["kernel_log_notes"] >= 2  # read on both hosts
    assert "0000:d1:00.0" not in (cluster.folder / "verdict.json").read_text("utf-8")


def kernel_log_is_closed(cluster: Cluster, undo: ExitStack) -> None:
    second = cluster.lab.hosts[1]
    second.run(["mv", "/etc/sudoers.d/lab", "/root/lab.sudoers"], check=True)
    undo.callback(second.run, ["mv", "/root/lab.sudoers", "/etc/sudoers.d/lab"], check=True)
    cluster.configure_cluster(container={}, username="lab", training_overrides=SHORT, kernel_log={"required": True})


# 8 to 10: nothing is broken, and something is asked that cannot be had.


def analysis_script_is_missing(cluster: Cluster, undo: ExitStack) -> None:
    fields = check_out(cluster, undo)
    cluster.configure_cluster(**fields, training_overrides=SHORT, analysis={"enable_tracelens": True})


def analysis_warns(cluster: Cluster, output: str) -> None:
    [note] = cluster.record()["stages"]["test_analyze"]["notes"]
    assert "run_tracelens_single_config.sh exited 127 on node1: " in note
    assert f"note: test_analyze: {note}" in output
    assert report_of(cluster)["metrics_source"] == "CPU steps of raw traces (no GPU events)"


def threshold_is_missed(cluster: Cluster, undo: ExitStack) -> None:
    limits = {"max_avg_iteration_ms": 0.001, "max_time_variance_ratio": 5.0}
    cluster.configure_cluster(training_overrides=SHORT, thresholds=limits)


def other_threshold_is_held(cluster: Cluster, output: str) -> None:
    assert subtests(cluster)["[threshold] (metric=max_time_variance_ratio)"] == "passed"


def thresholds_are_not_enforced(cluster: Cluster, undo: ExitStack) -> None:
    limits = {"max_avg_iteration_ms": 0.001}
    cluster.configure_cluster(training_overrides=SHORT, thresholds=limits, enforce_thresholds=False)


def metrics_are_recorded(cluster: Cluster, output: str) -> None:
    assert report_of(cluster)["validation_passed"] is True
    assert report_of(cluster)["performance"]["avg_iteration_time_ms"] > 0.001
    assert not any(label.startswith("[threshold]") for label in subtests(cluster))


# 11 and 14: no end of its own.


def nobody_ends(cluster: Cluster, undo: ExitStack) -> None:
    fields = waiting_workload(cluster, undo, launcher="none")
    cluster.configure_cluster(**fields, timeout_seconds=5)


def steps_without_end(cluster: Cluster, undo: ExitStack) -> None:
    cluster.configure_cluster(training_overrides={"training.max_steps": 1_000_000})


def interrupted_at_a_step(cluster: Cluster) -> tuple[int, str]:
    """Press Ctrl-C once the ranks take steps."""
    child = cluster.start()
    wait_until(lambda: child.poll() is not None or steps_on(cluster.lab.hosts[0]), "a step", 60)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    return child.returncode, output


def logs_are_kept(cluster: Cluster, output: str) -> None:
    assert re.search(r"INTERRUPTED: test_run_benchmark: interrupted by SIGINT after \d+ s", output)
    assert '"aorta": "step"' in (cluster.folder / "benchmark-node-0.log").read_text("utf-8")
    assert (cluster.folder / "benchmark-node-1.log").read_text("utf-8")


# 12: containers write as root what a user without rights has to get back.


def ownership_is_kept(cluster: Cluster, undo: ExitStack) -> None:
    fields = check_out(cluster, undo)
    for host in cluster.lab.hosts:
        allowed = host.path("/etc/sudoers.d/lab-docker")
        allowed.write_text("lab ALL=(root) NOPASSWD: /usr/bin/docker, /usr/local/bin/docker\n", "utf-8")
        allowed.chmod(0o440)
        undo.callback(allowed.unlink)
        host.run(["chown", "-R", "lab:", CHECKOUT], check=True)
    second = cluster.lab.hosts[1]
    kept = f"{CHECKOUT}/of_root.log"
    second.path(kept).write_text("left by a container, then protected\n", "utf-8")
    second.run(["chattr", "+i", kept], check=True)
    undo.callback(second.run, ["chattr", "-i", kept], check=True)
    cluster.configure_cluster(**fields, username="lab", training_overrides=SHORT)


def everything_else_is_given_back(cluster: Cluster, output: str) -> None:
    for host in cluster.lab.hosts:
        written = list(host.path(f"{CHECKOUT}/artifacts").rglob("*.pt.trace.json"))
        assert written
        assert {path.stat().st_uid for path in written} == {USER_ID}
        assert host.containers() == []
    assert report_of(cluster)["validation_passed"] is False
    assert "next: give the files to their user by hand; " in output


# What the rows share.


def check_out(cluster: Cluster, undo: ExitStack) -> dict[str, Any]:
    for host in cluster.lab.hosts:
        undo.callback(host.run, ["rm", "-r", CHECKOUT], check=True)
    return cluster.check_out()


def waiting_workload(cluster: Cluster, undo: ExitStack, *arguments: str, launcher: str) -> dict[str, Any]:
    fields = check_out(cluster, undo)
    for host in cluster.lab.hosts:
        host.path(f"{CHECKOUT}/waiting.py").write_text(WAITING_WORKLOAD, "utf-8")
    command = [sys.executable, "waiting.py", *arguments]
    return {**fields, "workload": {"command": command, "traces": "out/torch_profiler/*/*", "launcher": launcher}}


def steps_on(host: Host) -> bool:
    """Tell whether the run on a host has told of a step."""
    return any('"aorta": "step"' in path.read_text("utf-8") for path in host.path(CACHE).glob("*/benchmark.log"))


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


RIG: dict[str, Any] = {"code": 1, "verdict": "could_not_measure", "fault": "rig"}
BAD: dict[str, Any] = {"code": 1, "verdict": "failed"}
GOOD: dict[str, Any] = {"code": 0, "verdict": "passed", "fault": "none", "status": "completed"}

ROWS = (
    Row(
        "1", "the image cannot be pulled on node2", image_cannot_be_pulled,
        Ending(
            stages="FSSSSSSSSSP", **RIG,
            why={
                "launch": r"could not measure: could not get the image: node2: .*no basic auth credentials; "
                r"check container\.image, .*"
            },
        ),
    ),
    Row(
        "2", "train_script is missing on node2", file_is_missing,
        Ending(
            stages="FSSSSSSSSSP", **RIG, hosts=("node2",),
            why={"launch": r"could not measure: node2: no file /opt/aorta/train\.py; correct base_config, .*"},
        ),
    ),
    Row(
        "3", "node2's container mounts something else", mount_shows_something_else,
        Ending(
            stages="PFSSSSSSSSP", **RIG, hosts=("node2",),
            why={
                "clone": r"could not measure: node2: no file /mnt/config/tiny_cpu\.yaml, /mnt/train\.py; the host has "
                r"them: does the container mount /opt/aorta:/mnt, and nothing over it\?"
            },
        ),
        look=containers_still_run,
    ),
    Row(
        "4", "no rdma_cm on node2", device_is_missing,
        Ending(
            stages="PPFSSSSSSSP", **RIG, hosts=("node2",),
            why={"rdma": rf"could not measure: node2: no {RDMA_CM}; load the RDMA driver there or .*"},
        ),
    ),
    Row(
        "4b", "no torchrun in node2's container", torchrun_is_missing,
        Ending(
            stages="PPFSSSSSSSP", **RIG, hosts=("node2",),
            why={"rdma": r"could not measure: node2: /mnt/python has no torch, which the workload needs; .*"},
        ),
    ),
    Row(
        "5", "the RCCL build exits 2 on node2", build_fails,
        Ending(
            stages="PPPFSSSSSSP", **RIG, hosts=("node2",),
            why={"rccl": r"could not measure: node2: scripts/build_rccl\.sh ended with 2"},
        ),
        look=both_build_logs_are_kept,
    ),
    Row(
        "6", "rank 1 dies after step 3", rank_dies,
        Ending(
            stages="PPPSFFSPSPP", **BAD, fault="workload", hosts=("node2",), status="failed", uncollected=("node2",),
            why={
                "bench": r"measured, bad: node2: rank 1 exited 13 \(1 more hosts ended after it\)",
                "collect": r"could not measure: 1 of 2 hosts gave no traces: node2 has no trace file .* written by "
                r"this run .*",
            },
            bad=("[trace collection] (host=node2)",),
        ),
        look=survivors_are_parsed,
    ),
    Row(
        "6b", "rank 1 dies, and rank 0 waits for ever", rank_dies_and_its_peer_waits,
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
        look=survivors_are_parsed,
    ),
    Row(
        "7", "a GPU reset in node2's kernel log", gpu_resets,
        Ending(
            stages="PPPSFPSPSPP", **BAD, fault="cluster", hosts=("node2",), status="completed",
            why={"bench": rf"measured, bad: node2: kernel log: amd_gpu_reset: {GPU_RESET}"},
            bad=("[evidence] (host=node2, check=kernel_log)",),
        ),
        look=programs_word_is_a_note, act=reset_is_run_into,
    ),
    Row(
        "8", "the analysis script is missing", analysis_script_is_missing,
        Ending(stages="PPPSPPPPPPP", **GOOD), look=analysis_warns,
    ),
    Row(
        "9", "a threshold is missed", threshold_is_missed,
        Ending(
            stages="PPPSPPSPFPP", **BAD, fault="cluster", status="completed",
            why={"thresholds": r"measured, bad: 1 of 2 gates failed: max_avg_iteration_ms"},
            bad=("[threshold] (metric=max_avg_iteration_ms)",),
        ),
        look=other_threshold_is_held,
    ),
    Row(
        "10", "thresholds are not enforced", thresholds_are_not_enforced,
        Ending(stages="PPPSPPSPSPP", **GOOD), look=metrics_are_recorded,
    ),
    Row(
        "11", "no end within timeout_seconds", nobody_ends,
        Ending(
            stages="PPPSFPSPSPP", **BAD, fault="workload", status="timeout",
            why={
                "bench": r"measured, bad: no end within timeout_seconds=5 \(benchmark [56] s of 5 s, 2 of 2 hosts "
                r"alive\)"
            },
        ),
    ),
    Row(
        "12", "an owner cannot be changed on node2", ownership_is_kept,
        Ending(
            stages="PPPSPPSPPPF", **RIG, status="completed",
            why={
                "teardown": r"could not measure: ownership given back: node2: 1 files could not be given to user 7001: "
                r"/mnt/of_root\.log: Operation not permitted"
            },
        ),
        look=everything_else_is_given_back,
    ),
    Row(
        "13", "node2's kernel log cannot be read", kernel_log_is_closed,
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
        "14", "Ctrl-C during the benchmark", steps_without_end,
        Ending(
            stages="PPPSI", code=2, verdict="interrupted", fault="none", status="failed",
            why={"bench": r"interrupted by SIGINT after \d+ s"},
        ),
        look=logs_are_kept, act=interrupted_at_a_step,
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
        undo.callback(end, cluster.children)
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


def end(children: list[subprocess.Popen[str]]) -> None:
    """End what a row that broke off has left running."""
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
