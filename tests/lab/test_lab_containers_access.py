"""How an engine gets at a daemon that is closed to it, and at an image that needs a login."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_aorta.containers.docker_cli import DockerCli, containers_of
from pytest_aorta.containers.docker_sdk import DockerSdk
from pytest_aorta.containers.engine import Engine
from pytest_aorta.containers.spec import RUN_LABEL, STATE_LABEL, Login, Spec
from pytest_aorta.errors import ContainerError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from tests.containers.lab_fleet import fleet_on
from tests.lab import faults
from tests.lab.conftest import MakeLab, python_folders
from tests.lab.engine import IMAGE
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.registry import ABSENT, BY_DIGEST, LOGIN, PASSWORD, PRIVATE, start

pytestmark = pytest.mark.lab(1, docker=True, binds=python_folders())

STATE = "/tmp/state-of-this-run"
SPEC = Spec("aorta-box", IMAGE, labels={RUN_LABEL: "run-of-this-test", STATE_LABEL: STATE})
SUDOERS = "/etc/sudoers.d/lab-docker"


@pytest.fixture
def host(lab: Lab) -> Iterator[Host]:
    [host] = lab.hosts
    yield host
    lab.heal()
    if names := [each.name for each in host.containers()]:
        host.run(["docker", "rm", "--force", *names], check=True)


@pytest.fixture
def user_fleet(host: Host) -> Iterator[Fleet]:
    """A fleet whose node program runs as a user without rights."""
    with fleet_on({"node1": host}, {"node1": "/tmp/state-of-lab"}, user="lab") as fleet:
        yield fleet
    host.run(["rm", "-f", SUDOERS], check=True)


@pytest.fixture
def fleet(host: Host) -> Iterator[Fleet]:
    with fleet_on({"node1": host}, {"node1": STATE}) as fleet:
        yield fleet


@pytest.fixture(params=["docker_cli", "docker_sdk"])
def engine(request: pytest.FixtureRequest, host: Host) -> Engine:
    if request.param == "docker_cli":
        return DockerCli()
    return DockerSdk(urls={"node1": f"unix://{host.path('/run/docker.sock')}"})


@pytest.fixture(scope="module")
def registry(labs: MakeLab) -> None:
    [host] = labs(1, docker=True, binds=python_folders()).hosts
    start(host)


def allow(host: Host, command: str) -> None:
    host.path(SUDOERS).write_text(f"lab ALL=(root) NOPASSWD: {command}\n", "utf-8")
    host.run(["chmod", "440", SUDOERS], check=True)


def test_a_closed_socket_is_told_with_what_opens_it(host: Host, user_fleet: Fleet) -> None:
    with pytest.raises(ContainerError, match=r"could not use docker: node1: this user may not use docker") as caught:
        DockerCli().launch(user_fleet, {"node1": SPEC})
    assert "a password is required" in str(caught.value)
    path = host.run(["su", "lab", "-c", "command -v docker"]).stdout.strip()
    assert f"add the user to the group docker, or allow `NOPASSWD: {path}` in sudoers" in str(caught.value)


def test_sudo_stands_before_every_command_where_it_is_needed(host: Host, user_fleet: Fleet) -> None:
    allow(host, "/usr/bin/docker, /usr/local/bin/docker")
    engine = DockerCli()
    env = {"PATH": "/bin:/usr/bin:/with blank", "QUOTES": "\"a\" 'b' # $c \\", "PLAIN": "x"}

    engine.launch(user_fleet, {"node1": replace(SPEC, env=env)})

    argv = engine.argv("node1", ["env", "-0"])
    assert argv[:3] == ["sudo", "-n", "docker"]
    said = user_fleet.perform(Ask("run", {"argv": argv}))["node1"]["stdout"]
    assert env.items() <= dict(each.split("=", 1) for each in said.split("\0") if each).items()
    record = json.loads(host.path("/tmp/state-of-lab/groups.json").read_text("utf-8"))
    assert record["undo"][0]["argv"][:3] == ["sudo", "-n", "docker"]
    assert [found.name for found in containers_of(user_fleet).good["node1"]] == ["aorta-box"]
    engine.remove()
    assert host.containers() == []


def test_what_cannot_pass_sudo_exactly_is_refused(host: Host, user_fleet: Fleet) -> None:
    allow(host, "/usr/bin/docker, /usr/local/bin/docker")
    with pytest.raises(
        ContainerError, match=r"node1: env: LINES cannot be passed .* because sudo would drop it"
    ) as caught:
        DockerCli().launch(user_fleet, {"node1": replace(SPEC, env={"LINES": "secret-1\nsecret-2"})})
    assert "secret" not in str(caught.value)
    assert host.containers() == []


@pytest.mark.parametrize("image", [PRIVATE, BY_DIGEST], ids=["tag", "digest"])
def test_a_login_lasts_for_the_pull_and_no_longer(
    registry: None, host: Host, fleet: Fleet, engine: Engine, image: str
) -> None:
    host.path("/tmp/password").write_text(f"{PASSWORD}\n", "utf-8")
    host.run(["docker", "image", "rm", "--force", image])

    # the image is there then, but has nothing in it that could be started
    with pytest.raises(ContainerError, match=r"could not start the container: .*sleep.*; the image needs a `sleep`"):
        engine.launch(fleet, {"node1": replace(SPEC, image=image, login=LOGIN)})

    host.run(["docker", "image", "inspect", image], check=True)
    assert list(host.path("/tmp").glob("aorta-login-*")) == []
    assert not host.path("/root/.docker/config.json").exists()
    record = json.loads(host.path(f"{STATE}/groups.json").read_text("utf-8"))
    assert record["undo"] == []
    assert host.run(["docker", "pull", PRIVATE]).returncode != 0
    assert host.containers() == []


@pytest.mark.parametrize(
    ("image", "login", "password", "said"),
    [
        (PRIVATE, LOGIN, "wrong", "; check container.image, and the login in container.runtime.args.registry"),
        (PRIVATE, None, PASSWORD, "; check container.image, and the login in container.runtime.args.registry"),
        (ABSENT, LOGIN, PASSWORD, "; the registry has no such tag or digest"),
        ("127.0.0.1:5001/empty:1", None, PASSWORD, "; the registry cannot be reached from there"),
        (PRIVATE, LOGIN, None, "/tmp/password"),
    ],
    ids=["wrong password", "no login", "no such tag", "nobody listens", "no password file"],
)
def test_what_a_registry_refuses_is_one_sentence(
    registry: None,
    host: Host,
    fleet: Fleet,
    engine: Engine,
    image: str,
    login: Login | None,
    password: str | None,
    said: str,
) -> None:
    host.path("/tmp/password").unlink(missing_ok=True)
    if password is not None:
        host.path("/tmp/password").write_text(password, "utf-8")
    host.run(["docker", "image", "rm", "--force", PRIVATE, BY_DIGEST])

    with pytest.raises(ContainerError, match=rf"could not get the image \S+: node1: .*{said}") as caught:
        engine.launch(fleet, {"node1": replace(SPEC, image=image, login=login)})

    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert list(host.path("/tmp").glob("aorta-login-*")) == []


def test_a_host_whose_daemon_is_down_is_not_a_host_without_containers(host: Host, fleet: Fleet) -> None:
    with faults.stop_docker(host):
        listed = containers_of(fleet)
    assert listed.good == {}
    assert "; is the daemon running" in listed.failed["node1"]
    assert containers_of(fleet, program="podman").good == {"node1": []}  # it has no daemon that could be down


def test_the_package_and_the_host_must_mean_the_same_daemon(host: Host, fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(
        ContainerError, match=r"could not use docker: node1: cannot connect to the docker daemon at /no"
    ):
        DockerSdk(urls={"node1": "unix:///no/such.sock"}).launch(fleet, {"node1": SPEC})
