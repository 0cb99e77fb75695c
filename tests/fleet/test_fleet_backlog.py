from __future__ import annotations

from pytest_aorta.fleet.ask import Event
from pytest_aorta.fleet.backlog import Backlog


def lines(host: str, first: int, number: int) -> Event:
    return Event(host, "lines", {"name": "log", "lines": [f"line {i}" for i in range(first, first + number)]})


def test_of_a_host_that_prints_too_fast_the_oldest_lines_go_and_no_end() -> None:
    backlog = Backlog(max_lines=100)
    backlog.put(lines("quiet", 0, 60))
    for round_number in range(50):
        backlog.put(lines("loud", round_number * 30, 30))
    backlog.put(Event("loud", "exited", {"name": "log", "exit_code": 1}))

    first, *loud, end = backlog.take(0)

    assert first == lines("quiet", 0, 60)
    assert end.kind == "exited"
    note, *kept = [line for event in loud for line in event.data["lines"]]
    assert note == "[1410 lines of this log were not shown, they came too fast; its file has them]"
    assert kept == [f"line {i}" for i in range(1410, 1500)]
    assert backlog.take(0) == []


def test_of_one_message_that_is_too_long_the_end_is_kept() -> None:
    backlog = Backlog(max_lines=100)
    backlog.put(lines("loud", 0, 1000))

    (event,) = backlog.take(0)

    assert len(event.data["lines"]) <= 101
    assert event.data["lines"][-1] == "line 999"


def test_long_lines_count_by_their_length() -> None:
    backlog = Backlog(max_chars=1000)
    for _ in range(20):
        backlog.put(Event("loud", "lines", {"name": "log", "lines": ["x" * 300]}))

    kept = backlog.take(0)

    assert [len(event.data["lines"][-1]) for event in kept] == [300] * 3
    assert kept[0].data["lines"][0].startswith("[17 lines of this log were not shown")
