"""What is broken on a lab's hosts, row by row of the failure table, and what is looked at before it is mended."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from tests.lab.cluster import CHECKOUT, CONTAINER, IMAGE, Cluster
from tests.lab.host import Host
from tests.lab.processes import wait_until
from tests.lab.run_ending import report_of, subtests
from tests.suite.conftest import WORKLOAD

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


def run_to_its_end(cluster: Cluster) -> tuple[int, str]:
    """Run pytest; give its exit code and output."""
    child = cluster.start()
    output, _ = child.communicate(timeout=150)
    return child.returncode, output


def look_no_further(cluster: Cluster, output: str) -> None:
    """The table says everything."""


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


def device_is_noted(cluster: Cluster, output: str) -> None:
    assert f"note: test_launch_container: node2: no device {RDMA_CM}, which container.runtime.args.devices" in output


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
    script = "echo building on $(hostname)\n[ $(hostname) = node2 ] && exit 2\nsleep 1000\n"
    for host in cluster.lab.hosts:
        host.path(f"{CHECKOUT}/scripts/build_rccl.sh").write_text(script, "utf-8")
    cluster.configure_cluster(**fields, skip_rccl_build=False, failure_grace_seconds=1)


def both_build_logs_are_kept(cluster: Cluster, output: str) -> None:
    for rank, name in enumerate(cluster.names):
        assert (cluster.folder / f"rccl-node-{rank}.log").read_text("utf-8") == f"building on {name}\n"
    assert f"next: read {cluster.folder / 'rccl-node-1.log'} (of node2); with skip_rccl_build: true the " in output


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


def end(children: list[subprocess.Popen[str]]) -> None:
    """End what a row that broke off has left running."""
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
