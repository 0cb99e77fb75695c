from __future__ import annotations

import pytest

from pytest_aorta.containers.causes import GONE, NO_IMAGE, cause, not_done


def test_the_clients_own_chatter_is_left_out() -> None:
    said = (
        "docker: Error response from daemon: no way.\nSee 'docker run --help'.\nError: failed to start containers: 01\n"
    )
    assert cause(said) == "no way"


def test_what_podman_says_on_the_way_is_left_out_unless_it_is_all() -> None:
    warning = 'time="2026-11-30T07:49:19Z" level=warning msg="Failed, retrying in 1s ... (1/3). Error: no way"'
    assert cause(f"{warning}\n{warning}\nError: no way") == "no way"
    assert cause(warning) == warning


def test_what_sudo_says_of_the_name_of_its_machine_is_left_out() -> None:
    assert cause("sudo: unable to resolve host n1: Name or service not known\nError: no way") == "no way"


def test_hosts_that_failed_alike_say_the_same_whatever_the_id() -> None:
    said = 'Error: unable to start container "{0}": looking up groups for container {0}: no group x'
    assert cause(said.format("0a" * 32)) == cause(said.format("b1" * 32))


def test_silence_is_said() -> None:
    assert cause("\n") == "it failed without a word"


@pytest.mark.parametrize(
    ("said", "next_step"),
    [
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            "is the daemon running? Start it (systemctl start docker)",
        ),
        (
            "cannot connect to the docker daemon at /run/docker.sock: Permission denied",
            "this user may not open the daemon's socket: add it to the group that owns it (docker)",
        ),
        (
            "write /var/lib/docker/tmp/x: no space left on device",
            "make room where the engine keeps its images (docker system df, podman system df)",
        ),
        (
            (
                "runc create failed: unable to start container process: error during container init: error setting "
                "rlimit type 8: operation not permitted: unknown"
            ),
            (
                "set limits that this machine may give in container.runtime.args.ulimit (memlock=65536 instead of the "
                "default, memlock=-1), or let its engine raise them"
            ),
        ),
        (
            "manifest for a/b:9 not found: manifest unknown",
            "the registry has no such tag or digest: check container.image",
        ),
        (
            "pull access denied for a/b, repository does not exist or may require 'docker login': denied: no",
            "check container.image, and the login in container.runtime.args.registry",
        ),
        (
            "no matching manifest for linux/arm64/v8 in the manifest list entries",
            "the image is not made for this machine's architecture: check container.image",
        ),
        (
            'short-name "a/b:1" did not resolve to an alias and no unqualified-search registries are defined',
            "podman looks for it in no registry unless told: begin container.image with one (docker.io/...)",
        ),
        (
            'logging into "127.0.0.1:5000": invalid username/password',
            "check container.image, and the login in container.runtime.args.registry",
        ),
        (
            "crun: executable file `sleep` not found in $PATH: No such file or directory",
            "the image needs a `sleep` program (coreutils or busybox) on its PATH, which container.env.PATH replaces",
        ),
        (
            "toomanyrequests: You have reached your pull rate limit",
            "the registry wants a login: set container.runtime.args.registry, or wait",
        ),
    ],
)
def test_known_words_come_with_the_next_step(said: str, next_step: str) -> None:
    assert cause(said) == f"{said}; {next_step}"


def test_a_cause_is_no_book() -> None:
    assert len(cause("x" * 5000)) < 1000


@pytest.mark.parametrize(
    "said",
    [
        "Error: No such container: 0123",
        "Error response from daemon: No such container: 0123",
        'Error: no container with name or ID "0123" found: no such container',
        "Error response from daemon: removal of container 0123 is already in progress",
    ],
)
def test_a_container_that_is_gone_is_known_in_any_version(said: str) -> None:
    assert GONE.search(said)


@pytest.mark.parametrize(
    "said", ["Error: No such image: a:1", "Error response from daemon: no such image: a", "Error: a:1: image not known"]
)
def test_an_image_that_is_absent_is_known_in_any_version(said: str) -> None:
    assert NO_IMAGE.search(said)


def test_what_was_not_done_in_time_comes_with_the_next_step_of_its_engine_only() -> None:
    hung = 'error during connect: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.50/containers/json":'
    answers = "see whether docker's daemon answers there at all (`docker info`), and restart it if not"
    assert not_done("docker ps", 30, hung) == f"`docker ps` was not done within 30 s; {answers}"
    assert not_done("podman ps", 5).endswith("; see whether podman answers there at all (`podman info`)")
    assert not_done("sh", 30) == "`sh` was not done within 30 s"
    assert (
        not_done("docker pull", 600, "layer 3 of 9")
        == "`docker pull` was not done within 600 s, its last words: layer 3 of 9"
    )
