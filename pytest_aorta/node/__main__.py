"""Start of the node program: `python program.pyz --lease SECONDS --state-dir DIR`, or `--reap DIR`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import sys

from .children import become_subreaper
from .commands import COMMANDS
from .files import prepare
from .processes import process, wake_shell
from .requests import Answer, CommandError, expanded
from .service import Service
from .state import StateFolder, reap


def main(arguments: list[str] | None = None) -> int:
    """Serve the controller on standard input and output, or end what an earlier program left."""
    parser = argparse.ArgumentParser(prog="aorta-node", description="The part of pytest-aorta that runs on a machine.")
    parser.add_argument("--lease", type=float, default=120.0, metavar="SECONDS", help="end all when nothing is heard")
    parser.add_argument("--state-dir", metavar="DIR", help="where the record of running groups is kept")
    parser.add_argument("--reap", metavar="DIR", help="end what the record in DIR names, print it, and leave")
    options = parser.parse_args(arguments)
    try:
        if options.reap:
            answer = reap(options.reap)
            print(json.dumps(answer))
            return _told_of(answer)
        if not options.state_dir:
            parser.error("--state-dir or --reap is needed")
        return _serve(options.lease, expanded(options.state_dir))
    except CommandError as error:
        print(f"aorta-node: {error.message}", file=sys.stderr)
        return 1


def _told_of(answer: Answer) -> int:
    """Say what could not be ended or undone, and give the exit code."""
    problems = [f"{name} could not be undone: {why}" for name, why in answer["not_undone"].items()]
    if answer["left"]:
        problems.append(f"processes {answer['left']} would not die")
    for problem in problems:
        print(f"aorta-node: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _serve(lease_s: float, state_dir: str) -> int:
    prepare(state_dir)
    in_fd, out_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what is printed by accident must not stand between the lines of the protocol
    become_subreaper()
    Service(COMMANDS, in_fd, out_fd, lease_s, StateFolder(state_dir, secrets.token_hex(8))).serve()
    with contextlib.suppress(OSError, ValueError):  # whoever reads it may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    if (above := process(os.getppid())) is not None:
        wake_shell(above.pid, above.start_ticks)
    os._exit(0)  # worker threads that hang in the file system cannot be waited for


if __name__ == "__main__":
    sys.exit(main())
