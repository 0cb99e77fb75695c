from __future__ import annotations

import pytest

from pytest_aorta.containers.environment import passed


def test_a_variable_is_named_and_its_value_is_the_clients() -> None:
    way = passed({"A": "one\ntwo", "B": ""}, "docker", through_sudo=False)
    assert (way.argv, way.env, way.lines, way.refused) == (("--env=A", "--env=B"), {"A": "one\ntwo", "B": ""}, "", ())


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "DOCKER_HOST",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "https_proxy",
        "NO_PROXY",
        "AORTA_GROUP",
        "GODEBUG",
    ],
)
def test_what_the_client_itself_would_obey_comes_in_a_line(name: str) -> None:
    way = passed({name: "# $x 'y' ", "A": "b"}, "docker", through_sudo=False)
    assert (way.argv, way.env) == (("--env=A", "--env-file=/dev/stdin"), {"A": "b"})
    assert way.lines == f"{name}=# $x 'y' \n"


def test_sudo_drops_the_environment_so_all_comes_in_lines() -> None:
    way = passed({"A": "1", "B": "2"}, "docker", through_sudo=True)
    assert (way.argv, way.env, way.lines) == (("--env-file=/dev/stdin",), {}, "A=1\nB=2\n")


@pytest.mark.parametrize(
    ("program", "value", "why"),
    [
        ("docker", "secret\n", "more than one line"),
        ("docker", "secret\r", "more than one line"),
        ("docker", "secret" * 11_000, "longer than 60000 bytes"),
        ("podman", '"secret"', "has quotes"),
        ("podman", "secret ", "outer blanks"),
    ],
)
def test_what_no_line_can_hold_is_refused_without_its_value(program: str, value: str, why: str) -> None:
    way = passed({"PATH": value}, program, through_sudo=False)
    [fault] = way.refused
    assert fault.startswith(f"env: PATH cannot be passed to {program} exactly, because {program} itself would obey it")
    assert why in fault
    assert "secret" not in fault + repr(way)
