"""Watching a running workload: steps, ranks, stalls, and who failed first."""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_aorta.config.settings import Settings
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.reporting.terminal import Pulse, progress_text
from pytest_aorta.reporting.text import clean
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.secrecy import clean_line
from pytest_aorta.stages.command import uses_torchrun
from pytest_aorta.stages.failures import RANK_MARK, Failures
from pytest_aorta.stages.phase import POLL_SECONDS, Phase, Talk, fail_fast
from pytest_aorta.stages.stacks import Source, Stacks, where_they_stand

MEDIANS_OF_SILENCE = 10
# A day: what claims to be longer is no step time and must not switch the watch for stalls off.
MAX_STEP_MS = 86_400_000
RANKS_EVERY_SECONDS = 5.0
STACKS_WITHIN_SECONDS = 5.0
_HOW_TO_ANSWER = " (a script of your own gives them by faulthandler.register(signal.SIGUSR1))"
SILENCE_SAID_SECONDS = 30.0


@dataclass(slots=True)
class Watch:
    """What a running workload has shown so far."""

    settings: Settings
    first_step_at: float | None = None
    last_step_at: float | None = None
    step: int | None = None
    max_steps: int | None = None
    step_ms: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    last_beat: dict[str, Any] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    rank_hosts: set[str] = field(default_factory=set)
    threads: dict[str, set[int]] = field(default_factory=dict)
    failures: dict[str, Failures] = field(default_factory=dict)
    stacks: Stacks = field(default_factory=Stacks)
    stalled: str = ""
    has_stacks: bool = False
    said_at: float = 0.0
    ranks_at: float = 0.0
    last_line_at: float = field(default_factory=time.monotonic)
    talk: Talk = field(default_factory=Talk)
    secrets: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Look the secrets up once: every line is held against them."""
        self.secrets = self.settings.secrets()

    def lines(self, host: str, lines: list[str]) -> None:
        """Take complete log lines of a host."""
        failures = self.failures.setdefault(host, Failures())
        self.last_line_at = time.monotonic()
        for raw in lines:
            line = clean(clean_line(raw, self.secrets))
            mark = RANK_MARK.match(line)
            text = line[mark.end() :] if mark else line
            if text.startswith("{") and self._beat(text):
                continue
            self.talk.say(host, line)
            failures.line(line)
            self.stacks.line(Source(host, int(mark[1]) if mark else None), text)

    def _beat(self, text: str) -> bool:
        """Take a heartbeat, or tell that the line is none."""
        try:
            beat = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(beat, dict) or beat.get("aorta") != "step":
            return False
        self.last_beat = beat
        self.last_step_at = time.monotonic()
        self.first_step_at = self.first_step_at or self.last_step_at
        if isinstance(step := beat.get("step"), int):
            self.step = step
        if isinstance(most := beat.get("max_steps"), int):
            self.max_steps = most
        if isinstance(ms := beat.get("step_ms"), (int, float)) and 0 <= ms < MAX_STEP_MS:
            self.step_ms.append(float(ms))
        return True

    @property
    def heeds_notices(self) -> bool:
        """Tell whether torchrun's notice of a failed rank is final: it is ours, and does not start ranks again."""
        arguments = " ".join(self.settings.config.multi_node.extra_torchrun_args).replace("_", "-")
        restarts = "--max-restarts" in arguments or "PET_MAX_RESTARTS" in self.settings.environment
        return uses_torchrun(self.settings) and not restarts

    @property
    def noticed(self) -> list[str]:
        """Hosts where torchrun has said that a rank failed, if that is final."""
        return [host for host, seen in self.failures.items() if seen.noticed is not None] if self.heeds_notices else []

    @property
    def stall_limit_s(self) -> float:
        """Seconds without a step after which the run counts as hung: stall_seconds, or 10 median steps if longer."""
        median_s = statistics.median(self.step_ms) / 1000 if self.step_ms else 0.0
        return max(float(self.settings.config.stall_seconds), MEDIANS_OF_SILENCE * median_s)

    @property
    def silent_s(self) -> float:
        """Seconds since the last step, or since the last line of a workload that does not tell its steps."""
        return time.monotonic() - (self.last_step_at or self.last_line_at)

    def progress_line(self, phase: Phase, silent_s: Mapping[str, float] | None = None) -> str:
        """Give the state in one line: elapsed of limit, hosts, step, loss, ms a step; `silent_s` are silent hosts."""
        quiet = {host: seconds for host, seconds in (silent_s or {}).items() if host in phase.running}
        return progress_text(
            Pulse(
                stage=phase.name,
                elapsed_s=phase.elapsed_s,
                limit_s=float(self.settings.config.timeout_seconds),
                num_alive=len(phase.running) - len(quiet),
                num_hosts=len(phase.hosts),
                silent_s=quiet,
                step=self.step,
                max_steps=self.max_steps,
                loss=_number(self.last_beat.get("loss")),
                step_ms=_number(self.last_beat.get("step_ms")),
                stalled_s=self.silent_s if self.step is not None and self.silent_s > SILENCE_SAID_SECONDS else None,
            )
        )


def round_of(run: RunContext, watch: Watch, phase: Phase) -> None:
    """One look at a running phase: progress, ranks, fail-fast, stall."""
    now = time.monotonic()
    if now - watch.said_at > (1.0 if watch.step is not None else 5.0):
        watch.said_at = now
        run.progress(watch.progress_line(phase, run.fleet.silent()))
    expected = run.settings.nproc_per_node * len(phase.hosts)
    if now - watch.ranks_at > (RANKS_EVERY_SECONDS if len(watch.ranks) >= expected else 0.4):
        watch.ranks_at = now
        look_at_processes(run, watch, phase)
    fail_fast(phase, watch.settings.config.failure_grace_seconds, now, watch.noticed)
    if not phase.given_up and watch.silent_s > watch.stall_limit_s:
        _stall(run, watch, phase)


def look_at_processes(run: RunContext, watch: Watch, phase: Phase) -> None:
    """Ask which processes of the workload run now; note their ranks, and their threads as the kernel logs them."""
    answers = run.inside.perform(Ask("processes", timeout_s=10))
    marked = {host: Ask("marked", {"token": run.inside.token(host)}, timeout_s=10) for host in answers}
    for host, answer in run.fleet.perform(marked).items():  # none where the login user may not read a container's
        watch.threads.setdefault(host, set()).update(map(int, answer["threads"]))
    for host, answer in answers.items():
        for process in _descendants(answer, phase.name):
            if process.get("rank") is not None:
                watch.ranks.add(int(process["rank"]))
                watch.rank_hosts.add(host)


def _descendants(answer: Answer, name: str) -> list[dict[str, Any]]:
    group = answer["groups"].get(name) or {}
    return list(group.get("descendants", ()))


def _stall(run: RunContext, watch: Watch, phase: Phase) -> None:
    """Ask every rank for its Python stacks before anything is killed, and say where they hang."""
    silent = watch.silent_s
    run.progress(f"no new step for {silent:.0f} s: taking stacks")
    watch.stacks.clear()
    run.inside.perform(Ask("signal", {"name": phase.name, "signal": "USR1", "catching_only": True}, timeout_s=10))
    deadline = time.monotonic() + STACKS_WITHIN_SECONDS
    expected = run.settings.nproc_per_node * len(phase.hosts)
    while time.monotonic() < deadline and len(watch.stacks) < expected:
        for event in run.inside.events(POLL_SECONDS):
            if event.kind == "lines" and event.data.get("name") == phase.name:
                watch.lines(event.host, [str(line) for line in event.data["lines"]])
    hosts = [host.name for host in run.settings.cluster.hosts]
    num_numbered = run.settings.nproc_per_node if uses_torchrun(run.settings) else 0
    where = where_they_stand(watch.stacks.places(), hosts, num_numbered)
    step = f" after step {watch.step}" if watch.step is not None else " before the first step"
    watch.has_stacks = bool(where)
    watch.stalled = f"no step for {silent:.0f} s{step}" + (
        f": {where}" if where else f"; no rank answered with its stacks{_HOW_TO_ANSWER}"
    )
    phase.given_up = watch.stalled


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and abs(value) < MAX_STEP_MS else None
