"""Docker's own package over the socket of a daemon that this process can open."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import docker
from docker.errors import DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env, parse_repository_tag
from requests.exceptions import Timeout
from urllib3.exceptions import HTTPError

from pytest_aorta.containers import driver
from pytest_aorta.containers.arguments import entering, removing
from pytest_aorta.containers.body import create_body
from pytest_aorta.containers.causes import GONE, cause, not_done
from pytest_aorta.containers.commands import Command, Program, outputs, programs
from pytest_aorta.containers.lifecycle import Containers
from pytest_aorta.containers.lifetime import Found
from pytest_aorta.containers.logins import passwords
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.containers.progress import Layers, Progress, untold
from pytest_aorta.containers.spec import Lifetime, Spec
from pytest_aorta.errors import CommandFailed, ContainerError, TimedOut
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.parallel import in_parallel

T = TypeVar("T")
DEFAULT_URL = "unix:///var/run/docker.sock"
KNOCK_TIMEOUT_S = 5.0
SLACK_S = 5.0  # the package's own deadline, for each read, comes first where it holds


class DockerSdk(Containers):
    """The engine for a daemon of this machine; `urls` says where those of other hosts listen."""

    def __init__(
        self,
        lifetime: Lifetime = "per_run",
        urls: Mapping[str, str] | None = None,
        progress: Progress = untold,
    ) -> None:
        super().__init__("docker", SdkDriver(urls or {}, progress), lifetime)


class SdkDriver:
    """One request per thing asked, each by a client of its own: one that hangs holds up no other."""

    def __init__(self, urls: Mapping[str, str], progress: Progress = untold) -> None:
        self._urls = urls
        self._progress = progress
        self._fleet: Fleet | None = None
        self._programs: dict[str, Program] = {}
        self._silent: set[str] = set()

    def reach(self, fleet: Fleet) -> Outcome[Program]:
        """Ask who the daemon is, here and by the client program on the host, which has to enter and to undo."""
        self._fleet = fleet
        here = self._each("docker info", fleet.hosts, driver.PROBE_TIMEOUT_S, _daemon_id)
        found = programs(fleet, here.good, "docker")
        commands = {host: (*program, "info", "--format={{.ID}}") for host, program in found.good.items()}
        there = outputs(fleet, {host: Command(argv, driver.PROBE_TIMEOUT_S) for host, argv in commands.items()})
        others = {
            host: "the docker client there speaks to another daemon than this process does; check DOCKER_HOST, "
            "or set the engine that uses the client program"
            for host, text in there.good.items()
            if text.strip() != here.good[host]
        }
        self._programs = {host: found.good[host] for host in there.good if host not in others}
        return Outcome(self._programs, {**here.failed, **found.failed, **there.failed, **others})

    def find(self, names: Mapping[str, str]) -> Outcome[Found | None]:
        """Look for names in the list of all containers."""

        def find(api: docker.APIClient, host: str) -> Found | None:
            ids = api.containers(all=True, quiet=True, filters={"name": f"^/?{re.escape(names[host])}$"})
            return _inspected(api, ids[0]["Id"]) if ids else None

        return self._each("docker ps", names, driver.PROBE_TIMEOUT_S, find)

    def inspect(self, ids: Mapping[str, str]) -> Outcome[Found | None]:
        """Look at one container on each host."""
        return self._each(
            "docker container inspect", ids, driver.PROBE_TIMEOUT_S, lambda api, host: _inspected(api, ids[host])
        )

    def has_image(self, images: Mapping[str, str]) -> Outcome[bool]:
        """Inspect images."""

        def has(api: docker.APIClient, host: str) -> bool:
            try:
                api.inspect_image(images[host])
            except ImageNotFound:
                return False
            return True

        return self._each("docker image inspect", images, driver.PROBE_TIMEOUT_S, has)

    def pull(self, specs: Mapping[str, Spec]) -> Outcome[None]:
        """Pull; a login goes with the request and is kept nowhere."""
        logins = {host: spec.login for host, spec in specs.items() if spec.login is not None}
        found = passwords(self._fleet, logins) if self._fleet is not None else Outcome[str]({}, {})

        def pull(api: docker.APIClient, host: str) -> None:
            image, login = specs[host].image, specs[host].login
            repository, tag = parse_repository_tag(image)
            auth = None
            if login is not None:
                auth = {"username": login.username, "password": found.good[host], "serveraddress": login.server}
            self._progress(f"{host}: pulling {image}, which is not there yet")
            layers = Layers(f"{host}: pulling {image}", self._progress)
            until_s = time.monotonic() + driver.PULL_TIMEOUT_S
            for event in api.pull(repository, tag or "latest", stream=True, decode=True, auth_config=auth):
                if "error" in event:
                    raise DockerException(str(event["error"]))
                if time.monotonic() > until_s:
                    raise DockerException(f"it was not done within {driver.PULL_TIMEOUT_S:g} s")
                layers.take(event)

        ready = [host for host in specs if host not in found.failed]
        outcome = self._each("docker pull", ready, driver.PULL_TIMEOUT_S, pull)
        return Outcome(outcome.good, {**found.failed, **outcome.failed})

    def create(self, specs: Mapping[str, Spec]) -> Outcome[str]:
        """Make containers that do nothing but wait."""

        def create(api: docker.APIClient, host: str) -> str:
            spec = specs[host]
            return str(api.create_container_from_config(create_body(spec), spec.name)["Id"])

        return self._each("docker create", specs, driver.CREATE_TIMEOUT_S, create)

    def start(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Start what was made."""
        return self._each("docker start", ids, driver.START_TIMEOUT_S, lambda api, host: api.start(ids[host]))

    def stop(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Kill the processes: the first one, a sleep, heeds no other signal."""
        return self._each("docker kill", ids, driver.REMOVE_TIMEOUT_S, lambda api, host: api.kill(ids[host]))

    def go_on(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Unpause."""
        return self._each("docker unpause", ids, driver.PROBE_TIMEOUT_S, lambda api, host: api.unpause(ids[host]))

    def last_words(self, ids: Mapping[str, str]) -> Outcome[str]:
        """Read the end of the log."""

        def read(api: docker.APIClient, host: str) -> str:
            return bytes(api.logs(ids[host], tail=driver.LAST_LINES)).decode("utf-8", "replace")

        return self._each("docker logs", ids, driver.PROBE_TIMEOUT_S, read)

    def remove(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Remove containers and the nameless volumes that the image gave them."""

        def remove(api: docker.APIClient, host: str) -> None:
            try:
                api.remove_container(ids[host], v=True, force=True)
            except DockerException as error:
                if not GONE.search(_words(error)):
                    raise

        return self._each("docker rm", ids, driver.REMOVE_TIMEOUT_S, remove)

    def removal(self, host: str, container_id: str) -> list[str]:
        """Give what the host can run by itself."""
        return [*self._programs[host], *removing(container_id)]

    def inside(self, host: str, container_id: str, argv: Sequence[str]) -> list[str]:
        """Give the `exec` of the client program: the package has nothing that a host could start."""
        return [*self._programs[host], *entering(container_id, argv)]

    def _each(self, words: str, hosts: Iterable[str], timeout_s: float, do: Callable[[Any, str], T]) -> Outcome[T]:
        """Do something on all hosts at once, within a deadline that holds whatever the package waits for.

        `words` call it as the client program would.
        """
        good: dict[str, T] = {}
        limits_s = {host: driver.SILENT_TIMEOUT_S if host in self._silent else timeout_s for host in hosts}

        def call(host: str) -> None:
            try:
                where = {"base_url": self._urls[host]} if host in self._urls else kwargs_from_env()
                _knock(where.get("base_url") or DEFAULT_URL)
                with contextlib.closing(docker.APIClient(**where, version="auto", timeout=limits_s[host])) as api:
                    good[host] = do(api, host)
            except Timeout as error:
                raise TimedOut(host, not_done(words, limits_s[host])) from error
            except (DockerException, HTTPError, OSError) as error:
                raise CommandFailed(host, cause(_words(error))) from error
            except ContainerError as error:
                raise CommandFailed(host, str(error)) from error

        longest_s = max(limits_s.values(), default=timeout_s)
        errors = in_parallel(words, {host: partial(call, host) for host in limits_s}, longest_s + SLACK_S)
        failed = {host: error.reason for host, error in errors.items()}
        self._silent -= limits_s.keys()
        self._silent |= {host for host, error in errors.items() if isinstance(error, TimedOut)}
        return Outcome({host: good[host] for host in hosts if host in good and host not in failed}, failed)


def _knock(url: str) -> None:
    """Open the daemon's socket and close it: the package says less about one that is not there, and leaks its end."""
    path = url.removeprefix("unix://")
    if path == url:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(KNOCK_TIMEOUT_S)
        try:
            knocking.connect(path)
        except OSError as error:
            raise ContainerError(
                cause(f"cannot connect to the docker daemon at {path}: {error.strerror or error}")
            ) from error


def _daemon_id(api: docker.APIClient, host: str) -> str:
    return str(api.info()["ID"])


def _words(error: Exception) -> str:
    explanation = getattr(error, "explanation", None)
    return str(explanation or error)


def _inspected(api: docker.APIClient, container_id: str) -> Found | None:
    try:
        seen = api.inspect_container(container_id)
    except NotFound:
        return None
    config, state = seen["Config"], seen["State"]
    return Found(
        container_id=seen["Id"],
        name=seen["Name"].removeprefix("/"),
        state=state["Status"],
        image=config["Image"],
        image_id=seen["Image"],
        labels=config["Labels"] or {},
        exit_code=state["ExitCode"],
    )
