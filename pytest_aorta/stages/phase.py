"""A phase: one long command on every host, followed to its end or to its deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_aorta.config.redact import scrub_line
from pytest_aorta.errors import FleetError, HostError
from pytest_aorta.fleet.ask import Ask, Event
from pytest_aorta.fleet.parallel import in_parallel
from pytest_aorta.run.context import RunContext, log

POLL_SECONDS = 0.5
GRACE_SECONDS = 10
LOG_SECONDS = 3600
MAX_TOLD_LINES = 5000
LOOK_AT_THEM = "look whether these processes sleep uninterruptibly (state D of ps), and in which driver or file system"


@dataclass(slots=True)
class Phase:
    """What is known of a running phase: exit codes by host as they come, and why it was given up, if it was."""

    name: str
    hosts: tuple[str, ...]
    started_at: float = field(default_factory=time.monotonic)
    exits: dict[str, int | None] = field(default_factory=dict)
    signals: dict[str, str | None] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    refused: dict[str, HostError] = field(default_factory=dict)
    unended: dict[str, HostError] = field(default_factory=dict)
    given_up: str = ""
    failed_at: float | None = None
    left_at: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the launch, for as long as it is followed."""
        return (self.left_at or time.monotonic()) - self.started_at

    @property
    def running(self) -> list[str]:
        """Hosts of which neither an end nor a loss is known."""
        return [host for host in self.hosts if host not in self.exits and host not in self.lost]

    @property
    def over(self) -> bool:
        """Tell whether every host has ended."""
        return not self.running

    @property
    def failed(self) -> dict[str, int]:
        """Hosts whose command ended badly, with exit code or negative signal number."""
        return {host: code for host, code in self.exits.items() if code}


@dataclass(slots=True)
class Talk:
    """What the hosts of a phase print, put into the stage's log as long as that stays readable."""

    num_told: int = 0

    def say(self, host: str, line: str) -> None:
        """Log a line."""
        self.num_told += 1
        if self.num_told <= MAX_TOLD_LINES:
            log.info("%s: %s", host, line)
        elif self.num_told == MAX_TOLD_LINES + 1:
            log.info("%s: more than %d lines; the rest stands in the phase's own log only", host, MAX_TOLD_LINES)


def fail_fast(phase: Phase, grace_s: float, now: float, noticed: Sequence[str] = ()) -> None:
    """Give the phase up when others still run a grace after the first failure, be it only `noticed` on some hosts."""
    ended = phase.failed or phase.lost
    if not (ended or noticed):
        return
    phase.failed_at = phase.failed_at or now
    if now - phase.failed_at > grace_s:
        where = "" if ended else f" (on {', '.join(noticed)})"
        still = ", ".join(phase.running)
        phase.given_up = f"{still} still ran {grace_s:g} s after the first failure{where} and was ended"


def start_phase(
    run: RunContext,
    name: str,
    commands: Mapping[str, Sequence[str]],
    *,
    cwd: Mapping[str, str],
    env: Mapping[str, str],
    logs: Mapping[str, str],
) -> Phase:
    """Start a command on each host in a process group of its own, its output followed."""
    for host, argv in commands.items():
        log.info("%s: %s: %s", name, host, " ".join(argv))
    phase = Phase(name, tuple(commands))
    run.on_teardown(f"{name} logs kept", lambda: bring_logs(run, name, logs))
    run.on_teardown(f"{name} stopped", lambda: _stop_all(run, name), is_inside=True)
    run.ask_inside(
        {
            host: Ask(
                "start",
                {
                    "name": name,
                    "argv": list(argv),
                    "cwd": cwd[host],
                    "env": dict(env),
                    "log": logs[host],
                    "follow": True,
                },
            )
            for host, argv in commands.items()
        }
    )
    return phase


def follow(
    run: RunContext,
    phase: Phase,
    *,
    timeout_s: float,
    on_lines: Callable[[str, list[str]], None],
    each_round: Callable[[Phase], None] | None = None,
) -> None:
    """Follow a phase until every host has ended, it is given up, or `timeout_s` is over.

    `each_round` may set `phase.given_up`; whoever still runs then is left to `stop_phase`.
    """
    while not phase.over and not phase.given_up:
        for event in run.inside.events(POLL_SECONDS):
            _take(phase, event, on_lines)
        if phase.elapsed_s > timeout_s and not phase.over:
            phase.given_up = f"no end within timeout_seconds={timeout_s:g}"
        if each_round is not None and not phase.over and not phase.given_up:
            each_round(phase)
    phase.left_at = time.monotonic()


def stop_phase(run: RunContext, name: str) -> dict[str, HostError]:
    """End a phase's process groups on every host: TERM, a grace, KILL; harmless when they have ended.

    Returns:
        By host, which processes would not die.
    """
    run.rouse()
    asks = Ask("stop", {"names": [name], "grace_s": GRACE_SECONDS}, timeout_s=GRACE_SECONDS + 20)
    answers = run.inside.perform(asks)
    for host, error in answers.failed.items():
        log.warning("%s: %s may still run: %s", host, name, error.reason)
    return {
        host: HostError(host, f"{name}: processes {answer['left']} would not die, though killed")
        for host, answer in answers.items()
        if answer["left"]
    }


def _stop_all(run: RunContext, name: str) -> None:
    if unended := stop_phase(run, name):
        raise FleetError(unended)


def bring_logs(run: RunContext, name: str, logs: Mapping[str, str]) -> dict[str, str]:
    """Copy a phase's log of every host into the run folder, unless it is there.

    Returns:
        By artifact name (`<phase>_log_node_<rank>`), the path relative to the run folder.
    """
    paths = {host.name: run.folder.phase_log(name, host.rank) for host in run.group if host.name in logs}
    calls = {
        host: lambda host=host, path=path: _bring_log(run, host, logs[host], path)
        for host, path in paths.items()
        if not path.exists()
    }
    for host, error in in_parallel(f"bringing the {name} log", calls, LOG_SECONDS).items():
        log.warning("%s log of %s was not brought back: %s", name, host, error)
    ranks = {host.name: host.rank for host in run.group}
    there = {f"{name}_log_node_{ranks[host]}": path for host, path in paths.items() if path.exists()}
    return {artifact: run.folder.relative(path) for artifact, path in there.items()}


def _bring_log(run: RunContext, host: str, remote: str, local: Path) -> None:
    lost = run.fleet.loss(host)
    if lost is not None and lost.is_cut:  # connecting anew would take its time and fail
        raise lost
    raw = local.with_name(f".{local.name}.raw")
    try:
        run.fleet.fetch(host, remote, raw)
        scrub_files([raw], run.folder.secrets)
        raw.replace(local)
    finally:
        raw.unlink(missing_ok=True)


def scrub_files(paths: Iterable[Path], secrets: tuple[str, ...]) -> None:
    """Take secrets out of logs in place: a workload may print its environment. If one fails, the rest is removed.

    Raises:
        OSError: one could not be written.
    """
    left = list(paths) if secrets else []
    try:
        while left:
            _scrub(left[-1], secrets)
            left.pop()
    finally:
        for path in left:
            path.unlink(missing_ok=True)


def _scrub(path: Path, secrets: tuple[str, ...]) -> None:
    partial = path.with_name(f".{path.name}.part")
    try:
        with (
            path.open(encoding="utf-8", errors="replace", newline="") as lines,
            partial.open("w", encoding="utf-8", newline="") as kept,
        ):
            kept.writelines(scrub_line(line, secrets) for line in lines)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _take(phase: Phase, event: Event, on_lines: Callable[[str, list[str]], None]) -> None:
    if event.kind == "lost":
        if event.host in phase.exits:
            return
        phase.lost[event.host] = str(event.data.get("message", "its node program ended"))
        return
    if event.data.get("name") != phase.name:
        return
    if event.kind == "lines":
        on_lines(event.host, [str(line) for line in event.data["lines"]])
    else:
        phase.exits[event.host] = _code(event)


def _code(event: Event) -> int | None:
    code, number = event.data.get("exit_code"), event.data.get("signal")
    return -int(number) if number else code
