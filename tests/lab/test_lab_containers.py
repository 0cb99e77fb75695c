"""What every container engine must do, on real daemons: each test runs with each engine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, cast

import pytest

from pytest_aorta.containers.docker_cli import CliDriver, DockerCli, ProgramName, containers_of
from pytest_aorta.containers.docker_sdk import DockerSdk, SdkDriver
from pytest_aorta.containers.driver import Driver
from pytest_aorta.containers.engine import Engine
from pytest_aorta.containers.lifecycle import Containers
from pytest_aorta.containers.spec import KEPT_LABEL, RUN_LABEL, STATE_LABEL, Lifetime, Mount, Spec
from pytest_aorta.errors import ContainerError
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.program import NAME as PROGRAM
from tests.containers.lab_fleet import fleet_on, reap
from tests.lab import faults
from tests.lab.conftest import MakeLab, python_folders
from tests.lab.engine import IMAGE
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until

pytestmark = pytest.mark.lab(2, docker=True, binds=python_folders())

STATE = "/tmp/state-of-this-run"
RUN = "run-of-this-test"
NAME = "aorta-box"
SPEC = Spec(NAME, IMAGE, labels={RUN_LABEL: RUN, STATE_LABEL: STATE})
OURS = {RUN_LABEL: "run-of-yesterday", STATE_LABEL: "/tmp/state-of-yesterday"}
LIVING = {RUN_LABEL: "run-of-a-colleague", STATE_LABEL: STATE}  # of this folder's node program
KEPT = {**OURS, KEPT_LABEL: "yes"}


# For what is decided alike whatever the engine says, and for what befalls a daemon, which Podman has not.
docker_only = pytest.mark.parametrize("rig", ["docker_cli", "docker_sdk"], indirect=True)


@dataclass
class Rig:
    """An engine's two forms on the hosts of a lab."""

    kind: str
    program: ProgramName
    hosts: tuple[Host, Host]
    fleet: Fleet

    @property
    def image(self) -> str:
        """The image as the engine calls it."""
        return f"localhost/{IMAGE}" if self.program == "podman" else IMAGE

    @property
    def specs(self) -> dict[str, Spec]:
        return self.of(SPEC)

    def of(self, spec: Spec) -> dict[str, Spec]:
        return {host.name: spec for host in self.hosts}

    def engine(self, lifetime: Lifetime = "per_run", told: list[str] | None = None) -> Engine:
        progress = (told if told is not None else []).append
        if self.kind == "docker_sdk":
            return DockerSdk(lifetime, self._urls, progress)
        return DockerCli(lifetime, self.program, progress)

    def disturbed(self, step: str, disturb: Callable[[], object], lifetime: Lifetime = "per_run") -> Engine:
        """An engine to which something happens just before one of its steps."""
        inner = SdkDriver(self._urls) if self.kind == "docker_sdk" else CliDriver(self.program)
        return Containers(self.program, cast("Driver", Disturbed(inner, step, disturb)), lifetime)

    def states(self) -> dict[str, str]:
        """The state of the container of our name, by host."""
        return {host.name: each.state for host in self.hosts for each in host.containers() if each.name == NAME}

    def by_hand(self, host: Host, *words: str) -> str:
        return host.run([self.program, *words], check=True).stdout

    def put(self, host: Host, labels: Mapping[str, str], *, state: str = "running") -> str:
        """A container of our name that is there before; gives its id."""
        argv = ["--stop-signal=SIGKILL", *(f"--label={name}={value}" for name, value in labels.items())]
        box = self.by_hand(host, "create", f"--name={NAME}", "--network=host", *argv, IMAGE, "sleep", "900").strip()
        if state != "created":
            self.by_hand(host, "start", box)
        if state == "exited":
            self.by_hand(host, "kill", box)
        return box

    def inspected(self, host: Host, name: str = NAME) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.by_hand(host, "container", "inspect", name))[0])

    def shares_memory(self, engine: Engine) -> bool:
        """Whether the first host's container is in its host's IPC namespace."""
        look = ("readlink", "/proc/self/ns/ipc")
        return str(self.inside(engine, "node1", *look)["stdout"]) == self.hosts[0].run(look, check=True).stdout

    def inside(self, engine: Engine, host: str, *argv: str) -> Answer:
        return self.fleet.perform({host: Ask("run", {"argv": engine.argv(host, argv), "timeout_s": 20})}).or_raise()[
            host
        ]

    @property
    def _urls(self) -> dict[str, str]:
        return {host.name: f"unix://{host.path('/run/docker.sock')}" for host in self.hosts}


class Disturbed:
    def __init__(self, inner: Driver, step: str, disturb: Callable[[], object]) -> None:
        self._inner = inner
        self._step = step
        self._disturb = disturb

    def __getattr__(self, name: str) -> Any:
        if name == self._step:
            self._step = ""
            self._disturb()
        return getattr(self._inner, name)


@pytest.fixture(scope="module")
def fleets(labs: MakeLab) -> Iterator[Callable[[ProgramName], tuple[Lab, Fleet]]]:
    """One lab and one fleet for Docker, another one for Podman."""
    with ExitStack() as stack:

        @cache
        def made(program: ProgramName) -> tuple[Lab, Fleet]:
            lab = labs(2, **{program: True}, binds=python_folders())
            hosts = {host.name: host for host in lab.hosts}
            return lab, stack.enter_context(fleet_on(hosts, dict.fromkeys(hosts, STATE)))

        yield made


@pytest.fixture(params=["docker_cli", "docker_sdk", "podman_cli"])
def rig(request: pytest.FixtureRequest, fleets: Callable[[ProgramName], tuple[Lab, Fleet]]) -> Iterator[Rig]:
    program: ProgramName = "podman" if request.param == "podman_cli" else "docker"
    lab, fleet = fleets(program)
    first, second = lab.hosts
    rig = Rig(request.param, program, (first, second), fleet)
    yield rig
    lab.heal()
    for host in lab.hosts:
        if names := [each.name for each in host.containers()]:
            rig.by_hand(host, "rm", "--force", *names)


# absent


def test_a_container_is_started_described_entered_and_removed(rig: Rig) -> None:
    engine = rig.engine()

    described = engine.launch(rig.fleet, rig.specs)

    assert rig.states() == {"node1": "running", "node2": "running"}
    for host in rig.hosts:
        seen = rig.inspected(host)
        assert f"container {NAME} ({seen['Id'][:12]}) started" in described[host.name]
        digest = seen["Image"].removeprefix("sha256:")[:12]
        assert f"image {rig.image} (sha256:{digest})" in described[host.name]
        assert seen["Config"]["Labels"] == {RUN_LABEL: RUN, STATE_LABEL: STATE}
        assert seen["Config"]["Entrypoint"] in (["sleep"], "sleep")
        assert seen["Config"]["Cmd"] == ["infinity"]
        assert seen["HostConfig"]["AutoRemove"] is False
    assert rig.shares_memory(engine)
    said = rig.inside(engine, "node1", "sh", "-c", 'printf "%s|" "$0" "$@"; exit 7', "a b", "$(id)", "-x", "")
    assert (said["exit_code"], said["stdout"]) == (7, "a b|$(id)|-x||")
    engine.remove()
    engine.remove()
    assert rig.states() == {}
    with pytest.raises(ContainerError, match="node1: there is no container"):
        engine.argv("node1", ["true"])


# per_run


@docker_only
@pytest.mark.parametrize(
    ("labels", "state"),
    [(OURS, "running"), (OURS, "exited"), ({**OURS, RUN_LABEL: RUN}, "created")],
    ids=["stale, running", "stale, ended", "own"],
)
def test_what_a_dead_run_left_is_replaced_and_told(rig: Rig, labels: dict[str, str], state: str) -> None:
    old = rig.put(rig.hosts[0], labels, state=state)
    engine = rig.engine()

    described = engine.launch(rig.fleet, rig.specs)

    whose = "run run-of-yesterday, which has ended" if labels is OURS else "an earlier launch of this run"
    assert whose in described["node1"]
    assert old[:12] in described["node1"]
    assert "removed" not in described["node2"]
    assert rig.inspected(rig.hosts[0])["Id"] != old
    assert rig.states() == {"node1": "running", "node2": "running"}
    engine.remove()


@docker_only
@pytest.mark.parametrize(
    ("labels", "state", "said"),
    [
        ({}, "running", "was not started by us"),
        ({}, "exited", "was not started by us"),
        (LIVING, "running", "belongs to run run-of-a-colleague, which still runs"),
        (LIVING, "exited", "belongs to run run-of-a-colleague, which still runs"),
        (KEPT, "exited", "kept by lifetime persistent since run run-of-yesterday"),
        ({RUN_LABEL: "run-of-yesterday"}, "running", r"still lives cannot be told \(it has no label aorta.state"),
        (
            {**OURS, STATE_LABEL: "~/state"},
            "running",
            r"still lives cannot be told \(it has no label aorta.state with an",
        ),
        ({**OURS, STATE_LABEL: "/tmp/odd"}, "running", r"cannot be told \(/tmp/odd/groups.json is no record"),
    ],
    ids=["foreign", "foreign, ended", "living", "living, ended", "kept", "no state", "of some home", "odd state"],
)
def test_what_is_not_ours_to_remove_stays(rig: Rig, labels: dict[str, str], state: str, said: str) -> None:
    old = rig.put(rig.hosts[1], labels, state=state)
    rig.hosts[1].run(["mkdir", "-p", "/tmp/odd"])
    rig.hosts[1].path("/tmp/odd/groups.json").write_text("odd", "utf-8")

    with pytest.raises(ContainerError, match=rf"node2: a container named {NAME} .*{said}") as caught:
        rig.engine().launch(rig.fleet, rig.specs)

    assert "node1" not in str(caught.value)
    assert "choose" in str(caught.value)
    assert rig.states() == {"node2": state}
    assert rig.inspected(rig.hosts[1])["Id"] == old


# persistent


def test_a_persistent_container_is_started_once_and_kept(rig: Rig) -> None:
    first = rig.engine("persistent")
    assert "started" in first.launch(rig.fleet, rig.specs)["node1"]
    ids = [rig.inspected(host)["Id"] for host in rig.hosts]
    assert rig.inspected(rig.hosts[0])["Config"]["Labels"][KEPT_LABEL]
    first.remove()

    second = rig.engine("persistent")
    described = second.launch(rig.fleet, rig.specs)
    assert all("found running" in text for text in described.values())
    assert second.otherwise() == {}
    assert rig.inside(second, "node2", "true")["exit_code"] == 0
    second.remove()

    assert [rig.inspected(host)["Id"] for host in rig.hosts] == ids
    assert rig.states() == {"node1": "running", "node2": "running"}


def test_a_persistent_container_survives_its_node_program(rig: Rig) -> None:
    hosts = {host.name: host for host in rig.hosts}
    with fleet_on(hosts, dict.fromkeys(hosts, "/tmp/state-2")) as fleet:
        rig.engine("persistent").launch(fleet, rig.specs)
    assert rig.states() == {"node1": "running", "node2": "running"}
    assert [rig.by_hand(host, "exec", NAME, "echo", "alive") for host in rig.hosts] == ["alive\n"] * 2


def test_a_persistent_container_that_stopped_is_started_again(rig: Rig) -> None:
    old = rig.put(rig.hosts[0], KEPT, state="exited")

    described = rig.engine("persistent").launch(rig.fleet, rig.specs)

    assert "started again" in described["node1"]
    assert rig.inspected(rig.hosts[0])["Id"] == old
    assert rig.states() == {"node1": "running", "node2": "running"}


@docker_only
def test_a_persistent_launch_that_fails_leaves_all_as_it_was(rig: Rig) -> None:
    old = rig.put(rig.hosts[0], KEPT, state="exited")
    specs = {**rig.specs, "node2": replace(SPEC, devices=("/dev/nowhere",))}

    with pytest.raises(ContainerError, match="node2"):
        rig.engine("persistent").launch(rig.fleet, specs)

    assert rig.states() == {"node1": "exited"}
    assert rig.inspected(rig.hosts[0])["Id"] == old


@docker_only
@pytest.mark.parametrize("lifetime", ["persistent", "no_launch"])
def test_a_container_that_runs_everywhere_is_used_whoever_started_it(rig: Rig, lifetime: Lifetime) -> None:
    ids = [rig.put(host, {}) for host in rig.hosts]
    engine = rig.engine(lifetime)
    assert engine.otherwise() == {}

    described = engine.launch(rig.fleet, {**rig.specs, "node2": replace(SPEC, image="not/there:9")})

    assert all("found running" in text for text in described.values())
    assert list(engine.otherwise()) == ["node2"]
    assert f"is of image {rig.image} (sha256:" in engine.otherwise()["node2"]
    assert engine.otherwise()["node2"].endswith(", not of not/there:9 as container.image says")
    assert rig.inside(engine, "node1", "true")["exit_code"] == 0
    engine.remove()
    assert [rig.inspected(host)["Id"] for host in rig.hosts] == ids


@docker_only
@pytest.mark.parametrize(("lifetime", "state"), [("persistent", ""), ("persistent", "exited"), ("no_launch", "exited")])
def test_a_container_on_part_of_the_hosts_is_an_error(rig: Rig, lifetime: Lifetime, state: str) -> None:
    rig.put(rig.hosts[0], KEPT)
    if state:
        rig.put(rig.hosts[1], KEPT, state=state)

    with pytest.raises(ContainerError, match="node2: ") as caught:
        rig.engine(lifetime).launch(rig.fleet, rig.specs)

    assert "node1" not in str(caught.value)
    assert ("there is none" if not state else "state exited") in str(caught.value)
    assert rig.states() == {"node1": "running", **({"node2": state} if state else {})}


@docker_only
@pytest.mark.parametrize(
    ("labels", "said"), [({}, "was not started by us"), (OURS, "belongs to run run-of-yesterday, which is not persist")]
)
def test_only_a_persistent_container_is_started_again(rig: Rig, labels: dict[str, str], said: str) -> None:
    rig.put(rig.hosts[0], labels, state="exited")
    with pytest.raises(ContainerError, match=f"node1: .*{said}"):
        rig.engine("persistent").launch(rig.fleet, rig.specs)
    assert rig.states() == {"node1": "exited"}


@docker_only
def test_without_launching_nothing_is_started(rig: Rig) -> None:
    with pytest.raises(ContainerError, match="node1, node2: there is none; lifetime no_launch never starts one"):
        rig.engine("no_launch").launch(rig.fleet, rig.specs)
    assert rig.states() == {}


# what fails on the way


@docker_only
@pytest.mark.parametrize("lifetime", ["per_run", "persistent"])
def test_a_daemon_that_is_down_is_not_an_absent_container(rig: Rig, lifetime: Lifetime) -> None:
    with faults.stop_docker(rig.hosts[1]):
        with pytest.raises(ContainerError, match=r"could not use docker: node2: .*; is the daemon running") as caught:
            rig.engine(lifetime).launch(rig.fleet, rig.specs)
        assert "node1" not in str(caught.value)
        assert rig.hosts[0].containers() == []


def test_a_container_that_ends_at_once_is_told_with_its_last_words(rig: Rig) -> None:
    for host in rig.hosts:
        host.path("/srv/sleep").write_text("#!/bin/sh\necho no room here >&2\nexit 3\n", "utf-8")
        host.path("/srv/sleep").chmod(0o755)
    broken = replace(SPEC, mounts=(Mount("/srv/sleep", "/usr/bin/sleep"),))
    has_ended = partial(wait_until, lambda: list(rig.states().values()) == ["exited"] * 2, "both to have ended", 20)

    with pytest.raises(ContainerError) as caught:
        rig.disturbed("inspect", has_ended).launch(rig.fleet, rig.of(broken))

    said = "it has ended at once (state exited, exit code 3, its last words: no room here), expected it running"
    assert caught.value.by_host == {"node1": said, "node2": said}
    assert str(caught.value) == f"could not start the container: node1, node2: {said}"
    assert rig.states() == {}


@docker_only
@pytest.mark.parametrize("step", ["has_image", "create", "start", "inspect"])
def test_a_daemon_that_goes_down_meanwhile_leaves_nothing(rig: Rig, step: str) -> None:
    engine = rig.disturbed(step, lambda: faults.stop_docker(rig.hosts[1]))

    with pytest.raises(ContainerError, match=r"node2: .*daemon running") as caught:
        engine.launch(rig.fleet, rig.specs)

    assert "node1" not in str(caught.value)
    assert rig.hosts[0].containers() == []
    rig.hosts[1].heal()
    engine.remove()
    assert rig.states() == {}


@docker_only
def test_a_daemon_that_is_down_at_the_end_is_told_and_the_others_are_cleared(rig: Rig) -> None:
    engine = rig.engine()
    engine.launch(rig.fleet, rig.specs)

    with faults.stop_docker(rig.hosts[1]):
        with pytest.raises(ContainerError, match=r"could not remove the container: node2: .*daemon running") as caught:
            engine.remove()
        assert "node1" not in str(caught.value)
        assert rig.hosts[0].containers() == []

    engine.remove()
    assert rig.states() == {}


def test_a_name_that_is_taken_meanwhile_is_not_ours(rig: Rig) -> None:
    engine = rig.disturbed("create", lambda: rig.put(rig.hosts[1], {}))

    with pytest.raises(ContainerError, match=r"node2: .*already in use.*; somebody has just taken it"):
        engine.launch(rig.fleet, rig.specs)

    assert rig.states() == {"node2": "running"}


@pytest.mark.parametrize("step", ["create", "start"])
def test_an_interrupted_launch_leaves_nothing(rig: Rig, step: str) -> None:
    def interrupt() -> None:
        if step == "create":  # done already, and its answer is lost
            rig.put(rig.hosts[0], SPEC.labels, state="created")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rig.disturbed(step, interrupt).launch(rig.fleet, rig.specs)

    assert rig.states() == {}


def test_a_missing_image_is_told_with_its_cause(rig: Rig) -> None:
    told: list[str] = []
    image = "docker.io/no/such-image:1"
    with pytest.raises(ContainerError, match=r"image \S+: node1, node2: .*network is unreachable.*; the registry"):
        rig.engine(told=told).launch(rig.fleet, rig.of(replace(SPEC, image=image)))
    assert sorted(told) == [f"{name}: pulling {image}, which is not there yet" for name in ("node1", "node2")]
    assert rig.states() == {}


def test_a_device_that_one_host_lacks_is_told_and_the_other_is_cleared(rig: Rig) -> None:
    rig.hosts[0].run(["mknod", "-m", "666", "/dev/only-here", "c", "1", "3"])
    with pytest.raises(ContainerError, match=r"node2: (error gathering|stat) .*; name only devices that") as caught:
        rig.engine().launch(rig.fleet, rig.of(replace(SPEC, devices=("/dev/only-here",))))
    assert "node1" not in str(caught.value)
    assert rig.states() == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpus": True}, "(could not select device driver.*; install NVIDIA's|unresolvable CDI .*; make the CDI)"),
        ({"groups": ("no-such-group",)}, "[Uu]nable to find group no-such-group.*; the image has no group of that"),
        ({"mounts": (Mount("/no/such/folder", "/x"),)}, "/no/such/folder.*; make the folder there"),
        ({"user": "nobody-here"}, "unable to find user nobody-here"),
        ({"shm_size": "much", "ipc": "private"}, "much"),
        ({"ulimits": ("memlock",)}, "memlock"),
    ],
)
def test_what_the_daemon_refuses_is_one_sentence(rig: Rig, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ContainerError, match=f"(?s)node1, node2: .*{said}") as caught:
        rig.engine().launch(rig.fleet, rig.of(replace(SPEC, **changes)))
    assert "\n" not in str(caught.value)
    assert "--help" not in str(caught.value)
    assert rig.states() == {}


def test_what_cannot_pass_exactly_is_refused_before_anything_is_done(rig: Rig) -> None:
    with pytest.raises(ContainerError, match=r"could not start the container: node1, node2: the image is '--priv"):
        rig.engine().launch(rig.fleet, rig.of(replace(SPEC, image="--privileged")))
    assert rig.states() == {}


def test_a_host_for_which_nothing_is_said_is_an_error(rig: Rig) -> None:
    with pytest.raises(ContainerError, match="node2: nothing is said about a container there"):
        rig.engine().launch(rig.fleet, {"node1": SPEC})


# what is passed on


def test_all_arguments_arrive(rig: Rig) -> None:
    host = rig.hosts[0]
    for each in rig.hosts:
        each.run(["mkdir", "-p", "/tmp/shown"], check=True)
    spec = replace(
        SPEC,
        mounts=(Mount("/tmp/shown", "/shown", ("ro", "private")), Mount("/tmp", "/with z", ("z", "ro"))),
        devices=("/dev/kfd", "/dev/dri", "/dev/null:/dev/nil:r"),
        network="host",
        ipc="private",
        privileged=rig.program == "docker",  # of one that has all devices Podman shows none
        cap_add=("SYS_PTRACE", "IPC_LOCK"),
        security_opt=("seccomp=unconfined", "label=disable"),
        groups=("video", "7777"),
        ulimits=("memlock=-1", "nofile=100:200"),
        user="1:2",
        shm_size="64m",
        labels={**SPEC.labels, "note": "a, b=c $(d) 'e' \"f\""},
    )
    engine = rig.engine()

    engine.launch(rig.fleet, rig.of(spec))

    seen = rig.inspected(host)
    asked = seen["HostConfig"]
    assert (asked["NetworkMode"], asked["Privileged"]) == ("host", spec.privileged)
    assert not rig.shares_memory(engine)
    assert (asked["ShmSize"], seen["Config"]["User"]) == (64 * 1024**2, "1:2")
    assert {each.removeprefix("CAP_") for each in asked["CapAdd"]} == {"SYS_PTRACE", "IPC_LOCK"}
    assert sorted(asked["SecurityOpt"]) == ["label=disable", "seccomp=unconfined"]
    assert asked["GroupAdd"] == ["video", "7777"]
    limits = {each["Name"].removeprefix("RLIMIT_").lower(): (each["Soft"], each["Hard"]) for each in asked["Ulimits"]}
    assert limits["nofile"] == (100, 200)
    assert "memlock" in limits  # Podman shows what the lab's runtime has made of it
    if rig.program == "docker":
        assert [each["CgroupPermissions"] for each in asked["Devices"]] == ["rwm", "rwm", "r"]
    shown = ("/dev/kfd", "/dev/dri/renderD128", "/dev/nil")
    assert rig.inside(engine, "node1", "stat", "--format=%F", *shown)["stdout"] == "character special file\n" * 3
    mounts = {each["Destination"]: (each["Source"], each["RW"], each["Propagation"]) for each in seen["Mounts"]}
    assert mounts["/shown"] == ("/tmp/shown", False, "private")
    assert mounts["/with z"][:2] == ("/tmp", False)
    assert seen["Config"]["Labels"]["note"] == "a, b=c $(d) 'e' \"f\""
    engine.remove()


@docker_only
def test_shared_memory_has_a_size_of_its_own_only_when_it_is_not_the_hosts(rig: Rig) -> None:
    engine = rig.engine()
    engine.launch(rig.fleet, rig.of(replace(SPEC, shm_size="64m")))
    assert rig.shares_memory(engine)
    engine.remove()


def test_environment_values_arrive_exactly_and_stand_in_no_argument(rig: Rig) -> None:
    env = {
        "PLAIN": "secret-1",
        "LINES": "one\ntwo\r\n\n",
        "SHELL_LIKE": "$(id) `id` \"q\" 'q' \\ $HOME # ! *",
        "EMPTY": "",
        "OUTER": "  blanks\t",
        "UNICODE": "größe 🙂",
        "EQUALS": "a=b=c",
        "LONG": "x" * 50_000,
        "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/with blank/$x",
        "LD_PRELOAD": "",
        "DOCKER_HOST": "tcp://nowhere",
        "https_proxy": "#http://user:secret-2@proxy",
        "AORTA_NODE": "mine",
    }
    if rig.program == "podman":  # it says no to these, as a line can hold no $ or # for every version of it
        env |= {"PATH": "/usr/local/bin:/usr/bin:/bin:/opt/with blank/x", "https_proxy": "http://user:secret-2@proxy"}
    engine = rig.engine()

    engine.launch(rig.fleet, rig.of(replace(SPEC, env=env)))

    seen = rig.inside(engine, "node1", "env", "-0")["stdout"]
    inside = dict(each.split("=", 1) for each in seen.split("\0") if each)
    assert {name: inside.get(name) for name in env} == env
    engine.remove()


def test_paths_arrive_exactly(rig: Rig) -> None:
    names = ["with, comma", "with:colon", 'with "quote"', "$(id) 'x' \\", "-dash", " blanks "]
    for number, name in enumerate(names):
        for host in rig.hosts:
            host.run(["mkdir", "-p", f"/tmp/{name}"], check=True)
            host.path(f"/tmp/{name}/proof").write_text(f"it is {number}", "utf-8")
    engine = rig.engine()

    engine.launch(
        rig.fleet, rig.of(replace(SPEC, mounts=tuple(Mount(f"/tmp/{name}", f"/in a/{name}") for name in names)))
    )

    for number, name in enumerate(names):
        assert rig.inside(engine, "node2", "cat", f"/in a/{name}/proof")["stdout"] == f"it is {number}"
    engine.remove()


# what happens meanwhile


@pytest.mark.parametrize("how", ["kill", "rm"])
def test_a_container_that_ends_meanwhile_is_noticed_by_who_enters_it_and_removed(rig: Rig, how: str) -> None:
    engine = rig.engine()
    engine.launch(rig.fleet, rig.specs)

    rig.by_hand(rig.hosts[0], *(["kill"] if how == "kill" else ["rm", "--force"]), NAME)

    said = rig.inside(engine, "node1", "true")
    assert said["exit_code"] not in {0, None}
    assert "ontainer" in said["stderr"]
    engine.remove()
    assert rig.states() == {}


@docker_only
def test_another_container_that_took_the_name_meanwhile_is_not_removed(rig: Rig) -> None:
    engine = rig.engine()
    engine.launch(rig.fleet, rig.specs)
    rig.by_hand(rig.hosts[0], "rm", "--force", NAME)
    other = rig.put(rig.hosts[0], {})

    engine.remove()

    assert rig.states() == {"node1": "running"}
    assert rig.inspected(rig.hosts[0])["Id"] == other


@pytest.mark.parametrize("how", ["close", "kill"])
def test_the_node_program_removes_what_nobody_else_did(rig: Rig, how: str) -> None:
    host = rig.hosts[0]
    state = f"/tmp/state-{rig.kind}-{how}"
    with fleet_on({"node1": host}, {"node1": state}) as fleet:
        rig.engine().launch(fleet, {"node1": SPEC})
        assert rig.states() == {"node1": "running"}
        if how == "kill":
            [pid] = [each.pid for each in host.processes() if f"{state}/{PROGRAM}" in each.argv]
            host.run(["kill", "-KILL", str(pid)], check=True)
            while not (lost := fleet.events(1)) or lost[0].kind != "lost":
                time.sleep(0.01)
            assert rig.states() == {"node1": "running"}
            reap(host, state, f"{state}/{PROGRAM}")
    assert rig.states() == {}


def test_a_container_that_was_removed_is_no_longer_to_be_undone(rig: Rig) -> None:
    host = rig.hosts[0]
    state = f"/tmp/state-{rig.kind}-undone"
    with fleet_on({"node1": host}, {"node1": state}) as fleet:
        engine = rig.engine()
        engine.launch(fleet, {"node1": SPEC})
        box = rig.inspected(host)["Id"]
        record = json.loads(host.path(f"{state}/groups.json").read_text("utf-8"))
        assert [(each["name"], each["argv"][-1]) for each in record["undo"]] == [(box, box)]
        engine.remove()
        record = json.loads(host.path(f"{state}/groups.json").read_text("utf-8"))
        assert record["undo"] == []


@docker_only
def test_a_container_can_hold_a_node_program(rig: Rig) -> None:
    engine = rig.engine()
    engine.launch(rig.fleet, rig.specs)
    said = rig.inside(engine, "node1", sys.executable, "-I", "-S", "-c", "import os; print(os.getpid())")
    assert said["exit_code"] == 0
    engine.remove()


# what `aorta clean` asks


def test_ours_are_listed_and_others_are_not(rig: Rig) -> None:
    engine = rig.engine()
    engine.launch(rig.fleet, {**rig.specs})
    rig.by_hand(rig.hosts[0], "create", "--name=foreign", IMAGE)
    rig.by_hand(rig.hosts[0], "kill", NAME)

    listed = containers_of(rig.fleet, program=rig.program)

    assert listed.failed == {}
    [found] = listed.good["node1"]
    assert (found.name, found.run, found.state_dir, found.state, found.image) == (NAME, RUN, STATE, "exited", rig.image)
    assert len(listed.good["node2"]) == 1
    engine.remove()
    assert containers_of(rig.fleet, ["node2"], rig.program).good == {"node2": []}
