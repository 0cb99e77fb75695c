"""What goes wrong in clusters, done to one host. Each lasts until `undo()`, the end of its `with`, or the next boot."""

from __future__ import annotations

import posixpath
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from .host import Host
from .processes import LabError, wait_until
from .ssh_files import public_part

SSHD_SKEW = "/etc/ssh/sshd_config.d/skew.conf"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
WAIT_S = 20


class Fault:
    """Something broken on purpose. Undoing it twice, or after a boot has mended it, does nothing."""

    def __init__(self, host: Host, undo: Callable[[], object]) -> None:
        self._host = host
        self._boot = host.last_boot
        self._undo: Callable[[], object] | None = undo
        host.on_heal(self.undo)

    def undo(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None and self._host.last_boot == self._boot:
            undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def power_off(host: Host) -> Fault:
    """Everything is gone at once, and no packet says so. Undone by a boot, with a fresh root."""
    fault = Fault(host, host.boot)
    host.switch_off()
    return fault


def crash(host: Host) -> Fault:
    """All processes die; the kernel closes their connections and refuses new ones. Undone by a boot."""
    fault = Fault(host, host.boot)
    host.run(["sh", "-c", "kill -KILL -1"], check=True)
    return fault


def cut_link(host: Host) -> Fault:
    """The switch port goes down: nothing arrives any more, connections hang, the host still sees its link."""
    host.at_switch("ip", "link", "set", host.name, "down")
    return Fault(host, lambda: host.at_switch("ip", "link", "set", host.name, "up"))


def slow_link(host: Host, rate: str = "2mbit") -> Fault:
    """A narrow line, in both directions; `rate` as tc reads it."""
    shape = ["root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"]
    host.at_switch("tc", "qdisc", "replace", "dev", host.name, *shape)
    host.run(["tc", "qdisc", "replace", "dev", "eth0", *shape], check=True)

    def undo() -> None:
        host.at_switch("tc", "qdisc", "del", "dev", host.name, "root")
        host.run(["tc", "qdisc", "del", "dev", "eth0", "root"], check=True)

    return Fault(host, undo)


def lose_packets(host: Host, ratio: float) -> Fault:
    """Incoming packets vanish at random."""
    return _filter(host, "--match", "statistic", "--mode", "random", "--probability", str(ratio))


def drop_packets(host: Host, port: int = 22) -> Fault:
    """Packets to one TCP port vanish: connecting takes as long as the client waits."""
    return _filter(host, "--protocol", "tcp", "--dport", str(port))


def stop_sshd(host: Host) -> Fault:
    """New connections are refused; sessions go on."""
    host.run(["sh", "-c", "kill $(cat /run/sshd.pid)"], check=True)
    wait_until(lambda: not host.answers_ssh(), f"sshd on {host.name} to end", WAIT_S)

    def undo() -> None:
        host.run(["/usr/sbin/sshd"], check=True)
        wait_until(host.answers_ssh, f"sshd on {host.name}", WAIT_S)

    return Fault(host, undo)


def change_host_key(host: Host) -> Fault:
    """Sshd shows a key that no client knows, as after a reinstallation."""
    host.run(["mv", HOST_KEY, f"{HOST_KEY}.kept"], check=True)
    host.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", HOST_KEY], check=True)
    _reload_sshd(host)
    shown = public_part(host.path(HOST_KEY))
    wait_until(lambda: shown in _scan_key(host), f"the new key of {host.name}", WAIT_S)

    def undo() -> None:
        host.run(["mv", f"{HOST_KEY}.kept", HOST_KEY], check=True)
        _reload_sshd(host)
        wait_until(lambda: host.answers_ssh() and shown not in _scan_key(host), f"the old key of {host.name}", WAIT_S)

    return Fault(host, undo)


def set_in_sshd(host: Host, line: str) -> Fault:
    """A line of sshd's configuration is another one."""
    config = host.path("/etc/ssh/sshd_config.d/one.conf")
    with stop_sshd(host):
        config.write_text(f"{line}\n", "utf-8")

    def undo() -> None:
        with stop_sshd(host):
            config.unlink()

    return Fault(host, undo)


def offer_no_sftp(host: Host) -> Fault:
    """Sshd has no subsystem for files."""
    config = host.path("/etc/ssh/sshd_config")
    text = config.read_text("utf-8")
    with stop_sshd(host):
        config.write_text("".join(line for line in text.splitlines(keepends=True) if "Subsystem" not in line), "utf-8")

    def undo() -> None:
        with stop_sshd(host):
            config.write_text(text, "utf-8")

    return Fault(host, undo)


def skew_clock(host: Host, offset_s: int) -> Fault:
    """New SSH sessions and what they start see a wall clock that is off; daemons and static programs do not."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        raise LabError("libfaketime is not installed")
    settings = [f"LD_PRELOAD={library}", f"FAKETIME={offset_s:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
    path = next(line for line in host.path("/etc/ssh/sshd_config").read_text("utf-8").splitlines() if "PATH=" in line)
    host.path(SSHD_SKEW).write_text(f"{path} {' '.join(settings)}\n", "utf-8")
    _restart_sshd(host)

    def undo() -> None:
        host.path(SSHD_SKEW).unlink()
        _restart_sshd(host)

    return Fault(host, undo)


def stop_docker(host: Host) -> Fault:
    """The Docker daemon ends in order, and its containers with it."""
    return _end_docker(host, "TERM")


def kill_docker(host: Host) -> Fault:
    """The Docker daemon dies; its containers stay until it is back, and are ended by it then."""
    return _end_docker(host, "KILL")


def halt_docker(host: Host) -> Fault:
    """The Docker daemon stands still; its socket takes what is asked, and nobody answers."""
    pid = _docker_pid(host)
    host.run(["kill", "-STOP", pid], check=True)
    return Fault(host, lambda: host.run(["kill", "-CONT", pid], check=True))


def limit_disk(host: Host, folder: str, size_kib: int = 64) -> Fault:
    """The folder is an empty disk, soon full."""
    host.run(["mkdir", "-p", folder], check=True)
    host.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k,mode=1777", "full", folder], check=True)
    return _mounted(host, folder)


def protect_folder(host: Host, folder: str) -> Fault:
    """The folder becomes read-only, for root as well."""
    host.run(["mkdir", "-p", folder], check=True)
    host.run(["mount", "--bind", folder, folder], check=True)
    host.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    return _mounted(host, folder)


def _mounted(host: Host, folder: str) -> Fault:
    # lazily: what was tested may still have a file open there
    return Fault(host, lambda: host.run(["umount", "--lazy", posixpath.normpath(folder)], check=True))


def _filter(host: Host, *match: str) -> Fault:
    rule = ["INPUT", *match, "--jump", "DROP"]
    host.run(["iptables", "--wait", "--insert", *rule], check=True)
    return Fault(host, lambda: host.run(["iptables", "--wait", "--delete", *rule], check=True))


def _end_docker(host: Host, signal_name: str) -> Fault:
    pid = _docker_pid(host)
    host.run(["kill", f"-{signal_name}", pid], check=True)
    wait_until(lambda: not host.path(f"/proc/{pid}/exe").exists(), f"dockerd on {host.name} to end", WAIT_S)

    def undo() -> None:
        host.start("/usr/local/sbin/lab-dockerd")
        host.wait_docker()

    return Fault(host, undo)


def _docker_pid(host: Host) -> str:
    return host.path("/run/docker.pid").read_text("ascii").strip()


def _reload_sshd(host: Host) -> None:
    host.run(["sh", "-c", "kill -HUP $(cat /run/sshd.pid)"], check=True)


def _restart_sshd(host: Host) -> None:
    """Sessions of the old one go on. (After HUP nothing tells when it has read its settings.)"""
    stop_sshd(host).undo()


def _scan_key(host: Host) -> str:
    return subprocess.run(
        ["ssh-keyscan", "-T", "2", "-t", "ed25519", host.address], capture_output=True, text=True, check=False
    ).stdout
