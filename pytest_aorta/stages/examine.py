"""Examination: what identifies the hosts' devices, and a last look at the hosts that failed while they can be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_aorta.config.redact import scrub
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.reporting.json_report import blamed_hosts, write_text
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.folder import read_regular
from pytest_aorta.stages.kernel import as_text

DEVICES_SECONDS = 20
TOOL_SECONDS = 60
BOOT_LINES = 5000
# By the fact that says that the tool has something to say; the output stands beside the facts under the tool's name.
TOOLS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "nvidia": (("nvidia-smi", "-q"),),
    "kfd": (("amd-smi", "static"), ("amd-smi", "metric"), ("rocm-smi", "--showallinfo")),
}


def note_devices(run: RunContext) -> None:
    """Keep what identifies each host's devices, and their counters before the run; a host that cannot tell is left."""
    answers = run.fleet.perform(Ask("devices", timeout_s=DEVICES_SECONDS))
    for host, answer in answers.items():
        run.folder.write_document(run.folder.devices(host), answer)


def look_again(run: RunContext) -> None:
    """Read counters and kernel log and ask the vendor's tools on every host that failed on the cluster's account.

    What cannot be kept is told in the log: cleaning up must go on.
    """
    try:
        _look(run)
    except OSError as error:
        log.warning("nothing more is kept of the hosts that failed: %s", error)


def _look(run: RunContext) -> None:
    checks = [check for stage in run.record.document.stages.values() for check in stage.checks]
    failing = [host for host in blamed_hosts(checks) if host in run.fleet.hosts and run.fleet.loss(host) is None]
    answers = run.fleet.perform({host: Ask("devices", timeout_s=DEVICES_SECONDS) for host in failing})
    for host, answer in answers.items():
        run.folder.write_document(run.folder.devices(host, after=True), answer)
    if run.settings.config.kernel_log.enabled:
        asks = dict.fromkeys(answers, Ask("kernel_log", {"max_lines": BOOT_LINES}, timeout_s=TOOL_SECONDS))
        for host, answer in run.fleet.perform(asks).items():
            text = scrub(as_text(answer), run.folder.secrets)
            write_text(run.folder.tools(host) / "kernel-since-boot.txt", text)
    plans = {host: tuple(_tools(run, host)) for host in answers}
    for place in range(max(map(len, plans.values()), default=0)):
        argvs = {host: tools[place] for host, tools in plans.items() if place < len(tools)}
        commands = {
            host: Ask("run", {"argv": list(argv), "timeout_s": TOOL_SECONDS}, timeout_s=TOOL_SECONDS + 5)
            for host, argv in argvs.items()
        }
        for host, answer in run.fleet.perform(commands).items():
            said = scrub(str(answer["stdout"]) or str(answer["stderr"]), run.folder.secrets)
            write_text(run.folder.tools(host) / f"{'-'.join(word.lstrip('-') for word in argvs[host])}.txt", said)
            log.info("%s: %s: %d characters kept for the host's evidence", host, " ".join(argvs[host]), len(said))


def _tools(run: RunContext, host: str) -> Iterator[tuple[str, ...]]:
    facts = _facts(run, host)
    for fact, argvs in TOOLS.items():
        if facts.get(fact):
            yield from argvs


def _facts(run: RunContext, host: str) -> dict[str, Any]:
    try:
        facts = json.loads(read_regular(run.folder.facts(host)))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
