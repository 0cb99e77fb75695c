"""Each fault does what it says, as a client sees it, and can be undone."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.lab import faults
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until

SHOW = ("qdisc", "show", "dev")

pytestmark = pytest.mark.lab(2, docker=True)


@pytest.fixture
def host(lab: Lab) -> Host:
    return lab.hosts[0]


@pytest.fixture(autouse=True)
def the_next_test_finds_the_host_well(lab: Lab, host: Host) -> Iterator[None]:
    yield
    lab.heal()
    assert why_not(lab) == ""
    assert host.engine.answers


def why_not(lab: Lab, *options: str) -> str:
    """What the OpenSSH client says when it does not reach the first host; empty when it does."""
    done = lab.ssh("-o", "ConnectTimeout=1", *options, "node1", "true")
    return done.stderr.strip() if done.returncode else ""


@contextmanager
def session(lab: Lab, script: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script on the first host that says "begun" and is ended in any case."""
    command = ["ssh", "-F", str(lab.ssh_config), "node1", f"echo begun; {script}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            yield child
        finally:
            child.kill()


def test_a_stopped_sshd_refuses_and_leaves_sessions_alone(lab: Lab, host: Host) -> None:
    with session(lab, "read -r word; echo $word") as old, faults.stop_sshd(host):
        assert "Connection refused" in why_not(lab)
        assert old.communicate("still here\n", timeout=10)[0] == "still here\n"
    assert why_not(lab) == ""


@pytest.mark.parametrize("fault", [faults.drop_packets, faults.cut_link])
def test_a_silent_host_lets_clients_wait(lab: Lab, host: Host, fault: Callable[[Host], faults.Fault]) -> None:
    with fault(host):
        assert "timed out" in why_not(lab)
        assert lab.ssh("node2", "true").returncode == 0
        assert host.path("/sys/class/net/eth0/flags").exists()
    assert why_not(lab) == ""


def test_a_session_outlives_a_cut_that_is_mended(lab: Lab, host: Host) -> None:
    with session(lab, "read -r word; echo $word") as old:
        cut = faults.cut_link(host)
        assert "timed out" in why_not(lab)
        assert old.poll() is None
        cut.undo()
        assert old.communicate("still here\n", timeout=30)[0] == "still here\n"


def test_a_host_without_power_says_nothing_and_boots_afresh(lab: Lab, host: Host) -> None:
    host.path("/root/mark").touch()
    with session(lab, "sleep 60") as old:
        with faults.power_off(host):
            assert not host.running
            assert why_not(lab) != ""
            assert old.poll() is None, "a client must not hear of it"
        assert not host.path("/root/mark").exists()
    assert why_not(lab, "-o", "StrictHostKeyChecking=yes") == ""


def test_a_crash_ends_all_sessions_at_once(lab: Lab, host: Host) -> None:
    with session(lab, "sleep 60") as old, faults.crash(host):
        assert old.wait(timeout=10) == 255
        assert "Connection refused" in why_not(lab)
        assert {process.argv[0] for process in host.processes() if process.argv} == {"/bin/bash", "sleep"}
    assert why_not(lab) == ""


def test_a_new_host_key_is_refused_until_the_old_is_back(lab: Lab, host: Host) -> None:
    with faults.change_host_key(host):
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in why_not(lab, "-o", "LogLevel=INFO")
    assert why_not(lab) == ""


@pytest.mark.parametrize("offset_s", [300, -3600])
def test_a_skewed_clock_is_seen_in_new_sessions(lab: Lab, host: Host, offset_s: int) -> None:
    with faults.skew_clock(host, offset_s):
        seen_s = int(lab.ssh("node1", "date +%s; echo $PATH").stdout.split()[0])
        assert seen_s - time.time() == pytest.approx(offset_s, abs=10)
        touched = lab.ssh(
            "node1", "touch /tmp/skewed; python3 -c 'import os; print(os.stat(\"/tmp/skewed\").st_mtime)'"
        )
        assert float(touched.stdout) - time.time() == pytest.approx(offset_s, abs=10)
        assert int(lab.ssh("node2", "date +%s").stdout) == pytest.approx(time.time(), abs=10)
    assert int(lab.ssh("node1", "date +%s").stdout) == pytest.approx(time.time(), abs=10)


def test_a_slow_link_holds_packets_back_in_both_directions(lab: Lab, host: Host) -> None:
    with faults.slow_link(host, "8mbit"):
        assert len(lab.ssh("node1", "cat >/dev/null; head -c 300000 /dev/zero", stdin="x" * 300_000).stdout) == 300_000
        for qdisc in (host.run(["tc", "-s", *SHOW, "eth0"]).stdout, host.at_switch("tc", "-s", *SHOW, host.name)):
            assert "tbf" in qdisc
            assert "rate 8Mbit" in qdisc
            assert "overlimits 0 " not in qdisc
    assert "tbf" not in host.at_switch("tc", *SHOW, host.name)
    assert "tbf" not in host.run(["tc", *SHOW, "eth0"]).stdout


def test_lost_packets_are_counted_and_survived(lab: Lab, host: Host) -> None:
    with faults.lose_packets(host, 0.3):
        assert lab.ssh("-o", "ConnectTimeout=20", "node1", "head -c 300000 /dev/zero | wc -c").stdout == "300000\n"
        counted = host.run(["iptables", "-nvxL", "INPUT"], check=True).stdout
        [rule] = [line.split() for line in counted.splitlines() if "statistic" in line]
        assert int(rule[0]) > 0
    assert "statistic" not in host.run(["iptables", "-nL", "INPUT"], check=True).stdout


def test_a_full_disk_refuses_the_rest(lab: Lab, host: Host) -> None:
    with faults.limit_disk(host, "/var/small", size_kib=64):
        done = lab.ssh("node1", "head -c 300000 /dev/zero >/var/small/file")
        assert "No space left on device" in done.stderr
        assert host.path("/var/small/file").stat().st_size == 65536
    assert list(host.path("/var/small").iterdir()) == []


def test_a_protected_folder_is_read_only_for_root(lab: Lab, host: Host) -> None:
    lab.ssh("node1", "mkdir -p /var/results; touch /var/results/old")
    with faults.protect_folder(host, "/var/results"):
        assert "Read-only file system" in lab.ssh("node1", "touch /var/results/new").stderr
        assert host.path("/var/results/old").exists()
    assert lab.ssh("node1", "touch /var/results/new").returncode == 0


def test_a_stopped_docker_takes_its_containers_along(lab: Lab, host: Host) -> None:
    run_box(lab)
    with faults.stop_docker(host):
        assert not host.engine.answers
        assert not is_asleep(host)
        assert "Cannot connect to the Docker daemon" in lab.ssh("node1", "docker ps").stderr
    remove_box(lab)


def test_a_killed_docker_leaves_its_containers(lab: Lab, host: Host) -> None:
    run_box(lab)
    with faults.kill_docker(host):
        assert not host.engine.answers
        assert is_asleep(host)
    wait_until(lambda: not is_asleep(host), "the container to be ended by the new daemon", 10)
    remove_box(lab)


def run_box(lab: Lab) -> None:
    done = lab.ssh("node1", "docker run -d --name box --init lab/machine:1 sleep 4242")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: is_asleep(lab.hosts[0]), "the container's first process to start its child", 10)


def remove_box(lab: Lab) -> None:
    """Remove the container; a second one tells whether the image has its content after the daemon's return."""
    assert lab.ssh("node1", "docker rm -f box; docker run --rm lab/machine:1 echo fine").stdout == "box\nfine\n"


def is_asleep(host: Host) -> bool:
    return ("sleep", "4242") in {process.argv for process in host.processes()}


def test_faults_are_undone_in_any_order_and_twice(lab: Lab, host: Host) -> None:
    stopped, cut = faults.stop_sshd(host), faults.cut_link(host)
    stopped_again = faults.drop_packets(host)
    cut.undo()
    cut.undo()
    stopped_again.undo()
    assert "Connection refused" in why_not(lab)
    stopped.undo()
    assert why_not(lab) == ""


def test_a_boot_mends_what_was_broken_before(lab: Lab, host: Host) -> None:
    broken = [faults.stop_sshd(host), faults.slow_link(host), faults.limit_disk(host, "/var/small")]
    host.boot()
    assert why_not(lab) == ""
    for fault in broken:
        fault.undo()
    assert why_not(lab) == ""
