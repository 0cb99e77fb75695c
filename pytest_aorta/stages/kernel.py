"""The kernel-log scan of a run's window, host by host."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_aorta.checks import Account, Check
from pytest_aorta.config.redact import scrub
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.kernel_log.judge import Finding, Line, judge, worst
from pytest_aorta.kernel_log.verdict import RESTART_JOB
from pytest_aorta.reporting.json_report import write_text
from pytest_aorta.run.context import RunContext, log
from pytest_aorta.run.evidence import WARNINGS
from pytest_aorta.run.products import Accelerator, LogWindow

MAX_LINES = 20_000
LISTED = 20
# Drivers report a reset up to seconds after the processes are gone; without a GPU there is nothing to wait for.
SETTLE_SECONDS: Mapping[Accelerator, float] = {"rocm": 3.0, "cuda": 3.0, "cpu": 0.0}
UNREAD = {
    "not_permitted": "reading it is not permitted; run as root or allow `sudo -n dmesg`",
    "command_missing": "there is no dmesg command; install util-linux",
    "overwritten": "the ring buffer no longer reaches back to the window's start; enlarge log_buf_len",
    "cleared": "it has no line at all, so somebody cleared it; look for what runs `dmesg -C` or `dmesg -c` there",
    "failed": "dmesg failed",
}
UNREADABLE = ("not_permitted", "command_missing", "cleared", "failed")


@dataclass(slots=True)
class Scan:
    """What the kernel logs said: checks (fatal findings, warnings, scans that could not be made), number of notes.

    `num_notes` is None when any host's log was not read whole.
    """

    checks: list[Check] = field(default_factory=list)
    num_notes: int | None = 0


def scan(
    run: RunContext,
    windows: Mapping[str, LogWindow],
    accelerator: Accelerator,
    job_threads: Mapping[str, set[int]],
    *,
    completed: bool,
) -> Scan:
    """Read every host's kernel log since the run began and judge it.

    The crash of a process that is not among the `job_threads` of its host is a note: had it been the run's, it would
    have failed by its exit code. Where none is known inside of a container, nobody may have been able to see them from
    outside: every crash counts, unless the workload `completed`.
    """
    if not run.settings.config.kernel_log.enabled:
        return Scan([_not_scanned(host, "kernel_log.enabled is false") for host in windows], num_notes=None)
    time.sleep(SETTLE_SECONDS[accelerator])
    answers = run.fleet.perform(
        {
            host: Ask("kernel_log", {"since_uptime_s": window.since_uptime_s, "max_lines": MAX_LINES}, timeout_s=120)
            for host, window in windows.items()
        }
    )
    found = Scan()
    unknown = None if run.is_inside and not completed else set[int]()
    for host, window in windows.items():
        if host in answers.failed:
            found.checks.append(_incomplete(run, host, answers.failed[host].reason))
            found.num_notes = None
            continue
        _judge_host(run, host, window, answers[host], job_threads.get(host) or unknown, found)
    return found


def unreadable(run: RunContext) -> Iterator[str]:
    """Say before the launch which kernel logs the scan after it will not be able to read."""
    if not run.settings.config.kernel_log.enabled:
        return
    answers = run.fleet.perform({h.name: Ask("kernel_log", {"max_lines": 1}, timeout_s=60) for h in run.group})
    for host in sorted({**answers, **answers.failed}):
        status = str(answers[host]["status"]) if host in answers else "failed"
        if status in UNREADABLE:
            fails = "the benchmark will fail by it" if run.settings.config.kernel_log.required else "it is not scanned"
            yield f"{host}: the kernel log cannot be read, {fails}: {UNREAD[status]}"


def _judge_host(
    run: RunContext, host: str, window: LogWindow, answer: Answer, job_threads: set[int] | None, found: Scan
) -> None:
    if answer["boot_id"] != window.boot_id:
        found.num_notes = None
        found.checks.append(
            _failed(host, "cluster", f"{host} rebooted during the run", "find out why: console log, power, panic")
        )
        return
    lines = lines_of(answer)
    write_text(run.folder.kernel_log(host), scrub(as_text(answer), run.folder.secrets))
    unread = "; ".join(_unread(answer))
    if unread:
        found.checks.append(_incomplete(run, host, unread))
        found.num_notes = None
    findings = judge(lines, job_threads=job_threads)
    for finding in findings:
        log.info("%s: kernel log: %s %s x%d: %s", host, finding.severity, finding.class_, finding.count, finding.text)
    if found.num_notes is not None:
        found.num_notes += sum(finding.count for finding in findings if finding.severity == "note")
    found.checks += _warned(host, [finding for finding in findings if finding.severity == "degrade"])
    fatal = [finding for finding in findings if finding.severity == "fatal"]
    if gravest := worst(fatal):
        listed = "; ".join(f"{f.class_}: {f.text}" + (f" (x{f.count})" if f.count > 1 else "") for f in fatal[:LISTED])
        more = f"; and {len(fatal) - LISTED} more" if len(fatal) > LISTED else ""
        step = f"{host}: {gravest.action}: {gravest.reason}"
        account: Account = "workload" if all(f.action == RESTART_JOB for f in fatal) else "cluster"
        found.checks.append(_failed(host, account, f"{host}: kernel log: {listed}{more}", step))
    elif not unread:
        log.info("%s: kernel log clean since launch (%d lines)", host, len(lines))


def _unread(answer: Answer) -> Iterator[str]:
    """Say what of a host's kernel log was not read; nothing where it was read whole."""
    if answer["status"] != "read":
        yield UNREAD.get(str(answer["status"]), "dmesg failed") + (f" ({answer['why']})" if answer.get("why") else "")
    if answer["dropped"]:
        left_out, num_lines = answer["dropped"], len(answer["lines"]) + answer["dropped"]
        yield f"of {num_lines} lines since the launch {left_out} in the middle were left out; see what fills it"


def lines_of(answer: Answer) -> list[Line]:
    """Give the lines of a kernel log that a host told."""
    return [Line(float(e["stamp_s"]), e["facility"], e["level"], e["text"]) for e in answer["lines"]]


def as_text(answer: Answer) -> str:
    """Write a kernel log that a host told as text, a line each, with a word where lines were left out."""
    told = [f"[{line.stamp_s:.6f}] {line.facility}.{line.level} {line.text}\n" for line in lines_of(answer)]
    if answer["dropped"]:
        told.insert(len(told) // 2, f"({answer['dropped']} lines were left out here)\n")
    return "".join(told)


def _warned(host: str, findings: Sequence[Finding]) -> Iterator[Check]:
    """Give what a host's kernel log warns of, as one check: its names tell one of each host apart."""
    gravest = worst(findings)
    if gravest is None:
        return
    told = [f"{f.class_}: {f.text}{f' (x{f.count})' if f.count > 1 else ''}; {f.reason}" for f in findings[:LISTED]]
    more = f"; and {len(findings) - LISTED} more" if len(findings) > LISTED else ""
    yield Check(
        label=f"[evidence] (host={host}, check={WARNINGS})",
        state="warned",
        host=host,
        subtest=False,
        reason=f"{host}: kernel log: {'; '.join(told)}{more}",
        next_step="" if gravest.action == "none" else f"{host}: {gravest.action}: {gravest.reason}",
    )


def _incomplete(run: RunContext, host: str, why: str) -> Check:
    if not run.settings.config.kernel_log.required:
        return _not_scanned(host, why)
    step = f"make the kernel log of {host} readable, or set kernel_log.required to false"
    return _failed(host, "rig", f"{host}: kernel-log scan incomplete: {why}", step)


def _failed(host: str, account: Account, reason: str, next_step: str) -> Check:
    return Check(
        label=f"[evidence] (host={host}, check=kernel_log)",
        state="failed",
        host=host,
        fault=account,
        reason=reason,
        next_step=next_step,
    )


def _not_scanned(host: str, why: str) -> Check:
    return Check(
        label=f"[evidence] (host={host}, check=kernel_log)",
        state="not_judged",
        host=host,
        subtest=False,
        reason=f"kernel log of {host} not scanned: {why}",
    )
