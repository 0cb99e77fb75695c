"""Agent: the holder of keys at the socket that the ssh configuration names; paramiko knows SSH_AUTH_SOCK alone."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import fabric
import paramiko
from paramiko.agent import AgentKey, AgentSSH

from pytest_aorta.fleet.ssh_paths import expanded, in_home


def agent_socket(connection: fabric.Connection) -> str:
    """Give the socket of the agent by IdentityAgent, else SSH_AUTH_SOCK; empty: none."""
    wanted = str(connection.ssh_config.get("identityagent", "SSH_AUTH_SOCK"))
    if wanted.lower() == "none":
        return ""
    if wanted == "SSH_AUTH_SOCK" or (wanted.startswith("$") and not wanted.startswith("${")):
        return os.environ.get(wanted.removeprefix("$"), "")
    return str(in_home(expanded(wanted, connection, "IdentityAgent")))


class Agent(paramiko.Agent):  # type: ignore[misc]
    """The agent at a socket, if one is named; one that does not answer holds no keys. `fault` says what failed."""

    def __init__(self, path: str, timeout_s: float) -> None:
        AgentSSH.__init__(self)
        self.fault = ""
        if not path:
            return
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_s)
        try:
            connection.connect(path)
            self._connect(connection)
        except (OSError, paramiko.SSHException) as error:
            self.fault = f"does not answer ({(getattr(error, 'strerror', None) or str(error)).lower()})"
            self._conn = None
            connection.close()
        else:
            connection.settimeout(None)  # somebody may have to touch a key

    def held(self) -> dict[bytes, HeldKey]:
        """Give its keys and certificates, by what is offered of them."""
        return {key.blob: HeldKey(self, key.blob) for key in self.get_keys()}


class HeldKey(AgentKey):  # type: ignore[misc]
    """A key that an agent holds; where that does not sign, the host refuses the key, and the next one is tried."""

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> Any:
        """Give the agent's signature; an empty one where there is none, since an error here ends the connection."""
        before, self.agent.fault = self.agent.fault, "was asked to sign and has not answered"
        try:
            signature = super().sign_ssh_data(data, algorithm)
        except (paramiko.SSHException, OSError, EOFError, struct.error, ValueError, TypeError):
            self.agent.fault = "did not sign"
            return b""
        self.agent.fault = before
        return signature
