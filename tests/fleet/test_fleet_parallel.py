"""The same thing for several hosts: some at once, one deadline, every cause kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from pytest_aorta.errors import CommandFailed, Defect, FleetError, TimedOut, TraceError, Unreachable
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.parallel import in_parallel
from pytest_aorta.fleet.scripted import ScriptedPipes, ScriptedTransport
from pytest_aorta.fleet.transport import Pipes

PATIENCE_S = 60.0


def test_no_more_than_the_bound_are_at_it_and_all_get_their_turn() -> None:
    inside, most, seen = 0, 0, []
    lock, full = threading.Lock(), threading.Barrier(3)

    def call(host: str) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            seen.append(host)
        full.wait(PATIENCE_S)  # three have to be in it at the same time
        with lock:
            inside -= 1

    hosts = [f"n{number}" for number in range(9)]
    assert in_parallel("trying", {host: partial(call, host) for host in hosts}, PATIENCE_S, 3) == {}
    assert most == 3
    assert sorted(seen) == hosts


def test_each_host_keeps_its_own_cause_in_their_order() -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def call() -> None:
            raise error

        return call

    calls = {
        "n3": fail(OSError(2, "No such file or directory", "/x")),
        "n1": fail(Unreachable("n1", "gone")),
        "n2": lambda: None,
        "n4": fail(TraceError("x.json: no trace")),
    }
    errors = in_parallel("trying", calls, PATIENCE_S, 1)
    assert list(errors) == ["n3", "n1", "n4"]
    assert isinstance(errors["n3"], CommandFailed)
    assert str(errors["n3"]) == "n3: trying: No such file or directory ('/x')"
    assert str(errors["n1"]) == "n1: gone"
    assert isinstance(errors["n4"], CommandFailed)
    assert str(errors["n4"]) == "n4: trying: x.json: no trace"


def test_what_hangs_and_what_waits_behind_it_are_named_and_nothing_begins_afterwards() -> None:
    go_on, begun = threading.Event(), []

    def hang() -> None:
        go_on.wait(PATIENCE_S)

    calls = {"n1": hang, "n2": hang, "n3": lambda: begun.append("n3")}
    errors = in_parallel("trying", calls, 0.2, 2)
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("aorta-trying")]
    go_on.set()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert begun == []
    assert [type(error) for error in errors.values()] == [TimedOut, TimedOut, TimedOut]
    assert [str(error) for error in errors.values()] == [
        "n1: trying: not done within 0.2 s",
        "n2: trying: not done within 0.2 s",
        "n3: trying: not begun, 2 hosts at a time, within 0.2 s",
    ]


def test_an_error_that_nobody_foresaw_is_a_defect_and_blames_no_host(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise TypeError("no int")

    errors = in_parallel("trying", {"n1": fail, "n2": lambda: None}, PATIENCE_S)
    assert list(errors) == ["n1"]
    assert isinstance(errors["n1"], Defect)
    assert isinstance(errors["n1"].__cause__, TypeError)
    said = "trying: TypeError: no int; this is a defect of pytest-aorta, the log has its traceback"
    assert str(FleetError(errors)) == said
    [record] = caplog.records
    assert record.getMessage() == "n1: trying: unexpected"
    assert "in fail" in caplog.text


class Stubborn(ScriptedTransport):
    def start(self, lease_s: float, state_dir: str) -> Pipes:
        return StubbornPipes(self)


class StubbornPipes(ScriptedPipes):
    def kill(self) -> None:
        super().kill()
        raise OSError("it would not die")


class Absent(ScriptedTransport):
    def start(self, lease_s: float, state_dir: str) -> Pipes:
        raise OSError("nobody answers")


def test_why_a_fleet_did_not_open_is_not_hidden_by_what_went_wrong_when_it_was_closed() -> None:
    fleet = Fleet({"n1": Absent(), "n2": Stubborn()})
    with pytest.raises(FleetError) as caught:
        fleet.open({"n1": "/state", "n2": "/state"})
    assert {host: str(error) for host, error in caught.value.by_host.items()} == {
        "n1": "n1: nobody answers",
        "n2": "n2: leaving: it would not die",
    }
    assert list(caught.value.by_host) == ["n1", "n2"]
