"""Everything this package raises.

AortaError                  we could not measure (a bad measurement is a failed Check, never an error)
├── ConfigError             a file or an option is wrong; nothing was started (exit 4)
├── HostError               a machine did not do what was asked; names the host
│   ├── Unreachable         no connection, or the node program could not be started
│   ├── CommandFailed       the command ran and exited non-zero, or could not be run
│   │   └── Misnamed        the configuration names what no host has
│   ├── TimedOut            no answer within the deadline
│   ├── LeaseLost           the node program ended or the channel broke while the run went on
│   │   └── StoodStill      because pytest itself did not run; no host is to blame
│   └── Defect              what nobody foresaw was raised here; no host is to blame
├── FleetError              several hosts, every cause kept in `by_host`
├── ContainerError          a container engine did not do what was asked
├── WorkloadError           the workload could not be started as asked
├── StageError              a stage cannot be done in this session
└── TraceError              a trace is absent, unreadable or not a trace
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_aorta.hostlist import told


class AortaError(Exception):
    """Base of the tree. The message is one sentence: what, where, seen, expected, next step."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in an input: `where` is a JSON path (`container.env.FOO`), a file or an option; may be empty."""

    where: str
    message: str

    def __str__(self) -> str:
        """Give the fault as one line."""
        return f"{self.where}: {self.message}" if self.where else self.message


class ConfigError(AortaError):
    """One or more faults in files or options; all of them are named at once."""

    def __init__(self, faults: Iterable[Fault] | str) -> None:
        self.faults = (Fault("", faults),) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class HostError(AortaError):
    """A machine did not do what was asked."""

    def __init__(self, host: str, message: str) -> None:
        self.host = host
        self.reason = message
        super().__init__(f"{host}: {message}")


class Unreachable(HostError):
    """No connection to the machine, or its node program could not be started; `is_left`: its folder may lie there."""

    def __init__(self, host: str, message: str, *, is_left: bool = False) -> None:
        self.is_left = is_left
        super().__init__(host, message)


class CommandFailed(HostError):
    """The command ran and exited non-zero, or could not be run."""


class Misnamed(CommandFailed):
    """A file or program that the configuration names is on none of the machines: the run was started wrongly."""


class TimedOut(HostError):
    """No answer within the deadline."""


class LeaseLost(HostError):
    """The node program ended, or its channel broke, while the run went on.

    `is_cut`: nothing comes through any more, as from a machine that is down or cut off; else the program has ended.
    `is_broken`: it was the connection that ended, of which the machine may know nothing.
    """

    def __init__(self, host: str, message: str, *, is_cut: bool = False, is_broken: bool = False) -> None:
        self.is_cut = is_cut
        self.is_broken = is_broken
        super().__init__(host, message)


class StoodStill(LeaseLost):
    """The node program ended because pytest itself did not run for longer than a lease; the host did what it must."""

    def __init__(self, host: str, seconds: float, lease_s: float) -> None:
        super().__init__(
            host,
            f"pytest itself stood still for {seconds:.0f} s (stopped, or its machine slept), and what it had started "
            f"on the hosts has ended with the lease of {lease_s:g} s; keep it running, or set a longer lease_seconds",
        )

    def __str__(self) -> str:
        """Give the sentence without the host, which has nothing to do with it."""
        return self.reason


class Defect(HostError):
    """What was done for a host raised an error that nobody foresaw; the host has nothing to do with it."""

    def __init__(self, host: str, what: str, error: Exception) -> None:
        name = type(error).__name__
        super().__init__(host, f"{what}: {name}: {error}; this is a defect of pytest-aorta, the log has its traceback")

    def __str__(self) -> str:
        """Give the sentence without the host."""
        return self.reason


class FleetError(AortaError):
    """Several hosts asked, at least one failed; no cause is lost."""

    def __init__(self, by_host: Mapping[str, HostError]) -> None:
        self.by_host = dict(by_host)
        super().__init__(told((host, str(error)) for host, error in self.by_host.items()))


class ContainerError(AortaError):
    """A container engine did not do what was asked; `by_host` has the causes by host where they are told apart."""

    def __init__(self, message: str, by_host: Mapping[str, str] | None = None) -> None:
        self.by_host = dict(by_host or {})
        super().__init__(message)


class WorkloadError(AortaError):
    """The workload could not be started as asked."""


class StageError(AortaError):
    """A stage cannot be done in this session, for a reason that lies in the session itself."""


class TraceError(AortaError):
    """A trace is absent, unreadable or not a trace; the message begins with the file's name."""
