"""The fleet of this machine: real node programs, real processes, real deaths."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_aorta.errors import FleetError, HostError, LeaseLost
from pytest_aorta.fleet.ask import Ask, Event
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport

PATIENCE_S = 60.0

Opened = Callable[..., Fleet]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    fleets: list[Fleet] = []

    def open_fleet(*hosts: str, lease_seconds: float = 120) -> Fleet:
        fleets.append(Fleet({host: LocalTransport() for host in hosts}, lease_seconds=lease_seconds))
        fleets[-1].open({host: str(tmp_path / "state" / host) for host in hosts})
        return fleets[-1]

    yield open_fleet
    for fleet in fleets:
        fleet.close()


def node_pid(tmp_path: Path, host: str) -> int:
    return int(json.loads((tmp_path / "state" / host / "groups.json").read_text())["node"]["pid"])


def start(fleet: Fleet, tmp_path: Path, script: str) -> None:
    log = str(tmp_path / "log")
    args = {"name": "g", "argv": ["sh", "-c", script], "cwd": str(tmp_path), "log": log, "follow": True}
    fleet.perform(Ask("start", args)).or_raise()


def first_line(fleet: Fleet) -> str:
    events: list[Event] = []
    while not events:
        events = [event for event in fleet.events(PATIENCE_S) if event.kind == "lines"]
    return str(events[0].data["lines"][0])


def wait_until_gone(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        assert ended, f"process {pid} still runs"
    finally:
        os.close(descriptor)


def test_two_hosts_are_two_programs(opened: Opened, tmp_path: Path) -> None:
    fleet = opened("n1", "n2")
    found = fleet.perform(Ask("run", {"argv": ["sh", "-c", "echo $PPID"]})).or_raise()
    assert [int(answer["stdout"]) for answer in found.values()] == [node_pid(tmp_path, host) for host in ("n1", "n2")]
    fleet.close()
    assert list((tmp_path / "state").iterdir()) == []


def test_the_program_is_out_of_reach_of_the_terminal(opened: Opened, tmp_path: Path) -> None:
    opened("n1")
    assert os.getsid(node_pid(tmp_path, "n1")) == node_pid(tmp_path, "n1")


def test_files_arrive_whole_or_not_at_all(opened: Opened, tmp_path: Path) -> None:
    fleet = opened("n1")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(100_000))
    source.chmod(0o640)
    fleet.send(source, str(tmp_path / "there"))
    fleet.fetch("n1", str(tmp_path / "there"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o640
    with pytest.raises(HostError, match=r"n1: fetching .*absent: No such file or directory"):
        fleet.fetch("n1", str(tmp_path / "absent"), tmp_path / "kept")
    with pytest.raises(FleetError, match="n1: sending source: "):
        fleet.send(source, str(source / "below a file"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "source", "state", "there"]


def test_what_is_no_regular_file_is_not_fetched(opened: Opened, tmp_path: Path) -> None:
    fleet = opened("n1")
    (tmp_path / "private").write_text("secret")
    (tmp_path / "link").symlink_to("private")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "state"):
        with pytest.raises(HostError, match=f"n1: fetching .*{name}: .*regular file"):
            fleet.fetch("n1", str(tmp_path / name), tmp_path / "back")
    with pytest.raises(FleetError, match="a link, expected a regular file"):
        fleet.send(tmp_path / "link", str(tmp_path / "there"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "private", "state"]


def test_a_copy_never_writes_through_a_link(opened: Opened, tmp_path: Path) -> None:
    fleet = opened("n1")
    for name in ("source", "precious"):
        (tmp_path / name).write_text(name)
    for name in ("there", "there.part"):
        (tmp_path / name).symlink_to("precious")
    fleet.send(tmp_path / "source", str(tmp_path / "there"))
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "there").read_text() == "source"


def test_a_work_folder_that_was_removed_is_not_made_again(opened: Opened, tmp_path: Path) -> None:
    fleet = opened("n1")
    (tmp_path / "source").write_text("x")
    with pytest.raises(FleetError, match=r"the folder is gone; was it removed\? \('.*/work'\)"):
        fleet.send(tmp_path / "source", str(tmp_path / "work" / "there"))
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_a_python_that_does_not_work_is_a_sentence(tmp_path: Path, python: str) -> None:
    fleet = Fleet({"n1": LocalTransport(python)})
    with pytest.raises(
        FleetError, match=r"^n1: the node program (cannot be started by|could not be started: )"
    ) as caught:
        fleet.open({"n1": str(tmp_path / "state")})
    assert "\n" not in str(caught.value)


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_what_a_launcher_printed_is_in_the_error(tmp_path: Path) -> None:
    python = script(tmp_path, "echo 'Last login: today'; echo 'module load failed' >&2; exit 1")
    with pytest.raises(FleetError, match="it said: Last login: today / module load failed"):
        Fleet({"n1": LocalTransport(python)}).open({"n1": str(tmp_path / "state")})


def test_noise_before_the_hello_does_no_harm(tmp_path: Path) -> None:
    fakes = """echo '{"hello":"aorta-node","version":99}'; echo '{"hello":"aorta-node","version":1,"token":"x"}'"""
    python = script(tmp_path, f"echo 'Welcome!'; echo '{{'; {fakes}; exec {sys.executable} \"$@\"")
    fleet = Fleet({"n1": LocalTransport(python)})
    try:
        fleet.open({"n1": str(tmp_path / "state")})
        assert "n1" in fleet.perform(Ask("clock"))
        assert fleet.token("n1") != "x"
    finally:
        fleet.close()


def test_another_version_is_refused(tmp_path: Path) -> None:
    python = script(tmp_path, 'echo \'{"hello":"aorta-node","version":99}\'; exec cat >/dev/null')
    with pytest.raises(FleetError, match="speaks version 99 of the protocol, expected 1"):
        Fleet({"n1": LocalTransport(python)}).open({"n1": str(tmp_path / "state")})


def test_a_program_without_a_hello_is_given_up(tmp_path: Path) -> None:
    fleet = Fleet({"n1": LocalTransport(script(tmp_path, "while read -r line; do :; done"))})
    with pytest.raises(FleetError, match=r"said no hello within 0\.1 s"):
        fleet.open({"n1": str(tmp_path / "state")}, timeout_s=0.1)


def test_a_program_that_says_hello_too_late_leaves_nothing_behind(tmp_path: Path) -> None:
    python = script(tmp_path, f'sleep 1; exec {sys.executable} "$@"')
    fleet = Fleet({"late": LocalTransport(python), "here": LocalTransport()})
    before = threading.active_count()
    errors = fleet.open_reachable({"late": str(tmp_path / "late"), "here": str(tmp_path / "here")}, timeout_s=0.5)
    try:
        assert list(errors) == ["late"]
        assert "said no hello within 0.5 s" in str(errors["late"])
        assert not (tmp_path / "late").exists()
        assert list(fleet.perform(Ask("clock"))) == ["here"]
    finally:
        fleet.close()
    assert threading.active_count() == before


def test_what_a_killed_program_left_is_ended_at_the_close(opened: Opened, tmp_path: Path) -> None:
    fleet = opened("n1")
    start(fleet, tmp_path, "setsid sh -c 'echo $$; exec sleep 1000' & wait")
    pid = int(first_line(fleet))
    os.kill(node_pid(tmp_path, "n1"), signal.SIGKILL)
    (event,) = [event for event in fleet.events(PATIENCE_S) if event.kind == "lost"]
    assert event.data["message"] == "the node program ended"
    assert isinstance(fleet.perform(Ask("clock")).failed["n1"], LeaseLost)
    fleet.close()
    wait_until_gone(pid)


def test_a_program_that_hangs_is_given_up_and_ended(opened: Opened, tmp_path: Path) -> None:
    fleet = opened("n1", lease_seconds=1.2)
    start(fleet, tmp_path, "echo $$; exec sleep 1000")
    pid, node = int(first_line(fleet)), node_pid(tmp_path, "n1")
    os.kill(node, signal.SIGSTOP)
    events: list[Event] = []
    while not events:
        events = [event for event in fleet.events(PATIENCE_S) if event.kind == "lost"]
    fleet.close()
    wait_until_gone(node)
    wait_until_gone(pid)


CONTROLLER = """
import sys
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.local import LocalTransport

state, log = sys.argv[1:]
fleet = Fleet({"n1": LocalTransport()})
fleet.open({"n1": state})
script = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 1000' & echo $$; while :; do sleep 0.1; done"
args = {"name": "g", "argv": ["sh", "-c", script], "cwd": "/", "log": log, "follow": True}
fleet.perform(Ask("start", args)).or_raise()
pids = []
while len(pids) < 2:
    pids += [line for event in fleet.events(60) if event.kind == "lines" for line in event.data["lines"]]
print(*pids, flush=True)
fleet.events(1000)
"""


def test_nothing_outlives_a_controller_that_was_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CONTROLLER, str(tmp_path / "state" / "n1"), str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as controller:
        assert controller.stdout is not None
        pids = [int(word) for word in controller.stdout.readline().split()]
        assert len(pids) == 2
        node = node_pid(tmp_path, "n1")
        controller.kill()
    for pid in (*pids, node):
        wait_until_gone(pid)
    record = json.loads((tmp_path / "state" / "n1" / "node-state.json").read_text())
    assert record["why"] == "the controller closed the channel"
    assert record["left"] == []
