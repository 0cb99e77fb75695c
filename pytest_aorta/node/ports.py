"""Ports: one that this machine keeps free for somebody, and whether another machine's can be reached."""

from __future__ import annotations

import socket
import time

from .requests import Answer, CommandError, sentence

BACKLOG = 4096


class Offers:
    """Ports that are listened on, so that others can try to reach them and nobody else takes them meanwhile."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def offer(self, port: int) -> Answer:
        """Listen on a port of all addresses, 0 for any free one; nobody is ever answered.

        Raises:
            CommandError: the port is taken.
        """
        listener = _listener()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise CommandError("failed", f"port {port} cannot be used: {sentence(error)}") from error
        number = int(listener.getsockname()[1])
        self._sockets[number] = listener
        return {"port": number}

    def withdraw(self, port: int) -> Answer:
        """Let go of a port; whoever connected is cut off and leaves nothing that would keep it taken."""
        listener = self._sockets.pop(port, None)
        if listener is not None:
            listener.close()
        return {"known": listener is not None}


def reach(address: str, port: int, timeout_s: float) -> Answer:
    """Try to connect; `why` says why it cannot be done, `peer` is the address that the name stands for here."""
    deadline_s = time.monotonic() + timeout_s
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return {"why": f"the name {address} is not known here: {error.strerror or error}", "peer": None}
    why, peer = "", None
    for family, kind, protocol, _, where in found:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            break
        peer = str(where[0])
        with socket.socket(family, kind, protocol) as attempt:
            attempt.settimeout(left_s)
            try:
                attempt.connect(where)
            except socket.timeout:
                why = f"no answer from {peer} within {timeout_s:g} s"
            except OSError as error:
                why = f"{peer}: {sentence(error)}"
            else:
                return {"why": "", "peer": peer}
    return {"why": why or "it has no address", "peer": peer}


def _listener() -> socket.socket:
    """Make a socket for IPv6 and IPv4 at once, for IPv4 alone where there is no IPv6."""
    if socket.has_ipv6:
        try:
            listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        except OSError:
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return listener
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
