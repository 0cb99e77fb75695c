"""Environment: how variables reach a container past a client program, standing in no argument list.

A variable is named in an argument and its value put into the client's own environment. Where that would change the
client (PATH, DOCKER_HOST) or sudo would drop it, it goes through the client's standard input, as a line of a file of
variables; what such a line cannot hold is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

STEERING = re.compile(
    r"PATH|HOME|TMPDIR|LANG|LC_.*|LD_.*|GO[A-Z0-9]*|GLIBC_TUNABLES|MALLOC_.*|SSL_CERT_.*|XDG_.*|[A-Za-z_]*_(PROXY|proxy)"
    r"|DOCKER_.*|BUILDKIT_.*|CONTAINERS?_.*|PODMAN_.*|BUILDAH_.*|REGISTRY_.*|STORAGE_.*|NOTIFY_SOCKET|LISTEN_.*"
    r"|AORTA_NODE|AORTA_GROUP|SUDO_.*"
)
LINE_BYTES = 60_000  # docker reads the file with a scanner that takes 64 KiB
PODMAN_READS_INTO = re.compile(r"[\"'`#\\$]|^\s|\s$")  # newer ones take quotes off and comments away


@dataclass(frozen=True, slots=True)
class Passed:
    """`argv` for the client, `env` over its own environment, `lines` for its input; `refused` has sentences."""

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    lines: str = field(default="", repr=False)
    refused: tuple[str, ...] = ()


def passed(variables: Mapping[str, str], program: str, *, through_sudo: bool) -> Passed:
    """Divide the variables between the two ways."""
    by_line = {name for name in variables if through_sudo or STEERING.fullmatch(name)}
    reason = "sudo would drop it" if through_sudo else f"{program} itself would obey it"
    refused = [
        f"env: {name} cannot be passed to {program} exactly, because {reason} and {why}"
        for name in variables
        if name in by_line and (why := _why_no_line(variables[name], program))
    ]
    argv = [f"--env={name}" for name in variables if name not in by_line]
    if by_line:
        argv.append("--env-file=/dev/stdin")
    return Passed(
        tuple(argv),
        {name: value for name, value in variables.items() if name not in by_line},
        "".join(f"{name}={value}\n" for name, value in variables.items() if name in by_line),
        tuple(refused),
    )


def _why_no_line(value: str, program: str) -> str:
    if "\n" in value or "\r" in value:
        return "its value has more than one line"
    if len(value.encode("utf-8", "surrogateescape")) > LINE_BYTES:
        return f"its value is longer than {LINE_BYTES} bytes"
    if program == "podman" and PODMAN_READS_INTO.search(value):
        return "its value has quotes, #, $, a backslash or outer blanks in it, which some versions read into"
    return ""
