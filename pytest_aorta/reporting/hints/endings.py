"""Hints about how a process ended, when nothing else is known of it."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGSEGV, SIGTERM

from pytest_aorta.reporting.hints.hint import Hint, Severity

_SIGNALS = "the signal manual"
_SHELL = "the shell's exit codes"


def _ended(key: str, severity: Severity, codes: tuple[int, ...], cause: str, next_step: str, source: str) -> Hint:
    return Hint(key, severity, cause, next_step, source, endings=frozenset(codes))


def _by(signal: int) -> tuple[int, int]:
    """Give both codes of a signal: as a parent sees it, and as a shell passes it on."""
    return -signal, 128 + signal


ENDINGS = (
    _ended(
        "ended_sigbus",
        "fatal",
        _by(SIGBUS),
        "a mapped file or shared memory was smaller than used: /dev/shm or the disk is full, or a memory error",
        "see the size of /dev/shm (shm_size) and the disk, then the kernel log for memory errors",
        _SIGNALS,
    ),
    _ended(
        "ended_sigsegv",
        "fatal",
        _by(SIGSEGV),
        "a library crashed: versions that do not match, a bug, or bad memory",
        "see the kernel log and the last lines of that rank; PYTHONFAULTHANDLER=1 prints the place",
        _SIGNALS,
    ),
    _ended(
        "ended_sigill",
        "fatal",
        _by(SIGILL),
        "a program was built for another processor than this host has",
        "compare the CPU of that host with the others, or build for the oldest",
        _SIGNALS,
    ),
    _ended(
        "ended_sigfpe",
        "fatal",
        _by(SIGFPE),
        "a whole number was divided by zero: a size or count of 0",
        "see the last lines of that rank",
        _SIGNALS,
    ),
    _ended(
        "ended_sigkill",
        "fatal",
        _by(SIGKILL),
        "the process was killed from outside: most often by the OOM killer, else by a limit or a person",
        "the OOM killer leaves a line in the kernel log of that host; where there is none, look at the memory limit of "
        "container or job, and who else ends processes there",
        _SIGNALS,
    ),
    _ended(
        "ended_sigabrt",
        "fatal",
        _by(SIGABRT),
        "a library gave up on an error of its own: a failed assertion, or the watchdog of the collectives",
        "the lines before the stack say which; see whether another rank failed first",
        _SIGNALS,
    ),
    _ended(
        "not_executable",
        "fatal",
        (126,),
        "the command is there but cannot be run: rights, a folder mounted noexec, or another architecture",
        "`ls -l` and `file` on it, inside the container",
        _SHELL,
    ),
    _ended(
        "command_missing",
        "fatal",
        (127,),
        "a command of the launch is not found where it runs",
        "give its whole path, or install it into the image",
        _SHELL,
    ),
    _ended(
        "wrong_usage",
        "fatal",
        (2,),
        "the program refused its arguments",
        "see its first lines; compare training_overrides with what it takes",
        _SHELL,
    ),
    _ended(
        "engine_failed",
        "fatal",
        (125,),
        "the container engine itself failed before the program ran",
        "see the engine's log on that host",
        "Docker's documentation",
    ),
    _ended(
        "timed_out",
        "degrade",
        (124,),
        "a time limit around the command was reached",
        "see how far it came, then whether it hangs or the limit is short",
        "the timeout manual",
    ),
    _ended(
        "ended_from_outside",
        "note",
        (*_by(SIGTERM), *_by(SIGINT), *_by(SIGHUP)),
        "somebody or something asked it to end: torchrun after another rank, the scheduler, a person",
        "look for what failed before it, or who stopped the job",
        _SIGNALS,
    ),
)
