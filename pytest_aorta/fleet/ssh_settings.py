"""Settings: what the cluster file and the user's ssh configuration say about the way to a host."""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fabric
import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.ssh_exception import CouldNotCanonicalize

from pytest_aorta.fleet.ssh_keys import KnownHosts, Policy, lookup_name
from pytest_aorta.fleet.ssh_paths import LISTS, in_home, known_hosts_files, nameless

_INCLUDE_DEPTH = 16
_DIRECTIVE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)\s*$")
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

    @property
    def place(self) -> str:
        """Say where it leads."""
        return f"{self.connection.host} port {self.connection.port} as {self.connection.user}"


class SecurityKey(OSError):
    """A key file that is of use only with the device that it was made with: the agent speaks to that, we do not."""


def read_ssh_config() -> paramiko.SSHConfig:
    """Read the user's and the system's ssh configuration, with what they include.

    Raises:
        OSError: it cannot be read.
    """
    lines = [
        line
        for path in (in_home("~/.ssh/config"), Path("/etc/ssh/ssh_config"))
        for line in ["Host *", *_included(path, path.parent, _INCLUDE_DEPTH)]
    ]
    try:
        return paramiko.SSHConfig.from_text("\n".join(lines))
    except paramiko.ConfigParseError as error:
        raise OSError(f"the ssh configuration (~/.ssh/config, /etc/ssh/ssh_config) cannot be read: {error}") from error


def way_to(address: str, access: Access, connect_timeout_s: float) -> list[Hop]:
    """Give the connections on the way to a host, the first jump host first; none is opened.

    Raises:
        OSError: what is configured cannot be used.
    """
    config = fabric.Config(ssh_config=read_ssh_config(), lazy=True)
    with _told_by_lookups():
        chain = _chain(address, access.username, config, ())
    return [_prepared(hop, access, connect_timeout_s, is_last=hop is chain[-1]) for hop in chain]


@contextlib.contextmanager
def _told_by_lookups() -> Iterator[None]:
    """Tell as an OSError what paramiko raises where it looks a host up in the ssh configuration."""
    try:
        yield
    except CouldNotCanonicalize as error:
        raise OSError(
            f"the name {error} could not be made canonical, as CanonicalizeHostname of the ssh configuration asks, "
            "expected it in one of its CanonicalDomains; correct node_dict, or set CanonicalizeFallbackLocal to yes"
        ) from error
    except KeyError as error:
        if "getpwuid" not in str(error):
            raise
        raise nameless() from error


def _chain(place: str, user: str | None, config: fabric.Config, behind: tuple[str, ...]) -> list[fabric.Connection]:
    """Give the connections to a place, those to its jump hosts first.

    Fabric's own reading of ProxyJump takes several of them in the wrong order, and `none` for the name of one.
    """
    host = _parts(place)[1]
    if host in behind:
        raise OSError(f"the jump hosts of the ssh configuration lead round in a circle: {', '.join((*behind, host))}")
    own = config.base_ssh_config.lookup(host)
    jumps = [jump.strip() for jump in own.get("proxyjump", "none").split(",")]
    chain: list[fabric.Connection] = []
    for jump in jumps:
        if jump.lower() == "none" or _parts(jump)[1] in {host, own.get("hostname")}:  # a pattern may cover it as well
            continue
        if chain:
            chain.append(_connection(jump, None, config, chain[-1]))
        else:
            chain = _chain(jump, None, config, (*behind, host))
    return [*chain, _connection(place, user, config, chain[-1] if chain else own.get("proxycommand") or False)]


def _connection(place: str, user: str | None, config: fabric.Config, gateway: Any) -> fabric.Connection:
    own_user, host, port = _parts(place)
    return fabric.Connection(host, user=user or own_user, port=port, config=config.clone(), gateway=gateway)


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
    if access.key_file and is_last:
        keys |= _key(access.key_file, passphrase)
    only_agent = False
    for name in config.get("identityfile", []):
        try:
            keys |= _key(name, passphrase)
        except SecurityKey:
            only_agent = True
        except OSError:  # as ssh does, which passes over what is absent
            continue
    if access.key_file and not is_last:  # a jump host has its own keys first
        keys |= _key(access.key_file, None)
    locked = tuple(path for path, is_locked in keys.items() if is_locked)
    known = _known_hosts(connection, access)
    only_listed = config.get("identitiesonly", "no").lower() == "yes" and not (locked or only_agent)
    kwargs: dict[str, Any] = {
        "key_filename": [path for path in keys if path not in locked],
        "look_for_keys": not keys,
        "allow_agent": not only_listed and config.get("identityagent", "").lower() != "none",
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
    return Hop(connection, known, tuple(keys), locked, not is_last)


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


def _known_hosts(connection: fabric.Connection, access: Access) -> KnownHosts:
    config = connection.ssh_config
    files = [in_home(access.known_hosts)] if access.known_hosts else known_hosts_files(connection)
    name = config.get("hostkeyalias") or lookup_name(connection.host, connection.port)
    return KnownHosts(
        files,
        access.policy,
        name,
        alias=connection.original_host if connection.gateway else "",
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


def _included(path: Path, base: Path, depth: int) -> Iterator[str]:
    """Give the lines of an ssh configuration with those of the files that it includes in their place."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except (FileNotFoundError, IsADirectoryError):
        return
    except OSError as error:
        raise OSError(f"the ssh configuration {path} cannot be read: {error.strerror}") from error
    block = "Host *"
    for line in lines:
        found = _DIRECTIVE.match(line)
        word = found[1].lower() if found else ""
        if word in {"host", "match"}:
            block = line
        if found is None or word != "include" or not depth:
            # paramiko takes a pair of quotes off, which may be those of the first name and of the last
            yield f'{found[1]} "{found[2]}"' if found and word in LISTS else line
            continue
        for pattern in found[2].split():
            wanted = base / Path(pattern.strip('"')).expanduser()
            for name in sorted(glob.glob(str(wanted))):  # noqa: PTH207  # Path.glob takes no absolute pattern
                yield from _included(Path(name), base, depth - 1)
        yield block  # what follows belongs to it again
