"""Settings: what the cluster file and the user's ssh configuration say about the way to a host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import fabric
import paramiko
from cryptography.exceptions import UnsupportedAlgorithm

from pytest_aorta.fleet.ssh_agent import Agent, agent_socket, public_key
from pytest_aorta.fleet.ssh_config import look_up
from pytest_aorta.fleet.ssh_config_plain import Found
from pytest_aorta.fleet.ssh_keys import HostKeyRefused, KnownHosts, Policy, lookup_name
from pytest_aorta.fleet.ssh_paths import expanded, in_home, known_hosts_files
from pytest_aorta.fleet.ssh_proxy import Proxy, ProxyEnded

HUNG_UP = "it hung up while keys were tried"
_HOST_AND_PORT = re.compile(r"(?:\[(.+)\]|([^:]+))(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Access:
    """What opens the hosts of a cluster; the user's ssh configuration says the rest."""

    username: str
    key_file: str | None = None
    password: str | None = field(default=None, repr=False)
    known_hosts: str | None = None
    policy: Policy = "reject"


@dataclass(frozen=True, slots=True)
class Hop:
    """One connection of the way to a host: the host itself, or a jump host."""

    connection: fabric.Connection
    known: KnownHosts
    key_files: tuple[str, ...]
    locked: tuple[str, ...]
    is_jump: bool = False
    is_key_given: bool = False
    proxy: Proxy | None = None
    agent: str = ""
    listed: frozenset[bytes] | None = None

    def open(self) -> None:
        """Connect.

        Raises:
            OSError, EOFError, paramiko.SSHException: why not.
        """
        if self.proxy is not None:
            self.connection.connect_kwargs["sock"] = self.proxy.start()
        if self.agent:
            self.connection.client._agent = Agent(self.agent, self.connection.connect_timeout, self.listed)  # noqa: SLF001  # no other way
        try:
            self.connection.open()
        except (paramiko.AuthenticationException, HostKeyRefused):
            raise
        except (OSError, EOFError, paramiko.SSHException) as error:
            if how := self.proxy.why_ended() if self.proxy is not None else "":
                raise ProxyEnded(how) from error
            transport = self.connection.client.get_transport()
            if type(error) is paramiko.SSHException and transport is not None and transport.initial_kex_done:
                # the greeting was over: paramiko calls an RSA key that is refused an invalid one
                hung_up = not transport.is_active()
                raise paramiko.AuthenticationException(HUNG_UP if hung_up else str(error)) from error
            raise

    @property
    def place(self) -> str:
        """Say where it leads."""
        return f"{self.connection.host} port {self.connection.port} as {self.connection.user}"


class SecurityKey(OSError):
    """A key file that is of use only with the device that it was made with: the agent speaks to that, we do not."""


class _Config(paramiko.SSHConfig):  # type: ignore[misc]
    """An ssh configuration that was looked up already."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self._found = found

    def lookup(self, hostname: str) -> Found:
        """Give what was found."""
        return self._found


def way_to(address: str, access: Access, connect_timeout_s: float) -> list[Hop]:
    """Give the connections on the way to a host, the first jump host first; none is opened.

    Raises:
        OSError: what is configured cannot be used.
    """
    chain = _chain(address, access.username, access.key_file, ())
    return [_prepared(hop, access, connect_timeout_s, is_last=hop is chain[-1]) for hop in chain]


def _chain(place: str, user: str | None, key_file: str | None, behind: tuple[str, ...]) -> list[fabric.Connection]:
    """Give the connections to a place, those to its jump hosts first.

    Fabric's own reading of ProxyJump takes several of them in the wrong order, and `none` for the name of one.
    """
    own_user, host, port = _parts(place)
    if host in behind:
        raise OSError(f"the jump hosts of the ssh configuration lead round in a circle: {', '.join((*behind, host))}")
    own = look_up(host, user or own_user, port, key_file)
    jumps = [jump.strip() for jump in own.get("proxyjump", "none").split(",")]
    chain: list[fabric.Connection] = []
    for jump in jumps:
        if jump.lower() == "none" or _parts(jump)[1] in {host, own.get("hostname")}:  # a pattern may cover it as well
            continue
        if chain:
            jump_user, jump_host, jump_port = _parts(jump)
            chain.append(_connection(jump, None, look_up(jump_host, jump_user, jump_port), chain[-1]))
        else:
            chain = _chain(jump, None, None, (*behind, host))
    return [*chain, _connection(place, user, own, chain[-1] if chain else False)]


def _connection(place: str, user: str | None, found: Found, gateway: Any) -> fabric.Connection:
    own_user, host, port = _parts(place)
    config = fabric.Config(ssh_config=_Config(found), lazy=True)
    return fabric.Connection(host, user=user or own_user, port=port, config=config, gateway=gateway)


def _parts(place: str) -> tuple[str | None, str, int | None]:
    """Give user, host and port of `user@host:port`, of which only the host has to be there."""
    user, _, rest = place.removeprefix("ssh://").rpartition("@")
    found = _HOST_AND_PORT.fullmatch(rest)
    host, port = (found[1] or found[2], found[3]) if found else (rest, None)
    return user or None, host, int(port) if port else None


def _prepared(connection: fabric.Connection, access: Access, connect_timeout_s: float, *, is_last: bool) -> Hop:
    """Have a connection ask for our keys and judge the host's; the password is for the last host only."""
    config = connection.ssh_config
    passphrase = access.password if is_last else None
    keys: dict[str, bool] = {}  # whether each is locked
    public: set[bytes] = set()  # keys that are listed and that only the agent can hold
    own = str(in_home(access.key_file)) if access.key_file and is_last else None
    if own:
        keys |= _key(own, passphrase)
    only_agent = False
    for written in config.get("identityfile", []):
        if written == own:
            continue
        name = expanded(written, connection, "IdentityFile")
        try:
            keys |= _key(name, passphrase)
        except SecurityKey:
            only_agent = True
        except OSError:  # as ssh does, which passes over what is absent
            public |= public_key(name)
    if access.key_file and not is_last:  # a jump host has its own keys first
        keys |= _key(access.key_file, None)
    locked = tuple(path for path, is_locked in keys.items() if is_locked)
    command = config.get("proxycommand") if not connection.gateway else None
    proxy = Proxy(expanded(command, connection, "ProxyCommand")) if command else None
    known = _known_hosts(connection, access, is_direct=not (connection.gateway or proxy))
    only_listed = config.get("identitiesonly", "no").lower() == "yes"
    agent = "" if only_listed and not (locked or only_agent or public) else agent_socket(config)
    listed = frozenset(public) if only_listed and not (locked or only_agent) else None
    kwargs: dict[str, Any] = {
        "key_filename": [path for path in keys if path not in locked],
        "look_for_keys": not (keys or public),
        "allow_agent": bool(agent),
        "password": passphrase,
        "banner_timeout": connect_timeout_s,
        "auth_timeout": connect_timeout_s,
        "channel_timeout": connect_timeout_s,
        "transport_factory": _transport_factory(known.kinds()),
    }
    connection.connect_kwargs = kwargs
    connection.connect_timeout = connection.connect_timeout or connect_timeout_s
    connection.forward_agent = False
    connection.client.set_missing_host_key_policy(known)
    return Hop(connection, known, tuple(keys), locked, not is_last, bool(own), proxy, agent, listed)


def _transport_factory(kinds: tuple[str, ...]) -> Any:
    """Give a maker of transports that ask for the kinds of host key that are known before any other."""

    def make(sock: Any, **options: Any) -> paramiko.Transport:
        transport = _Transport(sock, **options)
        security = transport.get_security_options()
        security.key_types = sorted(security.key_types, key=lambda kind: _key_kind(kind) not in kinds)
        return transport

    return make


class _Transport(paramiko.Transport):  # type: ignore[misc]
    """Asks nobody at a terminal."""

    def auth_interactive_dumb(self, username: str, handler: Any = None, submethods: str = "") -> list[str]:
        """Refuse what would be a prompt."""
        raise paramiko.AuthenticationException("a second factor is asked for")


def _key_kind(algorithm: str) -> str:
    """Give the kind of key that a signature algorithm needs."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def _known_hosts(connection: fabric.Connection, access: Access, *, is_direct: bool) -> KnownHosts:
    config = connection.ssh_config
    files = [in_home(access.known_hosts)] if access.known_hosts else known_hosts_files(connection)
    name = config.get("hostkeyalias") or lookup_name(connection.host, connection.port)
    return KnownHosts(
        files,
        access.policy,
        name,
        alias="" if is_direct else connection.original_host,
        hashed=config.get("hashknownhosts", "no").lower() == "yes",
    )


def _key(name: str, passphrase: str | None) -> dict[str, bool]:
    path = str(in_home(name))
    return {path: is_locked(path, passphrase)}


def is_locked(path: str, passphrase: str | None) -> bool:
    """Tell whether a key needs a passphrase that we do not have; its holder may be the agent.

    Raises:
        SecurityKey: it is that of a device.
        OSError: it is absent, or no private key.
    """
    try:
        paramiko.PKey.from_path(path)
    except TypeError:  # it is encrypted
        return passphrase is None or not _opens(path, passphrase)
    except (ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType, UnsupportedAlgorithm) as error:
        if str(error).startswith("sk-"):
            raise SecurityKey(
                f"the key file {path} is that of a security key, which only the agent can use; do `ssh-add {path}`, "
                "and leave priv_key_file out"
            ) from error
        raise OSError(f"the key file {path} holds no private key of a known kind; correct priv_key_file") from error
    except OSError as error:
        raise OSError(f"the key file {path} cannot be read: {error.strerror}; correct priv_key_file") from error
    return False


def _opens(path: str, passphrase: str) -> bool:
    for kind in (paramiko.RSAKey, paramiko.ECDSAKey, paramiko.Ed25519Key):
        try:
            kind.from_private_key_file(path, passphrase)
        except (paramiko.SSHException, ValueError):
            continue
        return True
    return False
