from __future__ import annotations

import pytest

from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.errors import ContainerError


def test_what_all_gave_is_given_in_the_order_asked() -> None:
    assert list(Outcome({"b": 2, "a": 1}, {}).of(["a", "b"], "count").items()) == [("a", 1), ("b", 2)]


def test_every_cause_is_named_and_the_same_one_once() -> None:
    outcome = Outcome({"d": 1}, {"a": "no space", "b": "no name", "c": "no space"})
    with pytest.raises(ContainerError) as caught:
        outcome.of(["a", "b", "c", "d"], "pull")
    assert str(caught.value) == "could not pull: a, c: no space; b: no name"


def test_a_host_that_said_nothing_is_an_error() -> None:
    with pytest.raises(ContainerError, match="could not pull: b: it gave no answer"):
        Outcome({"a": 1}, {}).of(["a", "b"], "pull")
