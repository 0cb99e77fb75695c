"""Where the ranks of a workload that hangs stand."""

from __future__ import annotations

import pytest

from pytest_aorta.stages.stacks import Place, Source, Stacks, awaited, where_they_stand

HOSTS = ["a", "b"]
TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITS = [
    "Thread 0x7f (most recent call first):",
    '  File "/usr/lib/python3.11/threading.py", line 324 in wait',
    "",
    "Current thread 0x70 (most recent call first):",
    f'  File "{TORCH}", line 2810 in all_reduce',
    '  File "/opt/train.py", line 7 in step',
    '  File "/opt/train.py", line 20 in <module>',
]
SLEEPS = ["Current thread 0x70 (most recent call first):", '  File "/opt/train.py", line 18 in <module>']
WAITING = "in all_reduce (distributed_c10d.py:2810), called from step (train.py:7)"


def places_of(ranks: dict[str, list[str]]) -> dict[Source, Place]:
    stacks = Stacks()
    for name, lines in ranks.items():
        for line in lines:
            stacks.line(Source(name[0], int(name[1:]) if name[1:] else None), line)
    return stacks.places()


def seen(ranks_per_host: int, **ranks: list[str]) -> str:
    return where_they_stand(places_of(ranks), HOSTS, ranks_per_host)


def test_who_stands_elsewhere_comes_first_and_the_others_as_one() -> None:
    told = seen(2, a0=WAITS, a1=WAITS, b0=WAITS, b1=SLEEPS)
    assert told == f"rank 3 (b) in <module> (train.py:18); rank 0 (a), rank 1 (a), rank 2 (b) {WAITING}"


def test_of_two_the_one_that_waits_for_the_other_comes_last() -> None:
    assert seen(1, a0=WAITS, b0=SLEEPS) == f"rank 1 (b) in <module> (train.py:18); rank 0 (a) {WAITING}"


def test_who_does_not_answer_comes_before_who_waits() -> None:
    assert seen(2, a0=WAITS, a1=WAITS) == f"no stack came from rank 2 (b), rank 3 (b); rank 0 (a), rank 1 (a) {WAITING}"


def test_many_that_stand_together_are_counted() -> None:
    told = seen(5, **{f"{host}{rank}": WAITS for host in "ab" for rank in range(5)})
    assert told == f"rank 0 (a), rank 1 (a), rank 2 (a), rank 3 (a), 6 more {WAITING}"


@pytest.mark.parametrize("lines", [[], ["Current thread 0x70 (most recent call first):", "<no Python frame>"]])
def test_a_stack_without_frames_says_nothing(lines: list[str]) -> None:
    assert seen(0, a=lines, b=SLEEPS) == "no stack came from a; b in <module> (train.py:18)"
    assert (
        seen(0, a0=SLEEPS, a1=SLEEPS, b=SLEEPS) == "local rank 0 of a, local rank 1 of a, b in <module> (train.py:18)"
    )


@pytest.mark.parametrize(
    ("ranks", "host"),
    [
        ({"a0": WAITS, "a1": WAITS, "b0": WAITS, "b1": SLEEPS}, "b"),
        ({"a0": WAITS, "a1": WAITS, "b0": SLEEPS}, "b"),
        ({"a0": WAITS, "a1": WAITS, "b0": WAITS}, None),
        ({"a0": WAITS, "a1": SLEEPS, "b0": WAITS, "b1": SLEEPS}, None),
        ({"a0": WAITS, "a1": SLEEPS, "b0": WAITS}, None),
        ({"a0": WAITS, "a1": WAITS, "b0": WAITS, "b1": WAITS}, None),
        ({"a0": SLEEPS, "a1": SLEEPS}, None),
        ({}, None),
    ],
)
def test_a_host_is_named_only_where_all_others_wait_for_it_alone(ranks: dict[str, list[str]], host: str | None) -> None:
    assert awaited(places_of(ranks), HOSTS, 2) == host


def test_where_nobody_numbers_the_ranks_no_host_is_named() -> None:
    assert awaited(places_of({"a": SLEEPS, "b": WAITS}), HOSTS, 0) is None
