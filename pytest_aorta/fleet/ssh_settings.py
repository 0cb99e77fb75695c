"""Settings: what the cluster file and the user's ssh configuration say about the way to a host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import fabric
import paramiko

from pytest_aorta.fleet.ssh_agent import agent_socket
from pytest_aorta.fleet.ssh_config import look_up
from pytest_aorta.fleet.ssh_config_plain import Found
from pytest_aorta.fleet.ssh_identity import certificates, identities, usual_names
from pytest_aorta.fleet.ssh_keys import HostKeyRefused, KnownHosts, Policy, lookup_name
from pytest_aorta.fleet.ssh_login import Login
from pytest_aorta.fleet.ssh_paths import expanded, in_home, known_hosts_files
from pytest_aorta.fleet.ssh_proxy import Proxy, ProxyEnded
from pytest_aorta.fleet.ssh_transport import NoGreeting, factory_of_transports, readable

CONNECT_LIMIT_S = 50.0  # for all the way: within it a host can be told to be silent before its start counts as late
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
    login: Login
    is_jump: bool = False
    is_bounded: bool = False
    proxy: Proxy | None = None

    def open(self) -> None:
        """Connect.

        Raises:
            OSError, EOFError, paramiko.SSHException: why not.
        """
        if self.proxy is not None:
            self.connection.connect_kwargs["sock"] = self.proxy.start()
        try:
            self.connection.open()
        except (paramiko.AuthenticationException, HostKeyRefused):
            raise
        except (OSError, EOFError, paramiko.SSHException) as error:
            heard = getattr(self.connection.client.get_transport(), "heard", b"")
            if how := self.proxy.why_ended(heard) if self.proxy is not None else "":
                raise ProxyEnded(how) from error
            if heard:
                raise NoGreeting(readable(heard)) from error
            raise

    @property
    def place(self) -> str:
        """Say where it leads."""
        return f"{self.connection.host} port {self.connection.port} as {self.connection.user}"


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
    limit_s = CONNECT_LIMIT_S / len(chain)
    return [_prepared(hop, access, connect_timeout_s, limit_s, is_last=hop is chain[-1]) for hop in chain]


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


def _prepared(
    connection: fabric.Connection, access: Access, connect_timeout_s: float, limit_s: float, *, is_last: bool
) -> Hop:
    """Have a connection offer our keys and judge the host's."""
    wanted_s = connection.connect_timeout or connect_timeout_s
    connection.connect_timeout = min(wanted_s, limit_s)
    config = connection.ssh_config
    command = config.get("proxycommand") if not connection.gateway else None
    proxy = Proxy(expanded(command, connection, "ProxyCommand")) if command else None
    known = _known_hosts(connection, access, is_direct=not (connection.gateway or proxy))
    login = _login(connection, access, is_last=is_last)
    connection.connect_kwargs = {
        "auth_strategy": login,
        "banner_timeout": connection.connect_timeout,
        "auth_timeout": connect_timeout_s,
        "channel_timeout": connect_timeout_s,
        "transport_factory": factory_of_transports(known.kinds()),
    }
    connection.forward_agent = False
    connection.client.set_missing_host_key_policy(known)
    return Hop(connection, known, login, not is_last, wanted_s > limit_s, proxy)


def _login(connection: fabric.Connection, access: Access, *, is_last: bool) -> Login:
    """Give what is offered; the password is for the last host only."""
    config = connection.ssh_config
    passphrase = access.password if is_last else None
    own = str(in_home(access.key_file)) if access.key_file else None
    others = [name for name in config.get("identityfile", usual_names()) if name != own]
    listed = _expanded("CertificateFile", connection, config.get("certificatefile", []))
    found = [*identities(own, passphrase, is_given=True, with_certificate=not listed)] if own else []
    for name in _expanded("IdentityFile", connection, others):
        if str(in_home(name)) != own:
            found += identities(name, passphrase, with_certificate=not listed)
    return Login(
        connection.user,
        tuple(found),
        tuple(certificate for name in listed for certificate in certificates(name)),
        agent_socket(connection),
        config.get("identitiesonly", "no").lower() == "yes",
        passphrase,
        connection.connect_timeout,
    )


def _expanded(keyword: str, connection: fabric.Connection, names: list[str]) -> list[str]:
    return [expanded(name, connection, keyword) for name in names if name.lower() != "none"]


def _known_hosts(connection: fabric.Connection, access: Access, *, is_direct: bool) -> KnownHosts:
    config = connection.ssh_config
    files = [in_home(access.known_hosts)] if access.known_hosts else known_hosts_files(connection)
    key_alias = config.get("hostkeyalias")
    return KnownHosts(
        files,
        access.policy,
        key_alias or lookup_name(connection.host, connection.port),
        alias="" if is_direct and not key_alias else connection.original_host,
        hashed=config.get("hashknownhosts", "no").lower() == "yes",
    )
