from __future__ import annotations

import itertools
from typing import get_args

import pytest

from pytest_aorta.containers.lifetime import Found, decide, in_doubt
from pytest_aorta.containers.spec import KEPT_LABEL, RUN_LABEL, STATE_LABEL, Lifetime
from pytest_aorta.errors import ContainerError

RUNS = {"node1": "today", "node2": "today"}
OLD = {RUN_LABEL: "yesterday", STATE_LABEL: "/old"}


def found(state: str = "running", **labels: str) -> Found:
    return Found("0123456789abcdef", "box", state, "image:1", "sha256:feed", labels)


def ours(state: str = "running") -> Found:
    return Found("0123456789abcdef", "box", state, "image:1", "sha256:feed", OLD)


def kept(state: str = "running") -> Found:
    return Found("0123456789abcdef", "box", state, "image:1", "sha256:feed", {**OLD, KEPT_LABEL: "yes"})


@pytest.mark.parametrize(
    ("image", "wanted", "same"),
    [
        ("a", "a:latest", True),
        ("docker.io/library/a:1", "a:1", True),
        ("localhost/a:latest", "a", True),
        ("docker.io/b/a", "b/a", True),
        ("reg:5000/a", "reg:5000/a:latest", True),
        ("a@sha256:1", "a@sha256:1", True),
        ("a:1", "a:2", False),
        ("b/a:1", "c/a:1", False),
        ("a", "a@sha256:1", False),
    ],
)
def test_an_image_is_known_by_what_clients_make_of_its_name(image: str, wanted: str, same: bool) -> None:
    assert Found("0123456789abcdef", "box", "running", image, "sha256:feed").is_of(wanted) is same


def test_only_the_runs_of_containers_in_the_way_are_asked_for() -> None:
    there = {"node1": ours(), "node2": None, "node3": found(), "node4": kept()}
    runs = dict.fromkeys(there, "today")

    assert in_doubt("per_run", runs, there) == {"node1": "/old"}
    assert in_doubt("per_run", dict.fromkeys(there, "yesterday"), there) == {}
    assert in_doubt("persistent", runs, there) == {}


def test_a_dead_runs_container_is_replaced_and_a_living_ones_is_not() -> None:
    there = {"node1": ours(), "node2": None}

    steps = decide("per_run", RUNS, there, {"node1": False})
    assert [(step.do, step.found) for step in steps.values()] == [("create", ours()), ("create", None)]

    with pytest.raises(ContainerError, match=r"node1: .* run yesterday, which still runs"):
        decide("per_run", RUNS, there, {"node1": True})


@pytest.mark.parametrize("lifetime", ["per_run", "persistent", "no_launch"])
@pytest.mark.parametrize("state", ["created", "running", "paused", "restarting", "removing", "exited", "dead"])
def test_what_is_not_ours_is_never_started_or_removed(lifetime: Lifetime, state: str) -> None:
    try:
        steps = decide(lifetime, {"node1": "today"}, {"node1": found(state)}, {})
    except ContainerError:
        return
    assert (steps["node1"].do, state) == ("attach", "running")


def test_what_is_kept_is_never_removed() -> None:
    for lifetime, state in itertools.product(get_args(Lifetime), ("running", "exited", "paused")):
        try:
            steps = decide(lifetime, RUNS, {"node1": kept(state), "node2": None}, {})
        except ContainerError:
            continue
        assert (lifetime, state, steps["node1"].do) == ("persistent", "exited", "restart")


def test_every_host_that_stands_against_it_is_named() -> None:
    with pytest.raises(ContainerError) as caught:
        decide("per_run", RUNS, {"node1": found(), "node2": kept()}, {})
    assert "node1: a container named box (0123456789ab, running) is there" in str(caught.value)
    assert "node2: a container named box (0123456789ab, running) is there, kept" in str(caught.value)


def test_a_paused_persistent_container_is_not_at_rest() -> None:
    with pytest.raises(ContainerError, match="box is there in state paused and cannot be started from that state"):
        decide("persistent", {"node1": "today"}, {"node1": kept("paused")}, {})
