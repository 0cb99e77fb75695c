"""What happens to a running node program when its host, its link, its session or itself ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_aorta.errors import FleetError, LeaseLost, TimedOut, Unreachable
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from tests.lab import faults
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until
from tests.lab.ssh_fleet import STATE_DIR, home, host, left_behind, opened, runs, transport, wait_clean

pytestmark = pytest.mark.lab(2)

PATIENCE_S = 30.0
WORK = ("sleep", "4343")


@contextmanager
def at_work(lab: Lab, lease_seconds: float = 60) -> Iterator[Fleet]:
    """Both hosts, with a process started on the first; closing is left to the test."""
    fleet = Fleet({host.name: transport(lab, host.name) for host in lab.hosts}, lease_seconds=lease_seconds)
    fleet.open(dict.fromkeys(fleet.hosts, STATE_DIR))
    try:
        args = {"name": "g", "argv": list(WORK), "cwd": "/tmp", "log": "/tmp/work.log", "follow": False}
        fleet.perform({"node1": Ask("start", args)}).or_raise()
        wait_until(lambda: runs(lab.hosts[0], *WORK), "the work to begin", PATIENCE_S)
        yield fleet
    finally:
        try:
            fleet.close()
        except FleetError:
            fleet.close()


def lost(fleet: Fleet) -> str:
    """Wait for the event that a host was lost; its words."""
    while True:
        events = fleet.events(PATIENCE_S)
        assert events, "nothing was heard"
        for event in events:
            if event.kind == "lost":
                assert event.host == "node1"
                return str(event.data["message"])


def hostname(fleet: Fleet, timeout_s: float = 10) -> dict[str, str]:
    answers = fleet.perform(Ask("run", {"argv": ["hostname"]}, timeout_s))
    return {host: str(answer["stdout"]).strip() for host, answer in answers.items()} | {
        host: type(error).__name__ for host, error in answers.failed.items()
    }


def node_pid(host: Host) -> str:
    [pid] = [process.pid for process in host.processes() if process.argv[1:2] == ("-I",)]
    return str(pid)


def test_a_host_that_is_off_is_named_and_the_others_are_closed_again(lab: Lab, host: Host) -> None:
    with faults.power_off(host):
        with pytest.raises(FleetError) as caught, opened(lab):
            pass
        assert list(caught.value.by_host) == ["node1"]
        assert isinstance(caught.value.by_host["node1"], Unreachable)
        assert "no answer within" in str(caught.value)
        wait_clean(lab.hosts[1])


def test_a_host_that_loses_power_is_given_up_by_the_deadline(lab: Lab, host: Host) -> None:
    with at_work(lab, lease_seconds=3) as fleet, faults.power_off(host):
        assert hostname(fleet, timeout_s=1) == {"node1": "TimedOut", "node2": "node2"}
        assert lost(fleet) in {
            f"the channel broke: the connection to {host.address} port 22 as root was lost",
            "nothing was heard from it for 3 s",
        }
        assert hostname(fleet) == {"node1": "LeaseLost", "node2": "node2"}
        with pytest.raises(FleetError) as caught:
            fleet.close()
        [error] = caught.value.by_host.values()
        assert str(error).startswith("node1: leaving: what it started may still run (no SSH connection (node1 is ")
        assert str(error).endswith("); it ends by itself when the lease of 3 s is over")
        wait_clean(lab.hosts[1])


def test_a_cut_that_is_mended_loses_nothing(lab: Lab, host: Host, tmp_path: Path) -> None:
    with at_work(lab) as fleet:
        cut = faults.cut_link(host)
        slow = Ask("run", {"argv": ["sh", "-c", "echo begun; sleep 0.5; echo done"]}, 1.0)
        assert list(fleet.perform(slow).failed) == ["node1"]
        cut.undo()
        assert hostname(fleet, 30) == {"node1": "node1", "node2": "node2"}
        assert runs(host, *WORK)
        source = tmp_path / "source"
        source.write_bytes(os.urandom(300_000))
        fleet.send(source, "/tmp/after")
        assert host.path("/tmp/after").read_bytes() == source.read_bytes()
        assert [event.kind for event in fleet.events(0)] == []
    wait_clean(host)
    assert not runs(host, *WORK)


def test_a_cut_for_good_is_ended_on_the_host_by_the_lease(lab: Lab, host: Host) -> None:
    with at_work(lab, lease_seconds=2) as fleet:
        with faults.cut_link(host):
            wait_until(lambda: not runs(host, *WORK), "the lease to end the work", PATIENCE_S)
            assert lost(fleet)
            wait_until(lambda: not any("aorta-node" in text for text in left_behind(host)), "it to leave", PATIENCE_S)
            with pytest.raises(TimedOut, match="not done within 1 s"):
                fleet.fetch("node1", "/tmp/work.log", Path("/tmp/never"), timeout_s=1)
        fleet.close()
    wait_until(lambda: not host.path("/root/.aorta/state").exists(), "the record to be read and removed", PATIENCE_S)


def test_a_lost_session_is_ended_on_the_host_at_once(lab: Lab, host: Host) -> None:
    with at_work(lab) as fleet:
        sessions = [process.pid for process in host.processes() if process.argv[0].startswith("sshd: root@notty")]
        host.run(["kill", "-KILL", *map(str, sessions)], check=True)
        assert lost(fleet) == f"the channel broke: the connection to {host.address} port 22 as root was lost"
        assert hostname(fleet) == {"node1": "LeaseLost", "node2": "node2"}
        wait_until(lambda: not runs(host, *WORK), "the work to end", PATIENCE_S)
        fleet.fetch("node1", "/tmp/work.log", Path("/tmp/never"))  # evidence is fetched over another connection
        Path("/tmp/never").unlink()
    wait_clean(host)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_program_that_is_killed_is_no_lost_session(lab: Lab, host: Host, number: signal.Signals) -> None:
    with at_work(lab) as fleet:
        host.run(["kill", f"-{number}", node_pid(host)], check=True)
        said = lost(fleet)
        assert said.startswith("the node program ended; it said: ")
        assert said.endswith(f"it was ended by {number.name}")
        assert runs(host, *WORK), "its own end is what nobody saw"
    assert not runs(host, *WORK), "closing ends what the record names"
    wait_clean(host)


def test_a_session_that_is_killed_as_a_whole_was_ended_by_a_signal(lab: Lab, host: Host) -> None:
    with at_work(lab) as fleet:
        shell = next(process.pid for process in host.processes() if process.argv[:2] == ("sh", "-c"))
        host.run(["kill", "-KILL", str(shell), node_pid(host)], check=True)
        assert lost(fleet) == "the node program ended; it said: it was ended by a signal"
    assert not runs(host, *WORK)


def test_a_program_that_hangs_is_ended_by_force(lab: Lab, host: Host) -> None:
    pipes = transport(lab, "node1").start(60, STATE_DIR)
    try:
        assert b"hello" in pipes.read() + pipes.read()
        host.run(["kill", "-STOP", node_pid(host)], check=True)
        pipes.end_input()
        assert not pipes.wait(0.3)
        pipes.kill()
        assert pipes.wait(PATIENCE_S)
    finally:
        pipes.close()
    wait_clean(host)


def test_a_crash_of_the_host_is_heard_at_once(lab: Lab, host: Host) -> None:
    with at_work(lab) as fleet, faults.crash(host):
        assert "was lost" in lost(fleet)
        with pytest.raises(LeaseLost):
            raise fleet.perform({"node1": Ask("facts")}).failed["node1"]
        with pytest.raises(FleetError, match=r"may still run \(no SSH connection .*: connection refused"):
            fleet.close()
