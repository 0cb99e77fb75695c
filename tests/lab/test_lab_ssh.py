"""The SSH transport against real sshd: a run from opening to closing, and what hosts look like."""

from __future__ import annotations

import os
import re
import stat
import threading
from pathlib import Path

import pytest

from pytest_aorta.errors import FleetError, HostError, Unreachable
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from tests.lab import faults
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until
from tests.lab.ssh_fleet import STATE_DIR, home, host, left_behind, opened, runs, transport, wait_clean

pytestmark = pytest.mark.lab(2)


def test_two_hosts_from_opening_to_closing(lab: Lab, tmp_path: Path) -> None:
    others = set(threading.enumerate())  # such as a server of another test
    source = tmp_path / "source"
    source.write_bytes(os.urandom(5_000_000))
    source.chmod(0o640)
    with opened(lab) as fleet:
        names = fleet.perform(Ask("run", {"argv": ["hostname"]})).or_raise()
        assert {host: answer["stdout"] for host, answer in names.items()} == {"node1": "node1\n", "node2": "node2\n"}
        fleet.send(source, "/tmp/there")
        for host in lab.hosts:
            assert host.path("/tmp/there").read_bytes() == source.read_bytes()
            fleet.fetch(host.name, "/tmp/there", tmp_path / host.name)
            assert (tmp_path / host.name).read_bytes() == source.read_bytes()
            assert (tmp_path / host.name).stat().st_mode & 0o777 == 0o640
            assert len([text for text in left_behind(host) if "sshd: root@notty" in text]) == 1, "one connection"
        assert stat.S_IMODE(lab.hosts[0].path("/root/.aorta/state").stat().st_mode) == 0o700
    for host in lab.hosts:
        wait_clean(host)
    assert [thread.name for thread in threading.enumerate() if thread not in others] == []


def test_the_program_is_sent_again_only_when_it_is_another(lab: Lab, host: Host) -> None:
    program = host.path("/root/.aorta/state/aorta-node.pyz")
    with opened(lab, "node1", lease_seconds=1) as fleet:
        first = program.stat()
        [node] = [process.pid for process in host.processes() if process.argv[1:2] == ("-I",)]
        host.run(["kill", "-KILL", str(node)], check=True)
        fleet.events(10)
        again = transport(lab, "node1")
        pipes = again.start(60, STATE_DIR)
        assert b"hello" in pipes.read() + pipes.read()
        assert (program.stat().st_ino, program.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
        pipes.kill()
        pipes.close()
    wait_clean(host)
    host.path("/root/.aorta/state").mkdir(mode=0o755)
    program.write_bytes(b"something else")
    with opened(lab, "node1"):
        assert program.stat().st_size == first.st_size
    assert program.exists(), "a folder that held something before is not ours to remove"
    host.run(["rm", "-r", "/root/.aorta/state"], check=True)
    wait_clean(host)


def test_a_user_without_rights_has_a_home_of_its_own(lab: Lab, host: Host, tmp_path: Path) -> None:
    with opened(lab, "node1", username="lab") as fleet:
        answer = fleet.perform(Ask("run", {"argv": ["id", "-un"]})).or_raise()["node1"]
        assert answer["stdout"] == "lab\n"
        assert host.path("/home/lab/.aorta/state/groups.json").exists()
        (tmp_path / "note").write_text("mine")
        fleet.send(tmp_path / "note", "~/note")
        assert host.path("/home/lab/note").read_text() == "mine"
        with pytest.raises(FleetError, match=r"Permission denied \('/root/note'\)"):
            fleet.send(tmp_path / "note", "/root/note")
    assert not host.path("/home/lab/.aorta/state").exists()


@pytest.mark.parametrize("more", ["", "yes 'and more' | head -c 3000000;"], ids=["little", "much"])
def test_what_a_start_up_file_prints_does_no_harm(lab: Lab, host: Host, tmp_path: Path, more: str) -> None:
    rc = host.path("/root/.bashrc")
    fake = '{"hello":"aorta-node","version":99,"pid":1,"token":"x"}'
    first = f"echo 'Welcome to {{\"hello\": 1}}'; echo '{fake}'; echo oops >&2;"
    rc.write_text(f"{first} {more} printf 'no end of line'\n")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(200_000))
    try:
        with opened(lab, "node1") as fleet:
            assert fleet.perform(Ask("run", {"argv": ["hostname"]})).or_raise()["node1"]["stdout"] == "node1\n"
            fleet.send(source, "/tmp/noisy")
            fleet.fetch("node1", "/tmp/noisy", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == source.read_bytes()
    finally:
        rc.unlink()
    wait_clean(host)


def refused_with(lab: Lab, host: Host, start_up: str) -> HostError:
    """Why a node program cannot be started for a user whose shell begins with that."""
    rc = host.path("/home/lab/.bashrc")
    rc.write_text(start_up)
    try:
        with pytest.raises(FleetError) as seen:
            Fleet({"node1": transport(lab, "node1", username="lab")}).open({"node1": STATE_DIR})
    finally:
        rc.unlink()
    return seen.value.by_host["node1"]


def test_a_start_up_file_that_waits_is_ended(lab: Lab, host: Host) -> None:
    why = refused_with(lab, host, "sleep 1234\n")

    assert re.search(
        r"did not answer in time; does a start-up file .* \(\.bashrc\) wait there\? What it st", why.reason
    )
    wait_until(lambda: not runs(host, "sleep", "1234"), "its end", 10)
    assert not host.path("/home/lab/.aorta/state").exists()


def test_a_start_up_file_that_prints_for_ever_leaves_nothing(lab: Lab, host: Host) -> None:
    why = refused_with(lab, host, "yes &\n")

    assert re.search(r"prints without end, perhaps by a start-up file .*; the folder .* may still lie", why.reason)
    assert isinstance(why, Unreachable)
    assert why.is_left
    assert not host.path("/home/lab/.aorta/state").exists()
    wait_until(lambda: not runs(host, "yes"), "its end", 10)


@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/rbash", "/usr/bin/zsh", "/usr/bin/fish", "/usr/bin/tcsh"])
def test_the_login_shell_may_be_another(lab: Lab, host: Host, shell: str) -> None:
    if not host.path(shell).exists():
        pytest.skip(f"{shell} is not installed here")
    host.run(["usermod", "--shell", shell, "lab"], check=True)
    try:
        with opened(lab, "node1", username="lab") as fleet:
            assert fleet.perform(Ask("run", {"argv": ["hostname"]})).or_raise()["node1"]["stdout"] == "node1\n"
    finally:
        host.run(["usermod", "--shell", "/bin/bash", "lab"], check=True)


@pytest.mark.parametrize(
    ("shell", "seen"), [("/usr/bin/python3", "SyntaxError: invalid syntax"), ("/usr/sbin/nologin", "not available")]
)
def test_a_login_shell_that_runs_nothing_is_told_by_its_words(lab: Lab, host: Host, shell: str, seen: str) -> None:
    host.run(["usermod", "--shell", shell, "lab"], check=True)
    try:
        said = (
            rf"as lab did not run what it was asked to: seen '.*{seen}.*', expected an answer of its Python; does `ssh`"
        )
        with pytest.raises(FleetError, match=said):
            Fleet({"node1": transport(lab, "node1", username="lab")}).open({"node1": STATE_DIR})
    finally:
        host.run(["usermod", "--shell", "/bin/bash", "lab"], check=True)


def test_a_host_without_a_python_that_is_new_enough_says_what_it_has(lab: Lab, host: Host) -> None:
    folder = "/usr/local/without"
    host.run(
        ["sh", "-c", f"mkdir {folder}; cp /bin/sh {folder}; rm -f /usr/bin/python3 /usr/local/bin/python3"], check=True
    )
    try:
        with faults.stop_sshd(host):
            host.path("/etc/ssh/sshd_config.d/path.conf").write_text(f"SetEnv PATH={folder}\n")
        wanted = "has no Python that the node program can run on: seen none, expected python3 of 3.8 or newer"
        with pytest.raises(FleetError, match=wanted) as caught, opened(lab):
            pass
        assert list(caught.value.by_host) == ["node1"]
        assert isinstance(caught.value.by_host["node1"], Unreachable)
        old = host.path(f"{folder}/python3")
        old.write_text('#!/bin/sh\ncase "$*" in *-V*) echo Python 3.6.8;; *) exit 1;; esac\n')
        old.chmod(0o755)
        with pytest.raises(FleetError, match=r"seen /usr/local/without/python3 \(Python 3.6.8\), expected"):
            Fleet({"node1": transport(lab, "node1")}).open({"node1": STATE_DIR})
    finally:
        host.boot()
