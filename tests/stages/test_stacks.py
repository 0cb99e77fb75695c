"""Where the ranks of a workload that hangs stand."""

from __future__ import annotations

import pytest

from pytest_aorta.stages.stacks import Place, Source, Stacks, where_they_stand

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


HELPER = ["Current thread 0x71 (most recent call first):", '  File "/opt/train.py", line 5 in helper_main']


def test_a_helper_that_answers_too_does_not_stand_for_its_rank() -> None:
    for lines in (WAITS + HELPER, HELPER + WAITS):
        assert seen(1, a0=lines, b0=WAITS) == f"rank 0 (a), rank 1 (b) {WAITING}"
    assert seen(1, a0=SLEEPS + HELPER, b0=WAITS).startswith("rank 0 (a) in <module> (train.py:18); ")


@pytest.mark.parametrize(
    "file", ["autograd/graph.py", "nn/parallel/distributed.py", "_ops.py", "cuda/__init__.py", "distributed/x.py"]
)
def test_who_waits_in_torch_itself_comes_last(file: str) -> None:
    waits = [WAITS[0], WAITS[1], "", WAITS[3], f'  File "/venv/lib/python3.11/site-packages/torch/{file}", line 8 in f']
    assert seen(1, a0=waits, b0=SLEEPS).startswith("rank 1 (b) in <module> (train.py:18); rank 0 (a) in f (")
