"""Agent: the holder of keys at the socket that the ssh configuration names; paramiko knows SSH_AUTH_SOCK alone."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import fabric
import paramiko
from paramiko.agent import SSH2_AGENT_IDENTITIES_ANSWER, AgentKey, AgentSSH, cSSH2_AGENTC_REQUEST_IDENTITIES

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

    _conn: Any

    def __init__(self, path: str, timeout_s: float) -> None:
        AgentSSH.__init__(self)
        self.fault = ""
        self._blobs: list[bytes] = []
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

    def _connect(self, conn: socket.socket) -> None:
        """List what it holds; a comment may be in any encoding, which paramiko's own reading does not survive."""
        self._conn = conn
        kind, answer = self._send_message(cSSH2_AGENTC_REQUEST_IDENTITIES)
        if kind != SSH2_AGENT_IDENTITIES_ANSWER:
            raise paramiko.SSHException("could not get its keys")
        for _ in range(answer.get_int()):
            if not (blob := answer.get_binary()):
                break
            answer.get_binary()  # the comment
            self._blobs.append(blob)

    def held(self) -> dict[bytes, HeldKey]:
        """Give its keys and certificates, by what is offered of them."""
        return {blob: HeldKey(self, blob) for blob in self._blobs}


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
