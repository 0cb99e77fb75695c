"""Phases and parts of a step on the host's clock; what GPUs add is in tests/gpu."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the workload needs torch")

import torch
import torch.distributed as dist
from aorta_train.clock import HostClock
from aorta_train.interception import STREAM_OF, Interception
from aorta_train.timing import PhaseTimer, StreamTimer, Untimed, timer_of

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


class Ticking:
    """A clock that moves by a millisecond a mark."""

    def __init__(self) -> None:
        self.now = 0.0

    def mark(self) -> float:
        self.now += 1
        return self.now

    def elapsed_ms(self, begin: float, end: float) -> float:
        return end - begin


def test_light_gives_the_phases_and_nothing_of_collectives() -> None:
    timer = PhaseTimer(Ticking())
    timer.begin_step()
    for tag in ("data", "forward", "backward", "clip", "optimizer"):
        with timer.phase(tag, batch=0):
            pass
    recording = timer.end_step()
    assert recording is not None
    profile = recording.read()
    assert profile["total_ms"] == 11
    assert [(one["stream"], one["tag"], one["start_ms"], one["duration_ms"]) for one in profile["ranges"]] == [
        ("aux", "data", 1, 1),
        ("compute", "forward", 3, 1),
        ("compute", "backward", 5, 1),
        ("aux", "clip", 7, 1),
        ("aux", "optimizer", 9, 1),
    ]
    assert profile["ranges"][0]["metadata"] == {"batch": 0}
    assert profile["overlap"]["per_stream_ms"]["allgather"] is None
    assert profile["overlap"]["overlap_ms"]["idle"] == 6


def test_steps_are_numbered_from_0() -> None:
    timer = PhaseTimer(HostClock())
    seen = []
    for _ in range(2):
        timer.begin_step()
        recording = timer.end_step()
        assert recording is not None
        seen.append(recording.read()["index"])
    assert seen == [0, 1]


def test_outside_of_a_step_nothing_is_timed() -> None:
    for timer in (PhaseTimer(Ticking()), StreamTimer(Ticking()), Untimed()):
        with timer.phase("forward"):
            pass
        assert timer.end_step() is None


def test_the_configuration_chooses_the_timer() -> None:
    kinds = {name: type(timer_of(name, CPU)) for name in ("off", "light", "full")}
    assert kinds == {"off": Untimed, "light": PhaseTimer, "full": StreamTimer}


def test_collectives_are_put_back_and_what_is_not_on_the_device_is_left_alone() -> None:
    before = {name: getattr(dist, name, None) for name in STREAM_OF}
    timer = StreamTimer(Ticking())
    timer.begin_step()
    with Interception(timer, torch.device("cuda", 0)):
        assert dist.all_reduce is not before["all_reduce"]
        with pytest.raises(ValueError, match="process group"):
            dist.all_reduce(torch.ones(1))
    assert {name: getattr(dist, name, None) for name in STREAM_OF} == before
    recording = timer.end_step()
    assert recording is not None
    assert recording.read()["ranges"] == []


def test_a_collective_that_runs_on_ends_when_it_is_done() -> None:
    """The caller waits later; the range must not end at the launch."""
    clock = Ticking()
    timer = StreamTimer(clock)

    class Work:
        def wait(self) -> None:
            clock.now += 100

    def all_reduce(tensor: torch.Tensor, async_op: bool = False) -> Any:
        return Work() if async_op else None

    timed = Interception(timer, CPU)._timed(all_reduce, "allreduce")
    timer.begin_step()
    assert isinstance(timed(torch.ones(3), async_op=True), Work)
    assert timed(torch.ones(3)) is None
    recording = timer.end_step()
    assert recording is not None
    assert len(recording.kept) == 1
    ranges = recording.read()["ranges"]
    assert [one["duration_ms"] for one in ranges] == [101, 1]
    assert [one["metadata"]["bytes"] for one in ranges] == [12, 12]
    assert recording.kept == []
