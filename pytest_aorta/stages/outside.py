"""Outside: the workload's files, asked for where it lives, or on the host itself when its container is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from pytest_aorta.config.settings import Settings
from pytest_aorta.errors import CommandFailed, TimedOut
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Answers
from pytest_aorta.fleet.parallel import in_parallel
from pytest_aorta.run.context import ANSWER_SECONDS, RunContext, log
from pytest_aorta.run.hosts import LOOK_SECONDS, boot_id_of


def ask_about_files(run: RunContext, asks: Mapping[str, Ask]) -> Answers:
    """Ask about files below `root`, a path as the workload sees it; every host is asked whatever became of the others.

    What a container wrote into a mounted folder outlives it.
    """
    gone = [host for host in asks if run.inside.loss(host) is not None and run.fleet.loss(host) is None]
    for host in gone:
        log.info("%s: its container is gone; looking for the files on the host", host)
    inside = run.inside.perform({host: ask for host, ask in asks.items() if host not in gone})
    outside = run.fleet.perform({host: _on_the_host(run.settings, asks[host]) for host in gone})
    failed = {**inside.failed, **outside.failed}
    _give_up_what_is_down(run, [host for host, why in failed.items() if not isinstance(why, CommandFailed)])
    failed |= {host: lost for host in failed if (lost := run.fleet.loss(host)) is not None}
    return Answers({host: {**inside, **outside}[host] for host in asks if host not in failed}, failed)


def _give_up_what_is_down(run: RunContext, hosts: list[str]) -> None:
    """Settle that hosts are down or cut off which gave no answer, before the silence of their leases would.

    They answer neither what is asked now nor over a new connection; else every later question would wait in vain.
    """
    asked = {host: Ask("ping", timeout_s=ANSWER_SECONDS) for host in hosts if run.fleet.loss(host) is None}
    silent = [host for host, why in run.fleet.perform(asked).failed.items() if isinstance(why, TimedOut)]
    down: list[str] = []

    def look(host: str) -> None:
        if boot_id_of(run.settings.cluster, host, run.look_dir(host)) is None:
            down.append(host)

    in_parallel("looking for it", {host: partial(look, host) for host in silent}, 4 * LOOK_SECONDS)
    run.fleet.give_up(down, f"nothing was heard from it for {ANSWER_SECONDS} s, and it takes no new connection")


def path_on_the_host(settings: Settings, path: str) -> str:
    """Give where the host has what a container sees at `path`; our own folders lie at the same place."""
    seen = PurePosixPath(path)
    container = settings.config.container
    volumes = [volume.split(":") for volume in container.runtime.args.volumes] if container is not None else []
    mounts = {PurePosixPath(target): PurePosixPath(source) for source, target, *_ in (v for v in volumes if v[1:])}
    holders = [target for target in mounts if seen.is_relative_to(target)]
    if not holders:
        return path
    nearest = max(holders, key=lambda target: len(target.parts))
    return str(mounts[nearest] / seen.relative_to(nearest))


def _on_the_host(settings: Settings, ask: Ask) -> Ask:
    return replace(ask, args={**ask.args, "root": path_on_the_host(settings, str(ask.args["root"]))})
