from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.containers.arguments import create_arguments, entering, mount_argument
from pytest_aorta.containers.body import create_body
from pytest_aorta.containers.soundness import faults
from pytest_aorta.containers.spec import RUN_LABEL, Login, Mount, Spec
from pytest_aorta.errors import ContainerError
from tests.containers.specs import SPEC

PATHS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20).map(lambda text: f"/{text}")


def test_what_is_not_asked_for_is_not_said() -> None:
    assert create_arguments(SPEC, "docker") == [
        "--pull=never",
        "--name=box",
        "--entrypoint=sleep",
        "--stop-signal=SIGKILL",
        "--label=aorta.run=run-of-today",
        "--label=aorta.state=/state",
        "--network=host",
        "--ipc=host",
    ]


def test_values_of_the_environment_stand_nowhere() -> None:
    spec = replace(SPEC, env={"TOKEN": "secret"}, login=Login("me", "/file"))
    assert "secret" not in repr(spec) + repr(create_arguments(spec, "docker"))


@pytest.mark.parametrize(("program", "argument"), [("docker", "--gpus=all"), ("podman", "--device=nvidia.com/gpu=all")])
def test_all_gpus(program: str, argument: str) -> None:
    assert argument in create_arguments(replace(SPEC, gpus=True), program)


@given(PATHS, PATHS)
def test_any_path_is_one_value_of_the_line_that_a_mount_is(source: str, target: str) -> None:
    argument = mount_argument(Mount(source, target, ("ro", "rslave")))
    [fields] = csv.reader([argument.removeprefix("--mount=")])
    assert fields == ["type=bind", f"source={source}", f"target={target}", "bind-propagation=rslave", "readonly"]


def test_relabelling_needs_the_older_form() -> None:
    assert mount_argument(Mount("/a b", "/c", ("z", "ro"))) == "--volume=/a b:/c:z,ro"
    assert create_body(replace(SPEC, mounts=(Mount("/a", "/c", ("Z",)),)))["HostConfig"]["Binds"] == ["/a:/c:Z"]


def test_what_is_run_inside_stands_behind_the_container() -> None:
    assert entering("0123", ["-x", "--user", "a b"]) == ["exec", "--interactive", "0123", "-x", "--user", "a b"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replace(SPEC, name="--privileged"), "the container's name is '--privileged'"),
        (replace(SPEC, name="a b"), "name"),
        (replace(SPEC, name="box\n"), "name"),
        (replace(SPEC, name="x"), "name"),
        (replace(SPEC, name="$(reboot)"), "name"),
        (replace(SPEC, image=""), "the image is ''"),
        (replace(SPEC, image="-v/:/x"), "image"),
        (replace(SPEC, image="an image"), "image"),
        (replace(SPEC, image="image\n"), "image"),
        (replace(SPEC, labels={RUN_LABEL: "today"}), "the label aorta.state has no value"),
        (replace(SPEC, labels={**SPEC.labels, "a": "\0"}), "the label 'a' has a NUL"),
        (replace(SPEC, env={"A=B": "secret"}), "env: a variable cannot be named 'A=B'"),
        (replace(SPEC, env={"A*": "secret"}), "env: a variable cannot be named 'A*'"),
        (replace(SPEC, env={"#A": "secret"}), "env: a variable cannot be named '#A'"),
        (replace(SPEC, env={"": "secret"}), "env: a variable cannot be named ''"),
        (replace(SPEC, env={"A": "secret\0"}), "env: the value of A has a NUL"),
        (replace(SPEC, devices=("/dev/a\nb",)), "devices: '/dev/a\\nb' has a control character"),
        (replace(SPEC, mounts=(Mount("data", "/x"),)), "volumes: the path 'data' is not absolute"),
        (replace(SPEC, mounts=(Mount("/x", "/a\nb"),)), "volumes: the path '/a\\nb'"),
        (replace(SPEC, mounts=(Mount("/x", "/y", ("nocopy",)),)), "volumes: /y: unknown option 'nocopy', expected one"),
        (replace(SPEC, mounts=(Mount("/a:b", "/y", ("z",)),)), "a path with a colon in it"),
        (replace(SPEC, mounts=(Mount("/a", "/y", ("ro", "rw")),)), "seen both ro and rw"),
        (replace(SPEC, login=Login("me", "/file", "--config")), "the registry's server is '--config'"),
    ],
)
def test_what_cannot_pass_exactly_is_refused(spec: Spec, said: str) -> None:
    [fault] = faults(spec)
    assert said in fault
    assert "secret" not in fault


@pytest.mark.parametrize(
    "image", ["a", "rocm/pytorch:latest", "[::1]:5000/a/b:1", "localhost:5000/a@sha256:00ff", "Registry/a_b-c.d"]
)
def test_references_of_all_kinds_are_sound(image: str) -> None:
    assert faults(replace(SPEC, image=image)) == []


@pytest.mark.parametrize(
    ("spec", "key", "value"),
    [
        (replace(SPEC, shm_size="1.5g", ipc="private"), "ShmSize", 1610612736),
        (replace(SPEC, shm_size="64MiB", ipc=""), "ShmSize", 67108864),
        (replace(SPEC, ulimits=("memlock=-1", "nofile=1:2")), "Ulimits", [("memlock", -1, -1), ("nofile", 1, 2)]),
        (
            replace(SPEC, devices=("/dev/a:/dev/b:r", "/dev/c:rw")),
            "Devices",
            [("/dev/a", "/dev/b", "r"), ("/dev/c", "/dev/c", "rw")],
        ),
    ],
)
def test_texts_become_numbers_where_the_daemon_wants_them(spec: Spec, key: str, value: object) -> None:
    seen = create_body(spec)["HostConfig"][key]
    assert ([tuple(each.values()) for each in seen] if isinstance(seen, list) else seen) == value


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replace(SPEC, shm_size="much", ipc="private"), "shm_size: seen 'much', expected a size"),
        (replace(SPEC, ulimits=("memlock",)), "ulimit: seen 'memlock', expected NAME=SOFT"),
        (replace(SPEC, devices=("vendor.com/gpu=all",)), "devices: seen 'vendor.com/gpu=all', expected HOST"),
        (replace(SPEC, security_opt=("seccomp=/a.json",)), "security_opt: seen 'seccomp=/a.json'"),
    ],
)
def test_what_the_daemon_could_not_read_is_refused(spec: Spec, said: str) -> None:
    with pytest.raises(ContainerError, match=said):
        create_body(spec)


def test_the_size_of_shared_memory_is_left_out_beside_the_hosts() -> None:
    spec = replace(SPEC, shm_size="8g")
    assert "ShmSize" not in create_body(spec)["HostConfig"]
    assert not any("shm-size" in argument for argument in create_arguments(spec, "docker"))
