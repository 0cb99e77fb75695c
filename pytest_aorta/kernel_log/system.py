"""Rows for the kernel itself: crashes, lockups, memory, storage, and processes that it killed."""

from __future__ import annotations

import re

from pytest_aorta.kernel_log.verdict import Family, Verdict, row, unless_zero

_CORE = "Linux kernel core"
_MEMORY = "Linux memory management"
_BLOCK = "Linux block layer"
_NVME = "Linux NVMe driver"
_FS = "Linux file systems"

_LOCKUP = Verdict("lockup", "fatal", "reboot", "a CPU is stuck in the kernel")
_HUNG = Verdict("hung_task", "fatal", "reboot", "a task waits in the kernel and does not come back")
_HUNG_HELP = Verdict("hung_task", "note", "none", "help text after a hung-task report")
_SEGFAULT = Verdict("user_segfault", "fatal", "restart job", "a process crashed")
_CRASH = Verdict("kernel_crash", "fatal", "reboot", "the kernel crashed or is damaged")
_WARN = Verdict("kernel_warn", "degrade", "none", "the kernel warns with a stack")
_WARN_START = Verdict("kernel_warn", "note", "none", "first line of a report, the next lines say what happened")
_TRACE = Verdict("kernel_trace", "note", "none", "a stack was printed, the lines around it say why")
_TRACEBACK = Verdict("user_traceback", "note", "none", "a program printed its own stack")
_CRASHED = Verdict("driver_crash", "degrade", "none", "a driver says that something crashed")
_TEST = Verdict("test_failure", "degrade", "none", "a driver's own test failed")
_FAULT = Verdict("fault", "note", "none", "a line with the word fault that no other row knows")
_CLOCK = Verdict("clocksource", "degrade", "none", "reading the time is slow until the next boot")
_CPU_HOT = Verdict("cpu_thermal", "degrade", "none", "a CPU is too hot and slower")
_CPU_COOL = Verdict("cpu_thermal", "note", "none", "a CPU is cool again")
_TOO_HOT = Verdict("cpu_thermal", "fatal", "drain", "critical temperature, the machine shuts down")
_OOM = Verdict("oom_kill", "fatal", "restart job", "memory was exhausted and a process was killed")
_OOM_DETAIL = Verdict("oom_kill", "note", "none", "detail of a kill that is counted already")
_NO_PAGES = Verdict("memory_pressure", "degrade", "none", "the kernel found no free memory for itself")
_FS_BROKEN = Verdict("fs_error", "fatal", "reboot", "a file system is damaged or was made read-only")
_FS_WARNING = Verdict("fs_error", "degrade", "none", "a file system warns")
_FS_REMINDER = Verdict("fs_error", "note", "none", "reminder of old errors, not a new one")
_NVME_GONE = Verdict("nvme_error", "fatal", "reboot", "a drive does not answer any more")
_NVME_SLOW = Verdict("nvme_error", "degrade", "none", "a drive did not answer in time")
_NVME_BAD = Verdict("nvme_error", "degrade", "replace", "a drive could not read or write")
_NFS = Verdict("nfs_stall", "degrade", "none", "a file server does not answer")
_NFS_BACK = Verdict("nfs_stall", "note", "none", "a file server answers again")

_NOT_A_DISK = ("sr", "fd", "loop", "zram", "ram")


def _weigh_disk(match: re.Match[str], verdict: Verdict) -> Verdict | None:
    device = match["device"].lower()
    if device.startswith(_NOT_A_DISK):
        return None
    if device.startswith("nvme"):
        return verdict
    return verdict.but("degrade", "replace", "a disk could not read or write", class_="disk_error")


CRASHES = Family(
    "crashes",
    (
        *("bug", "oops", "rip:", "panic", "protection", "trap", "segfault", "unable to handle", "recursive fault"),
        *("cut here", "warning", "call trace", "end trace", "_stack", "traceback", "lockup", "stall", "starved"),
        *("blocked for more", "hung_task"),
    ),
    (
        row(r"\bsoft lockup - |\bhard lockup on\b|\bworkqueue lockup - ", _LOCKUP, _CORE),
        row(
            r"\bdetected (?:expedited )?stalls? on CPUs\b|\bself-detected stall\b|\bkthread starved for\b",
            _LOCKUP,
            _CORE,
        ),
        row(r"\bblocked for more than \d+ seconds", _HUNG, _CORE),
        row(r"\bhung_task_timeout_secs\b", _HUNG_HELP, _CORE),
        row(
            r"\[\d+\]:? (?:segfault at |general protection(?: fault)? ip:|trap [a-z ]{1,40} ip:|bad frame in)",
            _SEGFAULT,
            _CORE,
        ),
        row(r"\bBUG: (?:sleeping function|using \w+\(\) in preemptible|MAX_LOCKDEP)", _WARN, _CORE),
        row(r"(?-i:\bBUG: )|(?-i:\bkernel BUG at )|(?-i:\bOops\b)|\bgeneral protection fault\b", _CRASH, _CORE),
        row(r"\bkernel panic\b|\bfixing recursive fault\b|\bunable to handle kernel\b|\bRIP: 0010:", _CRASH, _CORE),
        row(r"(?-i:\bWARNING: )(?:CPU: \d+ PID: \d+ at |\S{1,120}:\d+ at )", _WARN, _CORE),
        row(r"\[ cut here \]", _WARN_START, _CORE),
        row(r"\bcall trace:|\bend trace\b|\b(?:dump|show)_stack", _TRACE, _CORE),
        row(r"\bTraceback \(most recent call last\)", _TRACEBACK, "user space"),
    ),
)

MEMORY = Family(
    "memory",
    ("out of memory", "oom", "allocation failure"),
    (
        row(r"\bout of memory(?: \(oom_kill_allocating_task\))?: kill", _OOM, _MEMORY),
        row(r"\bout of memory and no killable\b", _OOM, _MEMORY),
        row(r"\binvoked oom-killer\b|\boom_reaper: |\boom-kill:", _OOM_DETAIL, _MEMORY),
        row(r"\bpage allocation failure\b", _NO_PAGES, _MEMORY),
    ),
)

STORAGE = Family(
    "storage",
    ("ext4", "xfs", "btrfs", "jbd2", "i/o error", "nvme", "medium error", "target error", "read-only", "nfs", "lockd"),
    (
        row(r"\berror count since last fsck: (?P<value>\d+)", _FS_REMINDER, _FS, unless_zero),
        row(r"\b(?:initial|last) error at time\b", _FS_REMINDER, _FS),
        row(r"\bEXT4-fs error\b|\bBTRFS (?:critical|error)\b|\baborting journal\b", _FS_BROKEN, _FS),
        row(r"\bXFS\b.{0,60}\b(?:corruption|force_?shutdown|log I/O error|shutting down filesystem)", _FS_BROKEN, _FS),
        row(r"\bremounting filesystem read-only\b|\bjbd2\b.{0,60}\bI/O error\b", _FS_BROKEN, _FS),
        row(r"\bEXT4-fs warning\b", _FS_WARNING, _FS),
        row(
            r"\bnvme\d+\b.{0,80}\b(?:controller is down|device not ready|removing after probe failure|reset failed|"
            r"disabling device after reset failure)\b",
            _NVME_GONE,
            _NVME,
        ),
        row(r"\bnvme\w*\b.{0,80}\bQID \d+ timeout\b", _NVME_SLOW, _NVME),
        row(
            r"\b(?:(?:Buffer )?I/O error,?(?: on)?|critical (?:medium|target) error,) (?:dev|device) (?P<device>\w+)",
            _NVME_BAD,
            _BLOCK,
            _weigh_disk,
        ),
        row(r"\bnvme\w*: .{0,80}\bUnrecovered Read Error\b", _NVME_BAD, _NVME),
        row(r"\bserver \S{1,80} not responding\b", _NFS, "Linux NFS client"),
        row(r"\bnfs: server \S{1,80} OK\b", _NFS_BACK, "Linux NFS client"),
    ),
)

OTHER = Family(
    "other",
    ("clocksource", "temperature", "throttled", "crashed", "test failure", "fault"),
    (
        row(r"\bmarking clocksource \S{1,40} as unstable\b", _CLOCK, "Linux timekeeping"),
        row(r"\bcpu clock (?:is )?throttled\b", _CPU_HOT, "Linux thermal"),
        row(r"\btemperature/speed normal\b", _CPU_COOL, "Linux thermal"),
        row(r"\bcritical temperature reached\b", _TOO_HOT, "Linux thermal"),
        row(r"\bcrashed\b", _CRASHED, "any driver"),
        row(r"\btest failure\b", _TEST, "any driver"),
        row(
            r"\[Firmware (?:Bug|Warn|Info)\]|\b(?:no|0) faults?\b|\bfault[ _-](?:injection|toleran)", None, "any driver"
        ),
        row(r"\bfault\b[^:=]{0,24}[:=] ?(?:0x)?0+\b", None, "any driver"),
        row(r"\bfault\b", _FAULT, "any driver"),
    ),
)
