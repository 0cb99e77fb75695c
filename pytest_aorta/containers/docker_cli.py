"""The client programs of docker and podman, run on each host by its node program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pytest_aorta.containers import driver
from pytest_aorta.containers.arguments import IDLE, INSPECTED, create_arguments, entering, removing
from pytest_aorta.containers.causes import GONE, NO_IMAGE
from pytest_aorta.containers.commands import Command, Ended, Program, ended, is_absent, outputs, programs, written
from pytest_aorta.containers.environment import passed
from pytest_aorta.containers.lifecycle import Containers
from pytest_aorta.containers.lifetime import Found
from pytest_aorta.containers.logins import Logins
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.containers.progress import Progress, told_meanwhile, untold
from pytest_aorta.containers.spec import RUN_LABEL, Lifetime, Spec
from pytest_aorta.fleet.fleet import Fleet

ProgramName = Literal["docker", "podman"]


class DockerCli(Containers):
    """The engine that needs nothing but the client program on every host."""

    def __init__(
        self, lifetime: Lifetime = "per_run", program: ProgramName = "docker", progress: Progress = untold
    ) -> None:
        super().__init__(program, CliDriver(program, progress), lifetime)


class CliDriver:
    """One argument list per thing asked, the same on all hosts but for the way the program is called."""

    def __init__(self, program: ProgramName, progress: Progress = untold) -> None:
        self._name = program
        self._progress = progress
        self._fleet: Fleet | None = None
        self._programs: dict[str, Program] = {}
        self._silent: set[str] = set()

    def reach(self, fleet: Fleet, hosts: Iterable[str] | None = None) -> Outcome[Program]:
        """Decide, once for each host, whether sudo stands before the program."""
        self._fleet = fleet
        found = programs(fleet, fleet.hosts if hosts is None else hosts, self._name)
        self._programs |= found.good
        return found

    def find(self, names: Mapping[str, str]) -> Outcome[Found | None]:
        """Look for names: an empty list is sure, whereas `inspect` fails alike for many reasons."""
        found = self.listed({host: f"name=^/?{re.escape(name)}$" for host, name in names.items()})
        return Outcome({host: each[0] if each else None for host, each in found.good.items()}, found.failed)

    def inspect(self, ids: Mapping[str, str]) -> Outcome[Found | None]:
        """Look at one container on each host."""
        found = self._inspected({host: [container_id] for host, container_id in ids.items()})
        return Outcome({host: each[0] if each else None for host, each in found.good.items()}, found.failed)

    def listed(self, filters: Mapping[str, str]) -> Outcome[list[Found]]:
        """Give all containers that a filter lets through, running or not."""
        argv = ("ps", "--all", "--no-trunc", "--quiet")
        ids = self._outputs({host: (*argv, f"--filter={each}") for host, each in filters.items()})
        found = self._inspected({host: text.split() for host, text in ids.good.items() if text.split()})
        none: dict[str, list[Found]] = {host: [] for host, text in ids.good.items() if not text.split()}
        return Outcome({**none, **found.good}, {**ids.failed, **found.failed})

    def has_image(self, images: Mapping[str, str]) -> Outcome[bool]:
        """Inspect images, which knows digests as well as tags."""
        argv = ("image", "inspect", "--format={{.Id}}")
        outcome = self._ended({host: (*argv, image) for host, image in images.items()})
        absent = {host for host, each in outcome.good.items() if each.exit_code and NO_IMAGE.search(each.stderr)}
        good, failed = _divided(outcome, excused=absent)
        return Outcome({host: host not in absent for host in good}, failed)

    def pull(self, specs: Mapping[str, Spec]) -> Outcome[None]:
        """Pull, by a login of its own where one is given."""
        for host, spec in specs.items():
            self._progress(f"{host}: pulling {spec.image}, which is not there yet")
        logins = Logins(self._on, self._name, {host: self._programs[host] for host in specs})
        try:
            entered = logins.enter({host: spec.login for host, spec in specs.items() if spec.login is not None})
            commands = {
                host: Command((*logins.pulling(host), "--quiet", spec.image), driver.PULL_TIMEOUT_S)
                for host, spec in specs.items()
                if host not in entered.failed
            }
            outcome = told_meanwhile(lambda: outputs(self._on, commands), list(commands), self._progress)
        finally:
            logins.leave()
        return Outcome(dict.fromkeys(outcome.good), {**entered.failed, **outcome.failed})

    def create(self, specs: Mapping[str, Spec]) -> Outcome[str]:
        """Make containers that do nothing but wait."""
        commands, refused = {}, {}
        for host, spec in specs.items():
            program = self._programs[host]
            env = passed(spec.env, self._name, through_sudo=len(program) > 1)
            argv = (*program, "create", *env.argv, *create_arguments(spec, self._name), spec.image, *IDLE[1:])
            if env.refused:
                refused[host] = "; ".join(env.refused)
            else:
                commands[host] = Command(argv, driver.CREATE_TIMEOUT_S, env.env, env.lines)
        outcome = outputs(self._on, commands)
        return Outcome({host: text.split()[-1] for host, text in outcome.good.items()}, {**outcome.failed, **refused})

    def start(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Start what was made."""
        return self._done({host: ("start", each) for host, each in ids.items()}, driver.START_TIMEOUT_S)

    def stop(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Kill the processes: the first one, a sleep, heeds no other signal."""
        return self._done({host: ("kill", each) for host, each in ids.items()}, driver.REMOVE_TIMEOUT_S)

    def go_on(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Unpause."""
        return self._done({host: ("unpause", each) for host, each in ids.items()}, driver.PROBE_TIMEOUT_S)

    def last_words(self, ids: Mapping[str, str]) -> Outcome[str]:
        """Read the end of the log, where both its streams are told apart only by the client's own."""
        ends = self._ended({host: ("logs", f"--tail={driver.LAST_LINES}", each) for host, each in ids.items()})
        good, failed = _divided(ends, excused=set())
        return Outcome({host: each.stdout + each.stderr for host, each in good.items()}, failed)

    def remove(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Remove containers and the nameless volumes that the image gave them."""
        argv = {host: removing(each) for host, each in ids.items()}
        outcome = self._ended(argv, driver.REMOVE_TIMEOUT_S)
        gone = {host for host, each in outcome.good.items() if GONE.search(each.stderr)}
        good, failed = _divided(outcome, excused=gone)
        return Outcome(dict.fromkeys(good), failed)

    def removal(self, host: str, container_id: str) -> list[str]:
        """Give what the host can run by itself."""
        return [*self._programs[host], *removing(container_id)]

    def inside(self, host: str, container_id: str, argv: Sequence[str]) -> list[str]:
        """Give the `exec` whose input and output are those of the process inside."""
        return [*self._programs[host], *entering(container_id, argv)]

    @property
    def _on(self) -> Fleet:
        if self._fleet is None:
            raise RuntimeError("a driver was used before it reached for its hosts")
        return self._fleet

    def _inspected(self, ids: Mapping[str, Sequence[str]]) -> Outcome[list[Found]]:
        argv = ("container", "inspect", f"--format={INSPECTED}")
        outcome = self._ended({host: (*argv, *each) for host, each in ids.items()})
        gone = {host for host, each in outcome.good.items() if each.exit_code and GONE.search(each.stderr)}
        good, failed = _divided(outcome, excused=gone)
        return Outcome({host: _read(each.stdout) for host, each in good.items()}, failed)

    def _done(self, argvs: Mapping[str, Sequence[str]], timeout_s: float) -> Outcome[None]:
        outcome = self._outputs(argvs, timeout_s)
        return Outcome(dict.fromkeys(outcome.good), outcome.failed)

    def _outputs(self, argvs: Mapping[str, Sequence[str]], timeout_s: float = driver.PROBE_TIMEOUT_S) -> Outcome[str]:
        return written(self._ended(argvs, timeout_s))

    def _ended(self, argvs: Mapping[str, Sequence[str]], timeout_s: float = driver.PROBE_TIMEOUT_S) -> Outcome[Ended]:
        limits_s = {host: driver.SILENT_TIMEOUT_S if host in self._silent else timeout_s for host in argvs}
        commands = {host: Command((*self._programs[host], *argv), limits_s[host]) for host, argv in argvs.items()}
        outcome = ended(self._on, commands)
        for host, each in outcome.good.items():
            (self._silent.add if each.timed_out else self._silent.discard)(host)
        return outcome


def _divided(outcome: Outcome[Ended], excused: set[str]) -> tuple[dict[str, Ended], dict[str, str]]:
    whys = {host: each.why_failed for host, each in outcome.good.items() if host not in excused}
    failed = {**outcome.failed, **{host: why for host, why in whys.items() if why}}
    return {host: each for host, each in outcome.good.items() if host not in failed}, failed


def containers_of(
    fleet: Fleet, hosts: Iterable[str] | None = None, program: ProgramName = "docker"
) -> Outcome[list[Found]]:
    """List the containers that we have started, running or not; a host without the program has none."""
    asked = list(fleet.hosts if hosts is None else hosts)
    client = CliDriver(program)
    reached = client.reach(fleet, asked)
    listed = client.listed(dict.fromkeys(reached.good, f"label={RUN_LABEL}"))
    absent: dict[str, list[Found]] = {host: [] for host, why in reached.failed.items() if is_absent(why)}
    failed = {host: why for host, why in reached.failed.items() if host not in absent}
    return Outcome({**absent, **listed.good}, {**failed, **listed.failed})


def _read(text: str) -> list[Found]:
    found = []
    for line in text.splitlines():
        if line.startswith('["'):  # "[]": what some versions print beside an error
            container_id, name, state, image, image_id, labels, exit_code = json.loads(line)
            found.append(Found(container_id, name.removeprefix("/"), state, image, image_id, labels or {}, exit_code))
    return found
