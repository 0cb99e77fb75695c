from __future__ import annotations

import threading

from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.containers.progress import Layers, told_meanwhile


def test_a_long_pull_is_told_of_until_it_ends() -> None:
    told: list[str] = []
    enough = threading.Event()

    def progress(sentence: str) -> None:
        told.append(sentence)
        if len(told) == 2:
            enough.set()

    def pull() -> Outcome[str]:
        enough.wait(20)
        return Outcome({"a": "done"}, {"b": "no"})

    outcome = told_meanwhile(pull, ["a", "b"], progress, every_s=0.01)

    assert (outcome.good, outcome.failed) == ({"a": "done"}, {"b": "no"})
    assert told[:2] == ["a, b: still pulling after 0 s"] * 2


def test_layers_are_counted_from_the_daemons_events() -> None:
    told: list[str] = []
    layers = Layers("pulling", told.append, every_s=0)
    for event in (
        {"status": "Pulling from a/b", "id": "1.0"},
        {"status": "Already exists", "id": "01"},
        {"status": "Downloading", "id": "02", "progressDetail": {"current": 1}},
        {"status": "Pull complete", "id": "02"},
        {"status": "Status: Downloaded newer image"},
    ):
        layers.take(event)
    counts = ["0 of 0", "1 of 1", "1 of 2", "2 of 2", "2 of 2"]
    assert told == [f"pulling: {count} layers are there" for count in counts]
