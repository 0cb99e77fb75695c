"""Cluster: the hosts of a run in rank order, and how they are reached."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from pytest_aorta.config.cluster_file import ClusterFile, Transport
from pytest_aorta.config.document import JsonPath, PathFault, Places, Table, path_text
from pytest_aorta.config.host_names import one_spelling
from pytest_aorta.config.placeholders import with_user
from pytest_aorta.config.validation import examine, near, validate_pruned

REGION: JsonPath = ("cluster",)
_SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "SPUR_NODES")
_UPSTREAM_OPAQUE = ("env_vars", "container", "password")
OF_OTHER_TOOLS = "it is a field of other tools"
_MOST_WARNINGS = 50
_MOST_OWNERS = 3
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of the run; `address` is what the other hosts reach it by."""

    name: str
    address: str
    rank: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """The hosts in rank order and how they are reached; `given` is false when no cluster was named at all."""

    hosts: tuple[Host, ...]
    username: str
    transport: Transport
    priv_key_file: str | None = None
    password: SecretStr | None = field(default=None, repr=False)
    known_hosts: str | None = None
    host_key_policy: Literal["reject", "accept-new"] = "reject"
    given: bool = True

    def document(self) -> dict[str, Any]:
        """Write the cluster as a cluster file, with the transport that was resolved; the password is in clear."""
        written = {
            "username": self.username,
            "priv_key_file": self.priv_key_file,
            "password": self.password.get_secret_value() if self.password else None,
            "known_hosts": self.known_hosts,
        }
        return {
            **{name: value for name, value in written.items() if value is not None},
            "transport": self.transport,
            "host_key_policy": self.host_key_policy,
            "node_dict": {host.name: {"vpc_ip": host.address} for host in self.hosts},
        }


def login_user() -> str:
    """Name the user that runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "root"


def this_machine() -> Cluster:
    """Give the cluster of one host, this one."""
    host = Host(socket.gethostname() or "localhost", "127.0.0.1", 0)
    return Cluster((host,), login_user(), "local", given=False)


def username_of(document: Mapping[str, Any] | None) -> str:
    """Give what `{user-id}` stands for: the cluster's user name, or the login user where it names none."""
    name = (document or {}).get("username")
    return login_user() if not isinstance(name, str) or name in {"", "{user-id}"} else name


def examine_cluster(document: Table) -> tuple[Cluster | None, tuple[PathFault, ...], tuple[str, ...]]:
    """Read a cluster document: the cluster, or its faults; and the warnings about what is ignored in it."""
    known = with_user(document, login_user())
    file, faults = examine(ClusterFile, known, region=REGION, is_opaque=lambda path: path[0] in _UPSTREAM_OPAQUE)
    if file is None:
        return None, tuple(_all_faults(known, faults)), ()
    cluster = _cluster_of(file)
    broken = tuple(_broken(file, cluster))
    return (None if broken else cluster), broken, tuple(_warnings(file, cluster))


def _cluster_of(file: ClusterFile) -> Cluster:
    hosts = tuple(Host(name, node.vpc_ip or name, rank) for rank, (name, node) in enumerate(file.node_dict.items()))
    return Cluster(
        hosts=hosts,
        username=file.username or login_user(),
        transport=resolve_transport(file.transport, hosts),
        priv_key_file=file.priv_key_file or None,
        password=file.password if file.password and file.password.get_secret_value() else None,
        known_hosts=file.known_hosts or None,
        host_key_policy=file.host_key_policy,
    )


def _all_faults(document: Table, faults: tuple[PathFault, ...]) -> Iterator[PathFault]:
    """Give the faults of a file that cannot be read as it is, and those that the rest of it has.

    Nodes under a name that is nearly node_dict are looked at as well.
    """
    names = [name for name in document if near(name, ("node_dict",))] if "node_dict" not in document else []
    if names:
        meant = Table(("node_dict" if name == names[0] else name, value) for name, value in document.items())
        hint = _misspelt(names, ("node_dict",))
        yield from (replace(f, message=f.message + hint) if f.path == ("node_dict",) else f for f in faults)
        for fault in examine_cluster(meant)[1]:
            if fault not in faults:
                path = (names[0], *fault.path[1:]) if fault.path[:1] == ("node_dict",) else fault.path
                yield replace(fault, path=path)
        return
    yield from faults
    rest = validate_pruned(ClusterFile, document, {"node_dict": {"node": {}}}) if "node_dict" in document else None
    known = Places(faults)
    if rest is not None:
        yield from (fault for fault in _broken(rest, _cluster_of(rest)) if not known.touch(fault.path))


def resolve_transport(asked: Literal["auto", "local", "ssh", "slurm"], hosts: tuple[Host, ...]) -> Transport:
    """Resolve `auto`: slurm inside a scheduler's job, local when the only host is this machine, else ssh."""
    if asked != "auto":
        return asked
    if any(os.environ.get(name) for name in _SCHEDULER_VARIABLES):
        return "slurm"
    return "local" if len(hosts) == 1 and is_this_machine(hosts[0]) else "ssh"


def is_this_machine(host: Host) -> bool:
    """Tell whether a host is the machine we run on, by name or by an address of its own; no name is looked up."""
    own = socket.gethostname()
    names = {own.lower(), own.partition(".")[0].lower(), *_LOOPBACK}
    return host.name.lower() in names or host.address.lower() in names or _is_own_address(host.address)


def ignored_fields(model: BaseModel, path: JsonPath = ()) -> Iterator[tuple[JsonPath, tuple[str, ...]]]:
    """Give the place of each field that a tolerant section ignores, with the names of those that count there.

    What all of several like sections have, or many of them, is given once, with * for their names.
    """
    known = tuple(type(model).model_fields)
    for name in model.model_extra or {}:
        if not name.startswith("_"):
            yield (*path, name), known
    for name in known:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from ignored_fields(value, (*path, name))
        elif isinstance(value, dict):
            sections = {key: child for key, child in value.items() if isinstance(child, BaseModel)}
            owners: dict[tuple[JsonPath, tuple[str, ...]], list[str]] = {}
            for key, child in sections.items():
                for found in ignored_fields(child):
                    owners.setdefault(found, []).append(key)
            for (place, names), keys in owners.items():
                shown = ["*"] if len(keys) > min(_MOST_OWNERS, len(sections) - 1) > 0 else keys
                yield from (((*path, name, key, *place), names) for key in shown)


def ignored_warnings(model: BaseModel, path: JsonPath) -> list[str]:
    """Give one warning for each ignored field, a hint when it resembles one that counts; the first fifty of many.

    The same field of many nodes, or of all, is told once.
    """
    found = list(dict.fromkeys(ignored_fields(model, path)))
    hints = [(place, near(str(place[-1]), known)) for place, known in found[:_MOST_WARNINGS]]
    told = [
        f"{path_text(place)} is ignored: {'there is no such field' if hint else OF_OTHER_TOOLS}{hint}"
        for place, hint in hints
    ]
    if len(found) > len(told):
        told.append(f"{path_text(path)}: {len(found) - len(told)} more fields are ignored")
    return told


def _broken(file: ClusterFile, cluster: Cluster) -> Iterator[PathFault]:
    if cluster.transport == "ssh" and not file.username:
        told = "is missing, expected the login name on the nodes; set it"
        yield PathFault(("username",), told + _misspelt(file.model_extra or (), ("username",)))
    if cluster.transport != "local":
        yield from _named_twice(cluster.hosts)


def _misspelt(names: Iterable[str], wanted: tuple[str, ...]) -> str:
    """Give a hint where a field that is ignored resembles one that is missing."""
    found = ((name, near(name, wanted)) for name in names if not name.startswith("_"))
    return next((f"; seen {path_text((name,))}{hint}" for name, hint in found if hint), "")


def _named_twice(hosts: tuple[Host, ...]) -> Iterator[PathFault]:
    """Find hosts whose name or address is that of another one, in whatever spelling."""
    names: dict[str, str] = {}
    addresses: dict[str, str] = {}
    for host in hosts:
        name, address = one_spelling(host.name), one_spelling(host.address)
        if name in names:
            yield PathFault(
                ("node_dict", host.name),
                f"seen the name of {names[name]} again, expected each machine once; remove one of them",
            )
        elif address in addresses:
            yield PathFault(
                ("node_dict", host.name, *(() if host.address == host.name else ("vpc_ip",))),
                f"seen {host.address}, which is {addresses[address]}'s already, expected an address of its own",
            )
        names.setdefault(name, host.name)
        addresses.setdefault(address, host.name)


def _warnings(file: ClusterFile, cluster: Cluster) -> Iterator[str]:
    yield from ignored_warnings(file, REGION)
    head = file.head_node_dict.mgmt_ip if file.head_node_dict else None
    if head and head not in {cluster.hosts[0].name, cluster.hosts[0].address}:
        yield (
            f"cluster.head_node_dict.mgmt_ip ({head}) is ignored: rank 0 is the first of node_dict "
            f"({cluster.hosts[0].name})"
        )
    if cluster.transport == "local" and len(cluster.hosts) > 1:
        yield f"cluster.transport is local with {len(cluster.hosts)} nodes: all of them are this machine"


def _is_own_address(address: str) -> bool:
    if not re.fullmatch(r"[0-9.]+|[0-9A-Fa-f:]+", address):
        return False
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
