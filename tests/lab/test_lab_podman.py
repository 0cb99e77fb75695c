"""Podman where it is not as Docker is: images that need a registry or a login, a user without rights, a whole run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_aorta.containers.docker_cli import DockerCli
from pytest_aorta.containers.spec import RUN_LABEL, STATE_LABEL, Login, Spec
from pytest_aorta.errors import ContainerError
from pytest_aorta.fleet.fleet import Fleet
from tests.containers.lab_fleet import fleet_on
from tests.lab.cluster import CHECKOUT, CONTAINER, Cluster
from tests.lab.conftest import MakeLab, python_folders
from tests.lab.engine import IMAGE
from tests.lab.fault_runs import configure_light
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.registry import ABSENT, LOGIN, PASSWORD, PRIVATE, start

pytestmark = pytest.mark.lab(2, podman=True, binds=python_folders())

STATE = "/tmp/state-of-this-run"
SPEC = Spec("aorta-box", IMAGE, labels={RUN_LABEL: "run-of-this-test", STATE_LABEL: STATE})
SUDOERS = "/etc/sudoers.d/lab-podman"
CHECK_LOGIN = "; check container.image, and the login in container.runtime.args.registry"


@pytest.fixture
def host(lab: Lab) -> Host:
    return lab.hosts[0]


@pytest.fixture
def fleet(host: Host) -> Iterator[Fleet]:
    with fleet_on({"node1": host}, {"node1": STATE}) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def registry(labs: MakeLab) -> None:
    host = labs(2, podman=True, binds=python_folders()).hosts[0]
    start(host)


def test_the_whole_lifecycle_is_green_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lab=lab)
    runtime = {"name": "podman", "args": {"volumes": [f"{CHECKOUT}:/mnt"]}}
    configure_light(cluster, container={"runtime": runtime})

    output = cluster.run(code=0)

    assert cluster.letters() == "PPPSPPSPPPP", output
    log = (cluster.reports / "aorta_distributed.log").read_text("utf-8")
    assert all(f"{name}: container {CONTAINER}" in log for name in cluster.names)
    traces = (cluster.folder / "combined_traces").rglob("*.pt.trace.json")
    assert sorted(path.parent.name for path in traces) == ["rank0", "rank1"]
    cluster.assert_nothing_left()


def test_what_became_of_a_container_is_told_apart(host: Host, fleet: Fleet) -> None:
    """Entering one that is paused and one that has ended fails with the same words."""
    engine = DockerCli(program="podman")
    engine.launch(fleet, {"node1": SPEC})
    states = []
    for command in (["pause"], ["unpause"], ["kill"], ["rm"]):
        host.run(["podman", *command, SPEC.name], check=True)
        seen = engine.look(["node1"]).good["node1"]
        states.append(seen.state if seen is not None else "gone")
    assert states[2] in {"stopped", "exited"}  # podman writes the end down in two steps
    assert [states[0], states[1], states[3]] == ["paused", "running", "gone"]
    engine.remove()


def test_a_login_lasts_for_the_pull_and_no_longer(registry: None, host: Host, fleet: Fleet) -> None:
    host.path("/tmp/password").write_text(f"{PASSWORD}\n", "utf-8")

    # the image is there then, but has nothing in it that could be started
    with pytest.raises(ContainerError, match=r"could not start the container: .*sleep.*; the image needs a `sleep`"):
        DockerCli(program="podman").launch(fleet, {"node1": replace(SPEC, image=PRIVATE, login=LOGIN)})

    host.run(["podman", "image", "rm", PRIVATE], check=True)
    assert list(host.path("/tmp").glob("aorta-login-*")) == []
    assert list(host.path("/run/containers").glob("**/auth.json")) == []
    assert host.run(["podman", "pull", PRIVATE]).returncode != 0
    assert host.containers() == []


@pytest.mark.parametrize(
    ("image", "login", "password", "said"),
    [
        (PRIVATE, LOGIN, "wrong", CHECK_LOGIN),
        (PRIVATE, None, PASSWORD, CHECK_LOGIN),
        (ABSENT, LOGIN, PASSWORD, "; the registry has no such tag or digest"),
        ("127.0.0.1:5001/empty:1", None, PASSWORD, "; the registry cannot be reached from there"),
        ("rocm/pytorch:latest", None, PASSWORD, r"; .* begin container.image with one \(docker.io/"),
    ],
    ids=["wrong password", "no login", "no such tag", "nobody listens", "short name"],
)
def test_what_a_registry_refuses_is_one_sentence(
    registry: None, host: Host, fleet: Fleet, image: str, login: Login | None, password: str, said: str
) -> None:
    host.path("/tmp/password").write_text(password, "utf-8")

    with pytest.raises(ContainerError, match=rf"could not get the image \S+: node1: .*{said}") as caught:
        DockerCli(program="podman").launch(fleet, {"node1": replace(SPEC, image=image, login=login)})

    assert "\n" not in str(caught.value)
    assert "level=warning" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert list(host.path("/tmp").glob("aorta-login-*")) == []


def test_sudo_stands_before_podman_where_it_does_not_run_without_root(host: Host) -> None:
    engine = DockerCli(program="podman")
    with fleet_on({"node1": host}, {"node1": "/tmp/state-of-lab"}, user="lab") as fleet:
        with pytest.raises(
            ContainerError, match=r"could not use podman: node1: this user may not use podman"
        ) as caught:
            engine.launch(fleet, {"node1": SPEC})
        assert "; log in as root, install uidmap and give the user subordinate ids, or allow" in str(caught.value)
        host.path(SUDOERS).write_text("lab ALL=(root) NOPASSWD: /usr/bin/podman\n", "utf-8")
        host.run(["chmod", "440", SUDOERS], check=True)

        engine.launch(fleet, {"node1": SPEC})

        assert engine.argv("node1", ["id"])[:3] == ["sudo", "-n", "podman"]
        assert [each.state for each in host.containers()] == ["running"]
    assert host.containers() == []


def test_what_a_dead_run_left_is_swept(lab: Lab, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, lab=lab)
    cluster.configure_cluster()
    labels = [f"--label={name}={value}" for name, value in SPEC.labels.items()]
    for host in lab.hosts:
        host.run(["podman", "run", "--detach", "--name=left", *labels, IMAGE, "sleep", "1000"], check=True)

    output = cluster.aorta("clean", "--output", ".", "--aorta-cluster", "cluster.json")

    assert all(f"{host.name}: container left removed" in output for host in lab.hosts)
    assert [host.containers() for host in lab.hosts] == [[], []]
