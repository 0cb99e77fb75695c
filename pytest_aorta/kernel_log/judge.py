"""Judge a kernel log: which of its lines mean something, how bad it is, and what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_aorta.kernel_log.line import Line
from pytest_aorta.kernel_log.table import find_row
from pytest_aorta.kernel_log.verdict import ACTIONS, SEVERITIES, Action, Severity, Verdict

__all__ = ["Finding", "Line", "judge", "worst"]

_PCI = re.compile(
    r"(?<![0-9a-f])(?<!\d:)(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})"
    r"(?:\.(?P<function>[0-7]))?(?![0-9a-f]|:[0-9a-f])",
    re.IGNORECASE,
)
_SHORT_PCI = re.compile(r"\bdevice=(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])\b", re.IGNORECASE)
_SPLIT_HEAD = re.compile(r"^NVRM: The NVIDIA GPU \S+$")
_NUMBER = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+", re.IGNORECASE)
# What befell one process alone: the class of such lines, the process in them, and what to say of one that is not ours.
_OF_A_PROCESS = (
    ("user_segfault", re.compile(r"\[(?P<pid>\d+)\]:? "), "crashed"),
    ("oom_kill", re.compile(r"memory cgroup .*: kill(?:ed)? process (?P<pid>\d+)", re.IGNORECASE), "met its own limit"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Lines that mean the same: `text` is the first of them, `count` how many, `pci` the device they name.

    `source` names the code or the catalog that the row of the table was written from.
    """

    class_: str
    severity: Severity
    action: Action
    reason: str
    text: str
    count: int
    first_stamp_s: float
    pci: str | None
    source: str


@dataclass(frozen=True, slots=True)
class _Judged:
    """One line with its verdict, before equal ones are counted together."""

    line: Line
    verdict: Verdict
    source: str
    pci: str | None

    @property
    def key(self) -> tuple[Verdict, str | None, str]:
        return self.verdict, self.pci, _NUMBER.sub("#", self.line.text)


def judge(lines: Sequence[Line], *, job_threads: Collection[int] | None = None) -> tuple[Finding, ...]:
    """Judge lines of one host: one finding a verdict, device and text (numbers aside), in time order.

    With `job_threads` the crash of a thread that is not among them is a note, and so is the end of a process by a
    memory limit of its own; without, every one counts.
    """
    judged = _judge_each(lines, job_threads)
    groups: dict[tuple[Verdict, str | None, str], list[_Judged]] = {}
    for one in judged:
        groups.setdefault(one.key, []).append(one)
    findings = [_finding(group) for group in groups.values()]
    return tuple(sorted(findings, key=lambda finding: finding.first_stamp_s))


def worst(findings: Sequence[Finding]) -> Finding | None:
    """Give the finding of the gravest severity, then action, the earliest of equals; None when there is none."""

    def gravity(finding: Finding) -> tuple[int, int]:
        return SEVERITIES.index(finding.severity), ACTIONS.index(finding.action)

    return min(findings, key=gravity, default=None)


def _judge_each(lines: Sequence[Line], job_threads: Collection[int] | None) -> list[_Judged]:
    """NVIDIA's driver splits one message over three lines: the device of the first belongs to the last."""
    judged = []
    split_pci: str | None = None
    for line in lines:
        if _SPLIT_HEAD.match(line.text):
            split_pci = _find_pci(line.text)
        found = find_row(line.text)
        verdict = found[0].judge(found[1]) if found is not None else None
        if found is None or verdict is None:
            continue
        pci = _find_pci(line.text)
        if pci is None and verdict.class_ == "nv_xid_bus":
            pci, split_pci = split_pci, None
        judged.append(_Judged(line, _temper(line, verdict, job_threads), found[0].source, pci))
    return judged


def _temper(line: Line, verdict: Verdict, job_threads: Collection[int] | None) -> Verdict:
    """Make a note of what a program wrote into the log, and of the crash of a process that is not the run's."""
    if not line.from_kernel:
        return verdict.but("note", "none", "written by a program, not by the kernel")
    for class_, pattern, what in _OF_A_PROCESS if job_threads is not None else ():
        process = pattern.search(line.text) if verdict.class_ == class_ else None
        if process is not None and job_threads is not None and int(process["pid"]) not in job_threads:
            return verdict.but("note", "none", f"a process that is not of this run {what}")
    return verdict


def _finding(group: list[_Judged]) -> Finding:
    first = min(group, key=lambda one: one.line.stamp_s)
    verdict = first.verdict
    return Finding(
        class_=verdict.class_,
        severity=verdict.severity,
        action=verdict.action,
        reason=verdict.reason,
        text=first.line.text,
        count=len(group),
        first_stamp_s=first.line.stamp_s,
        pci=first.pci,
        source=first.source,
    )


def _find_pci(text: str) -> str | None:
    """Give the first PCI address as `0000:c1:00.0`; drivers leave out the function, the IOMMU also the domain."""
    match = _PCI.search(text)
    if match is not None:
        domain = match["domain"].lower().lstrip("0").rjust(4, "0")
        return f"{domain}:{match['bus']}:{match['device']}.{match['function'] or '0'}".lower()
    short = _SHORT_PCI.search(text)
    return f"0000:{short['bus']}:{short['device']}.{short['function']}".lower() if short is not None else None
