"""Command: a client program run on hosts by their node programs, and which one it is on each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from pytest_aorta.containers.causes import NO_PROGRAM, NOT_PERMITTED, cause, not_done
from pytest_aorta.containers.driver import PROBE_TIMEOUT_S
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet

SLACK_S = 6.0  # a command that is over its deadline is ended first, then its answer comes
WHERE = ("sh", "-c", 'command -v "$1"', "sh")
SUDO = ("sudo", "-n")
Program = tuple[str, ...]
CLOSED = "this user may not use"
OPENED_BY = {
    "docker": ("not in the group that owns its socket", "add the user to the group docker"),
    "podman": (
        "it does not run there without root",
        "log in as root, install uidmap and give the user subordinate ids",
    ),
}


@dataclass(frozen=True, slots=True)
class Command:
    """One argument list; `given` is its standard input."""

    argv: tuple[str, ...]
    timeout_s: float
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    given: str = field(default="", repr=False)

    @property
    def words(self) -> str:
        """Its program and what that is to do, without options and names: `docker container inspect`."""
        first, *rest = self.argv[2:] if self.argv[:2] == SUDO else self.argv
        return " ".join([first, *takewhile(str.isalpha, rest)])


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended that could be run."""

    command: Command
    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool

    @property
    def why_failed(self) -> str:
        """The cause as one sentence; nothing when it did what was asked."""
        if self.timed_out:
            return not_done(self.command.words, self.command.timeout_s, self.stderr)
        if self.exit_code == 0:
            return ""
        if self.exit_code is None and not self.stderr.strip():
            return "the client program was killed"
        return cause(self.stderr or self.stdout)


def ended(fleet: Fleet, commands: Mapping[str, Command]) -> Outcome[Ended]:
    """Run commands and wait for all of them; those that could not be run are failed."""
    answers = fleet.perform({host: _ask(command) for host, command in commands.items()})
    return Outcome(
        {
            host: Ended(
                command=commands[host],
                exit_code=answer["exit_code"],
                stdout=answer["stdout"],
                stderr=answer["stderr"],
                timed_out=bool(answer["timed_out"]),
            )
            for host, answer in answers.items()
        },
        {host: error.reason for host, error in answers.failed.items()},
    )


def outputs(fleet: Fleet, commands: Mapping[str, Command]) -> Outcome[str]:
    """Run commands; gives the standard output of those that did what was asked."""
    return written(ended(fleet, commands))


def written(outcome: Outcome[Ended]) -> Outcome[str]:
    """Give the standard output of those that did what was asked."""
    whys = {host: each.why_failed for host, each in outcome.good.items()}
    return Outcome(
        {host: each.stdout for host, each in outcome.good.items() if not whys[host]},
        {**outcome.failed, **{host: why for host, why in whys.items() if why}},
    )


def programs(fleet: Fleet, hosts: Iterable[str], name: str) -> Outcome[Program]:
    """Find out how the program is called on each host: as it is, or, where it is closed to us, by sudo."""
    plain = {host: _version((name,)) for host in hosts}
    outcome = ended(fleet, plain)
    found: dict[str, Program] = {}
    failed = {host: _said_absent(why, name) for host, why in outcome.failed.items()}
    closed = {}
    for host, each in outcome.good.items():
        why = each.why_failed
        if not why:
            found[host] = (name,)
        elif NOT_PERMITTED.search(each.stderr):
            closed[host] = _version((*SUDO, name))
        else:
            failed[host] = why
    by_sudo = outputs(fleet, closed)
    found |= dict.fromkeys(by_sudo.good, (*SUDO, name))
    closed_by, next_step = OPENED_BY[name]
    paths = outputs(fleet, {host: Command((*WHERE, name), PROBE_TIMEOUT_S) for host in by_sudo.failed}).good
    for host, why in by_sudo.failed.items():
        failed[host] = (
            f"{CLOSED} {name} ({closed_by}), and sudo does not help: {why}; "
            f"{next_step}, or allow `NOPASSWD: {paths.get(host, '').strip() or name}` in sudoers"
        )
    return Outcome(found, failed)


def is_absent(why: str) -> bool:
    """Tell whether a host failed because it has no such program."""
    return bool(NO_PROGRAM.search(why))


def is_closed(why: str) -> bool:
    """Tell whether a host failed because the login user may not use the engine there."""
    return why.startswith(CLOSED)


def _version(program: Program) -> Command:
    # docker's server, so that a daemon that is down is seen here; podman has none
    shown = "{{.Client.Version}}" if program[-1] == "podman" else "{{.Server.Version}}"
    return Command((*program, "version", f"--format={shown}"), PROBE_TIMEOUT_S)


def _said_absent(why: str, name: str) -> str:
    return f"{why}; install {name} there, or set container.runtime.name" if is_absent(why) else why


def _ask(command: Command) -> Ask:
    args: dict[str, object] = {"argv": list(command.argv), "timeout_s": command.timeout_s}
    if command.env:
        args["env"] = dict(command.env)
    if command.given:
        args["input"] = command.given
    return Ask("run", args, command.timeout_s + SLACK_S)
