"""Files that hosts share are counted once, and hosts that have none of their own are known."""

from __future__ import annotations

from typing import Any

from pytest_aorta.stages.proof import Sightings


def file(path: str, mtime_ns: int = 5) -> dict[str, Any]:
    return {"path": path, "size": 1, "mtime_ns": mtime_ns}


def is_trace(path: str) -> bool:
    return not path.endswith("jsonl")


def test_a_shared_file_is_counted_at_the_first_host_that_sees_it() -> None:
    sightings = Sightings()

    assert sightings.counted("a", [file("0"), file("1")], is_trace) == [file("0"), file("1")]
    assert sightings.counted("b", [file("0"), file("1"), file("2")], is_trace) == [file("2")]
    assert sightings.counted("c", [file("0", mtime_ns=6)], is_trace) == [file("0", mtime_ns=6)]
    assert sightings.shared == {"a": {"0", "1"}, "b": {"0", "1"}}
    assert sightings.only_shared() == {"a": {"0", "1"}}


def test_a_shared_step_log_does_not_stand_for_a_trace() -> None:
    sightings = Sightings()
    sightings.counted("a", [file("0"), file("log.jsonl")], is_trace)

    assert sightings.counted("b", [file("log.jsonl")], is_trace) == []
    assert sightings.shared == {}
