"""What the words of an engine, and of what was undone, say about leftovers."""

from __future__ import annotations

import pytest

from pytest_aorta.containers.leftovers import is_over, not_undone, undone


@pytest.mark.parametrize(
    ("said", "over"),
    [
        ("Error response from daemon: container 0123 is not running", True),
        ("Error response from daemon: Container 0123 is not running", True),
        ("Error: can only create exec sessions on running containers: container state improper", True),
        ("Error: No such container: 0123", True),
        ("Error response from daemon: Container 0123 is paused, unpause the container before exec", False),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", False),
    ],
)
def test_nothing_runs_in_a_container_that_has_ended_or_is_gone(said: str, over: bool) -> None:
    assert is_over(said) is over


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("4f" * 32, "container 4f4f4f4f4f4f removed"),
        ("/run/aorta-login-1", "/run/aorta-login-1 removed"),
        ("what ran in container aorta", "what ran in container aorta ended"),
    ],
)
def test_what_was_undone_is_told_by_what_it_was(name: str, said: str) -> None:
    assert undone(name) == said


def test_an_engine_that_hangs_is_what_was_not_undone_for() -> None:
    why = "`docker rm` was not done within 30 s"
    assert not_undone("4f" * 32, why) == (
        f"container 4f4f4f4f4f4f could not be removed: {why}; "
        "see whether docker's daemon answers there at all (`docker info`), and restart it if not"
    )
