"""Command: a client program run on hosts by their node programs, and which one it is on each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytest_aorta.containers.causes import NO_PROGRAM, NOT_PERMITTED, cause
from pytest_aorta.containers.driver import PROBE_TIMEOUT_S
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet

SLACK_S = 6.0  # a command that is over its deadline is ended first, then its answer comes
WHERE = ("sh", "-c", 'command -v "$1"', "sh")
Program = tuple[str, ...]
_SILENT = "; see whether the daemon answers at all (`docker info` or `podman info` there)"
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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended that could be run."""

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool

    def why_failed(self, timeout_s: float) -> str:
        """Give the cause as one sentence; nothing when it did what was asked."""
        if self.timed_out:
            said = f", its last words: {cause(self.stderr)}" if self.stderr.strip() else _SILENT
            return f"it was not done within {timeout_s:g} s{said}"
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
            host: Ended(answer["exit_code"], answer["stdout"], answer["stderr"], bool(answer["timed_out"]))
            for host, answer in answers.items()
        },
        {host: error.reason for host, error in answers.failed.items()},
    )


def outputs(fleet: Fleet, commands: Mapping[str, Command]) -> Outcome[str]:
    """Run commands; gives the standard output of those that did what was asked."""
    outcome = ended(fleet, commands)
    whys = {host: each.why_failed(commands[host].timeout_s) for host, each in outcome.good.items()}
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
        why = each.why_failed(PROBE_TIMEOUT_S)
        if not why:
            found[host] = (name,)
        elif NOT_PERMITTED.search(each.stderr):
            closed[host] = _version(("sudo", "-n", name))
        else:
            failed[host] = why
    by_sudo = outputs(fleet, closed)
    found |= dict.fromkeys(by_sudo.good, ("sudo", "-n", name))
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
