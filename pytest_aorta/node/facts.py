"""Facts: what the operating system says about this machine."""

from __future__ import annotations

import glob
import grp
import hashlib
import os
import platform
import pwd
import resource
import socket
import time
from typing import Any


def clock() -> dict[str, Any]:
    """Read the clocks of this machine."""
    return {"wall_ns": time.time_ns(), "uptime_s": uptime_s(), "boot_id": boot_id()}


def uptime_s() -> float:
    """Give the seconds since boot as the kernel log counts them.

    The log is stamped by a clock that nothing corrects; CLOCK_MONOTONIC is slewed towards true time and parts from
    it by seconds a week.
    """
    return round(time.clock_gettime(time.CLOCK_MONOTONIC_RAW), 6)


def boot_id() -> str:
    """Give the id that changes with every boot; empty where the kernel does not tell."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def identity() -> str:
    """Give what tells this machine from others, also after a reboot; empty where the system does not tell.

    It is a hash, since the id itself is not for others' eyes. Machines made of one image may share it, not the name.
    Source: machine-id(5).
    """
    text = _read("/etc/machine-id").strip()
    return hashlib.sha256(f"pytest-aorta {text}".encode("utf-8", "replace")).hexdigest()[:32] if text else ""


def pid_namespace() -> str:
    """Name the processes that pids are counted among; empty where the kernel does not tell."""
    return _link("/proc/self/ns/pid")


def facts() -> dict[str, Any]:
    """Describe this machine and this user; what is not there is null, false or an empty list."""
    offset_s = time.localtime().tm_gmtoff
    return {
        "hostname": socket.gethostname(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "user": _user(),
        "group_ids": {name: _group_id(name) for name in ("video", "render")},
        "kernel": platform.release(),
        "os": _os_name(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "shm_bytes": _size_bytes("/dev/shm"),  # noqa: S108  # read, not written
        "memlock_bytes": _limit(resource.RLIMIT_MEMLOCK),
        "nofile": _limit(resource.RLIMIT_NOFILE),
        "utc_offset_s": offset_s,
        "pid_namespace": pid_namespace(),
        "kfd": os.path.exists("/dev/kfd"),
        "dri": _paths("/dev/dri/*[0-9]"),
        "nvidia": _paths("/dev/nvidia[0-9]*"),
        "infiniband": _paths("/dev/infiniband/*"),
        **clock(),
    }


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a uid without a name, as containers have
        return str(os.getuid())


def _group_id(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _os_name() -> str:
    for line in _read("/etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip("\"'")
    return platform.system()


def _size_bytes(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_frsize * status.f_blocks


def _limit(which: int) -> int:
    """Give the soft limit; -1 is unlimited, as container engines write it."""
    soft = resource.getrlimit(which)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def _paths(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern))


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
