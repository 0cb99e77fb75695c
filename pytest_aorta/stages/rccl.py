"""test_build_rccl: build the communication library on every host, or do without."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

from pytest_aorta.checks import Account, Check
from pytest_aorta.config.settings import Settings
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.reporting.text import cut_middle
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.gating import NotNeeded, Step
from pytest_aorta.run.products import Containers, Fabric, Rccl, WorkloadTree
from pytest_aorta.stages.command import environment
from pytest_aorta.stages.losses import losses_of
from pytest_aorta.stages.phase import LOOK_AT_THEM, Talk, bring_logs, fail_fast, follow, start_phase, stop_phase
from pytest_aorta.stages.sharing import Groups, sharing

MAX_WORDS_CHARS = 300
PRINTED = re.compile(r"^(?:rccl[_ ])?(commit|library)\s*[:= ]\s*(\S+)\s*$", re.IGNORECASE)


def build_rccl(run: RunContext, containers: Containers, tree: WorkloadTree, fabric: Fabric) -> Rccl:
    """Run the build script on every host at once; what it prints as commit and library is kept.

    Of hosts that share the folder of the build one builds, and all of them must see the library that it made.
    """
    config = run.settings.config
    groups = sharing(run.inside, dict.fromkeys(tree.root, config.rccl.build_path))
    builders = [hosts[0] for hosts in groups]
    printed: dict[str, dict[str, str]] = {host: {} for host in builders}
    last_words: dict[str, str] = {}

    talk = Talk()

    def keep(host: str, lines: list[str]) -> None:
        for line in lines:
            talk.say(host, line)
            last_words[host] = line.strip() or last_words.get(host, "")
            if found := PRINTED.match(line):
                printed[host][found[1].lower()] = found[2]

    logs = {host: f"{path}/rccl.log" for host, path in containers.work_dirs.items()}
    phase = start_phase(
        run,
        "rccl",
        {host: ["bash", config.build_script] for host in builders},
        cwd=tree.root,
        env=environment(run.settings, containers.accelerator),
        logs=logs,
    )
    try:
        follow(
            run,
            phase,
            timeout_s=config.timeout_seconds,
            on_lines=keep,
            each_round=lambda state: fail_fast(state, config.failure_grace_seconds, time.monotonic()),
        )
    finally:
        phase.unended = stop_phase(run, "rccl")
    bring_logs(run, "rccl", logs)
    checks = [
        _failed(
            f"{host}: {config.build_script} ended with {code}{_said(last_words.get(host, ''))}",
            f"read {run.folder.log_of('rccl', tuple(tree.root).index(host), host)}; with skip_rccl_build: true the "
            "ranks use the library that torch brings",
            host,
        )
        for host, code in phase.failed.items()
    ]
    checks += [_failed(lost.said, lost.next_step, lost.host, lost.fault) for lost in losses_of(run, phase.lost)]
    checks += [_failed(str(why), LOOK_AT_THEM, host) for host, why in phase.unended.items()]
    if phase.given_up:
        checks.append(
            Check(label="rccl", state="failed", fault="rig", subtest=False, reason=f"RCCL build: {phase.given_up}")
        )
    commits = {values.get("commit") for values in printed.values()}
    if len(commits) > 1:
        seen = ", ".join(f"{host} {values.get('commit')}" for host, values in printed.items())
        checks.append(
            Check(label="rccl", state="failed", subtest=False, reason=f"the hosts built different commits: {seen}")
        )
    if not checks:
        checks += _same_library(run, groups, {host: values.get("library") for host, values in printed.items()})
    head = printed[run.head.name]
    return Rccl(built=True, library=head.get("library"), commit=head.get("commit"), checks=tuple(checks))


def _said(words: str) -> str:
    """Give what a build said last, to stand behind how it ended."""
    return f": {cut_middle(words, MAX_WORDS_CHARS)[0]}" if words else ""


def _failed(reason: str, next_step: str, host: str | None, fault: Account = "rig") -> Check:
    label = f"[evidence] (host={host}, check=rccl_build)" if host is not None else "rccl"
    return Check(label=label, state="failed", host=host, fault=fault, subtest=False, reason=reason, next_step=next_step)


def _same_library(run: RunContext, groups: Groups, built: Mapping[str, str | None]) -> Iterator[Check]:
    """Require that hosts which share a build see the same library."""
    asked = {host: path for hosts in groups for host in hosts if (path := built[hosts[0]]) and len(hosts) > 1}
    answers = run.ask_inside({host: Ask("stat", {"paths": [path], "hash": True}) for host, path in asked.items()})
    for hosts in groups:
        for host in hosts[1:]:
            if host not in answers:
                continue
            mine, first = (answers[each]["files"][asked[each]] for each in (host, hosts[0]))
            if mine.get("sha256") != first.get("sha256") or mine["kind"] != "file":
                yield Check(
                    label=f"[evidence] (host={host}, check=rccl_build)",
                    state="failed",
                    host=host,
                    fault="rig",
                    subtest=False,
                    reason=f"{host} sees another {asked[host]} than {hosts[0]}, which built it where both look",
                    next_step="look for a stale cache of the file server, or build on a folder of each host's own",
                )


def build_is_skipped(settings: Settings) -> NotNeeded | None:
    """The configuration does without a build."""
    return NotNeeded("skip_rccl_build=true", Rccl()) if settings.skip_rccl_build else None


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be built."""
    for host in settings.cluster.hosts:
        yield Step(host.name, f"bash {settings.config.build_script} (branch {settings.config.rccl.branch})")
