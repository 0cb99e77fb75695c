"""A fleet of hosts that answer from a list: every cause kept, every wait ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_aorta.errors import CommandFailed, FleetError, LeaseLost, TimedOut, Unreachable
from pytest_aorta.fleet.ask import Answer, Ask, Event
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.fleet.transport import Pipes

PATIENCE_S = 60.0

Opened = Callable[..., Fleet]


@pytest.fixture
def opened() -> Iterator[Opened]:
    fleets: list[Fleet] = []

    def open_fleet(lease_seconds: float = 120, **transports: ScriptedTransport) -> Fleet:
        fleets.append(Fleet(transports, lease_seconds=lease_seconds))
        fleets[-1].open(dict.fromkeys(transports, "/state"))
        return fleets[-1]

    yield open_fleet
    for fleet in fleets:
        fleet.close()


def answers(do: str, answer: Answer) -> ScriptedTransport:
    return ScriptedTransport([Reply(do, answer)])


def test_one_ask_goes_to_all_in_rank_order(opened: Opened) -> None:
    fleet = opened(n2=answers("clock", {"wall_ns": 2}), n1=answers("clock", {"wall_ns": 1}))
    found = fleet.perform(Ask("clock"))
    assert list(found.items()) == [("n2", {"wall_ns": 2}), ("n1", {"wall_ns": 1})]
    assert found.failed == {}
    assert found.or_raise() is found


def test_a_plan_asks_each_host_its_own(opened: Opened) -> None:
    one, two, three = (ScriptedTransport([Reply("stat", {"n": n})]) for n in range(3))
    fleet = opened(n1=one, n2=two, n3=three)
    found = fleet.perform({"n3": Ask("stat", {"paths": ["c"]}), "n1": Ask("stat", {"paths": ["a"]})})
    assert list(found) == ["n1", "n3"]
    assert [ask.args for ask in one.asked] == [{"paths": ["a"]}]
    assert two.asked == []


def test_every_cause_is_kept(opened: Opened) -> None:
    fleet = opened(
        good=answers("run", {"exit_code": 0}),
        broken=ScriptedTransport([Reply("run", error=("failed", "no such file"))]),
        slow=ScriptedTransport([Reply("run", error=("timeout", "not done within 3 s"))]),
        dead=ScriptedTransport([Reply("run", silent=True, dies=True)]),
    )
    found = fleet.perform({**dict.fromkeys(fleet.hosts, Ask("run")), "stranger": Ask("run")})
    assert list(found) == ["good"]
    assert {host: type(error) for host, error in found.failed.items()} == {
        "broken": CommandFailed,
        "slow": TimedOut,
        "dead": LeaseLost,
        "stranger": Unreachable,
    }
    with pytest.raises(FleetError) as caught:
        found.or_raise()
    assert caught.value.by_host == found.failed
    assert "broken: no such file" in str(caught.value)
    assert "there is no such host in this fleet, which has good, broken, slow, dead" in str(caught.value)


def test_a_host_that_says_nothing_ends_at_its_deadline(opened: Opened) -> None:
    fleet = opened(n1=ScriptedTransport([Reply("run", silent=True)]), n2=answers("run", {"exit_code": 0}))
    found = fleet.perform(Ask("run", timeout_s=0.1))
    assert list(found) == ["n2"]
    assert str(found.failed["n1"]) == "n1: run: no answer within 0.1 s"


def test_a_lost_host_is_an_event_and_stays_lost(opened: Opened) -> None:
    fleet = opened(n1=ScriptedTransport([Reply("start", {"pid": 1}, dies=True)]))
    assert fleet.perform(Ask("start"))["n1"] == {"pid": 1}
    (event,) = fleet.events(PATIENCE_S)
    assert event == Event("n1", "lost", {"message": "the node program ended"})
    assert isinstance(fleet.perform(Ask("clock")).failed["n1"], LeaseLost)


def test_events_keep_their_order(opened: Opened) -> None:
    lines = {"name": "benchmark", "lines": ["one", "two"]}
    exited = {"name": "benchmark", "exit_code": 0, "signal": None, "seconds": 1.0}
    fleet = opened(n1=ScriptedTransport([Reply("start", {"pid": 1}, events=(("lines", lines), ("exited", exited)))]))
    fleet.perform(Ask("start")).or_raise()
    found: list[Event] = []
    while len(found) < 2:
        found += fleet.events(PATIENCE_S)
    assert found == [Event("n1", "lines", lines), Event("n1", "exited", exited)]
    assert fleet.events(0.0) == []


def test_waiting_for_events_is_ended_by_a_signal(opened: Opened) -> None:
    fleet = opened(n1=ScriptedTransport())

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            fleet.events(10 * PATIENCE_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_answers_may_depend_on_what_is_asked(opened: Opened) -> None:
    def echo(args: Mapping[str, Any]) -> Answer:
        return {"stdout": " ".join(args["argv"])}

    fleet = opened(n1=ScriptedTransport([Reply("run", echo, times=0)]))
    for word in ("a", "b", "x" * 5000):
        assert fleet.perform(Ask("run", {"argv": [word]}))["n1"] == {"stdout": word}


def test_the_script_says_when_it_is_at_its_end(opened: Opened) -> None:
    fleet = opened(n1=ScriptedTransport([Reply("run", {"n": 1}, times=2)]))
    assert fleet.perform(Ask("run"))["n1"] == fleet.perform(Ask("run"))["n1"]
    assert fleet.perform(Ask("run")).failed["n1"].reason == "the script has no reply to 'run' left"


def test_what_cannot_be_sent_is_refused_here(opened: Opened) -> None:
    fleet = opened(n1=ScriptedTransport([Reply("run", {})]))
    assert "run cannot be sent" in fleet.perform(Ask("run", {"argv": {1, 2}})).failed["n1"].reason
    assert "n1" in fleet.perform(Ask("run"))


def test_files_go_there_and_back(opened: Opened, tmp_path: Path) -> None:
    one, two = ScriptedTransport(), ScriptedTransport(files={"/log": b"lines"})
    fleet = opened(n1=one, n2=two)
    local = tmp_path / "file"
    local.write_bytes(b"data")
    fleet.send(local, "/everywhere")
    fleet.send(local, {"n2": "/there"})
    assert (one.files, two.files["/there"]) == ({"/everywhere": b"data"}, b"data")
    fleet.fetch("n2", "/log", tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"lines"
    with pytest.raises(CommandFailed, match=r"n1: fetching /log: No such file or directory \('/log'\)"):
        fleet.fetch("n1", "/log", tmp_path / "log")
    with pytest.raises(FleetError, match="n9: there is no such host"):
        fleet.send(local, {"n9": "/there"})


def test_leases_are_renewed_well_inside_their_time(opened: Opened) -> None:
    pinged = threading.Barrier(2)

    def answer(args: Mapping[str, Any]) -> Answer:
        pinged.wait(PATIENCE_S)
        return {}

    opened(lease_seconds=0.6, n1=ScriptedTransport([Reply("ping", answer, times=3)]))
    for _ in range(3):
        pinged.wait(PATIENCE_S)


def test_a_host_that_answers_no_ping_is_given_up(opened: Opened) -> None:
    fleet = opened(
        lease_seconds=0.3, n1=ScriptedTransport([Reply("ping", silent=True, times=0)]), n2=ScriptedTransport()
    )
    (event,) = fleet.events(PATIENCE_S)
    assert (event.host, event.kind) == ("n1", "lost")
    assert event.data["message"].startswith("nothing was heard from it for")
    assert list(fleet.silent()) == ["n1"]


def test_asking_before_the_fleet_is_open_or_after_it_was_closed(opened: Opened) -> None:
    assert isinstance(Fleet({"n1": ScriptedTransport()}).perform(Ask("clock")).failed["n1"], LeaseLost)
    fleet = opened(n1=ScriptedTransport())
    fleet.close()
    fleet.close()
    assert "open the fleet first" in str(fleet.perform(Ask("clock")).failed["n1"])


class Refusing(ScriptedTransport):
    """A host on which nothing can be started."""

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        raise OSError("python3 is not there")


def test_hosts_that_cannot_be_opened_are_all_named_and_the_others_leave() -> None:
    good = ScriptedTransport()
    fleet = Fleet({"n1": Refusing(), "n2": good, "n3": Refusing()})
    with pytest.raises(FleetError) as caught:
        fleet.open(dict.fromkeys(fleet.hosts, "/state"))
    assert list(caught.value.by_host) == ["n1", "n3"]
    assert str(caught.value) == "n1, n3: python3 is not there"
    assert [ask.do for ask in good.asked] == ["leave"]
