"""Agent: the holder of keys at the socket that the ssh configuration names; paramiko knows SSH_AUTH_SOCK alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

import paramiko
from paramiko.agent import AgentSSH

from pytest_aorta.fleet.ssh_paths import in_home


def agent_socket(config: Mapping[str, Any]) -> str:
    """Give the socket of the agent by IdentityAgent, else SSH_AUTH_SOCK; empty: none."""
    wanted = str(config.get("identityagent", "SSH_AUTH_SOCK"))
    if wanted.lower() == "none":
        return ""
    if wanted == "SSH_AUTH_SOCK" or wanted.startswith("$"):
        return os.environ.get(wanted.removeprefix("$"), "")
    return str(in_home(wanted))


def public_key(name: str) -> set[bytes]:
    """Give the key of a public file, or of that beside a private one that is absent; none where there is neither."""
    for path in (in_home(name), in_home(f"{name}.pub")):
        try:
            return {paramiko.PublicBlob.from_file(str(path)).key_blob}
        except (OSError, ValueError, UnicodeDecodeError):
            continue
    return set()


class Agent(paramiko.Agent):  # type: ignore[misc]
    """The agent at a socket; one that does not answer holds no keys. With `listed` keys it holds no others."""

    def __init__(self, path: str, timeout_s: float, listed: frozenset[bytes] | None = None) -> None:
        AgentSSH.__init__(self)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_s)
        try:
            connection.connect(path)
            self._connect(connection)
        except (OSError, paramiko.SSHException):
            self._conn = None
            connection.close()
        else:
            connection.settimeout(None)  # somebody may have to touch a key
            held: tuple[Any, ...] = super().get_keys()
            self._keys = tuple(key for key in held if listed is None or key.asbytes() in listed)
