"""Cluster: the hosts of a run in rank order, and how they are reached."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, SecretStr

from pytest_aorta.config.cluster_file import ClusterFile, Transport
from pytest_aorta.config.document import JsonPath, PathFault, Table, path_text
from pytest_aorta.config.host_names import one_spelling
from pytest_aorta.config.placeholders import with_user
from pytest_aorta.config.validation import examine, near

REGION: JsonPath = ("cluster",)
_SCHEDULER_VARIABLES = ("SLURM_JOB_ID", "SPUR_NODES")
_UPSTREAM_OPAQUE = ("env_vars", "container", "password")
_MOST_WARNINGS = 50
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
    file, faults = examine(
        ClusterFile,
        with_user(document, login_user()),
        region=REGION,
        is_opaque=lambda path: path[0] in _UPSTREAM_OPAQUE,
    )
    if file is None:
        return None, faults, ()
    hosts = tuple(Host(name, node.vpc_ip or name, rank) for rank, (name, node) in enumerate(file.node_dict.items()))
    transport = resolve_transport(file.transport, hosts)
    cluster = Cluster(
        hosts=hosts,
        username=file.username or login_user(),
        transport=transport,
        priv_key_file=file.priv_key_file or None,
        password=file.password if file.password and file.password.get_secret_value() else None,
        known_hosts=file.known_hosts or None,
        host_key_policy=file.host_key_policy,
    )
    broken = tuple(_broken(file, cluster))
    return (None if broken else cluster), broken, tuple(_warnings(file, cluster))


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
    """Give the place of each field that a tolerant section ignores, with the names of those that count there."""
    known = tuple(type(model).model_fields)
    for name in model.model_extra or {}:
        if not name.startswith("_"):
            yield (*path, name), known
    for name in known:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from ignored_fields(value, (*path, name))
        elif isinstance(value, dict):
            for child in value.values():
                if isinstance(child, BaseModel):
                    yield from ignored_fields(child, (*path, name, "*"))


def ignored_warnings(model: BaseModel, path: JsonPath) -> list[str]:
    """Give one warning for each ignored field, a hint when it resembles one that counts; the first fifty of many.

    The same field of several nodes is told once.
    """
    found = list(dict.fromkeys(ignored_fields(model, path)))
    told = [
        f"{path_text(place)} is ignored: it is a field of other tools{near(str(place[-1]), known)}"
        for place, known in found[:_MOST_WARNINGS]
    ]
    if len(found) > len(told):
        told.append(f"{path_text(path)}: {len(found) - len(told)} more fields are ignored")
    return told


def _broken(file: ClusterFile, cluster: Cluster) -> Iterator[PathFault]:
    if cluster.transport == "ssh":
        if not file.username:
            told = "is missing, expected the login name on the nodes; set it"
            yield PathFault(("username",), told + _misspelt(file, ("username",)))
        if cluster.priv_key_file is None and cluster.password is None:
            told = "is missing, expected a key file (or password) for SSH; set one of them"
            yield PathFault(("priv_key_file",), told + _misspelt(file, ("priv_key_file", "password")))
    if cluster.transport != "local":
        yield from _named_twice(cluster.hosts)


def _misspelt(file: ClusterFile, wanted: tuple[str, ...]) -> str:
    """Give a hint where a field that is ignored resembles one that is missing."""
    found = ((name, near(name, wanted)) for name in file.model_extra or {} if not name.startswith("_"))
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
