"""A lab by hand: `python -m tests.lab --docker -- ssh node1 docker ps`, or a shell without a command."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

from .lab import Lab
from .services import find_hindrance


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--docker", action="store_true")
    parser.add_argument("--podman", action="store_true")
    parser.add_argument("--slurm", action="store_true")
    parser.add_argument("--bind", action="append", default=[], metavar="FOLDER", help="seen in each host, read-only")
    parser.add_argument("command", nargs="*", help="run with the lab's ssh and HOME; the lab ends with it")
    options = parser.parse_args()
    if hindrance := find_hindrance(podman=options.podman):
        sys.exit(hindrance)
    begin_s = time.monotonic()
    wishes = {"docker": options.docker, "podman": options.podman, "slurm": options.slurm}
    with Lab.up(options.hosts, **wishes, binds=options.bind) as lab:
        print(f"up after {time.monotonic() - begin_s:.1f} s; ssh -F {lab.ssh_config} node1", file=sys.stderr)
        command = options.command or [os.environ.get("SHELL", "/bin/sh")]
        return subprocess.run(command, env=lab.environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
