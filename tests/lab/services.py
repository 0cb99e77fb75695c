"""Whether this machine can have a lab, and what it lacks."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

PACKAGES = Path(__file__).with_name("packages.txt")


@functools.cache
def find_hindrance(*, podman: bool = False) -> str:
    """One sentence that says why there can be no lab here and how to change it; empty when there can.

    Only a lab with Podman needs it.
    """
    if sys.platform != "linux":
        return "a lab needs Linux: network, mount and pid namespaces"
    if missing := [package for package in missing_packages() if podman or package != "podman"]:
        rest = "" if os.geteuid() == 0 else ", then run the tests as root"
        return f"the lab's services are missing ({', '.join(missing)}): run `make lab-deps`{rest}"
    if os.geteuid() != 0:
        return "a lab needs root: run the tests as root"
    tried = subprocess.run(
        ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "lab", "/tmp"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return f"a lab needs a root that may make namespaces and mounts, this one may not: {tried.stderr.strip()}"
    return ""


def missing_packages() -> list[str]:
    """The Debian packages of packages.txt whose files are not here."""
    rows = [line.split() for line in PACKAGES.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return [package for package, proof in rows if not any(Path("/").glob(proof.lstrip("/")))]
