"""Host names: what may name a host or a user of it, and which spellings mean the same host."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Annotated

from pydantic import AfterValidator

from pytest_aorta.config.fields import refuse
from pytest_aorta.config.redact import REDACTED

_MOST_HOST_CHARS = 253  # of a name in the DNS
_MOST_LABEL_CHARS = 63
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.\-]*")
_SHORT_IPV4 = re.compile(r"[0-9]+(\.[0-9]+){1,3}")
# Source: valid_ruser() of OpenSSH's ssh.c; white space is refused as well.
_NOT_IN_A_USER = re.compile(r"^-|[\s\x00-\x1f\x7f'`\";&<>|(){}]|\\$")


def one_spelling(host: str) -> str:
    """Give one spelling of a name or address for all that mean the same; no name is looked up."""
    plain = host.removeprefix("[").removesuffix("]")
    if ":" in plain:
        try:
            address = ipaddress.IPv6Address(plain)
        except ValueError:
            return plain
        return str(address.ipv4_mapped or address)
    if _SHORT_IPV4.fullmatch(plain):
        try:
            return socket.inet_ntoa(socket.inet_aton(plain))
        except OSError:
            return plain
    return plain.lower().rstrip(".")


def _host(value: str) -> str:
    if REDACTED not in value and _SHORT_IPV4.fullmatch(value) and not _is_ipv4(value):
        raise refuse("an address of four numbers up to 255, or a name")
    if REDACTED not in value and not _is_host(value):
        raise refuse(
            f"a host's name or address of at most {_MOST_HOST_CHARS} characters, 1 to {_MOST_LABEL_CHARS} between its "
            "dots, not beginning with -, without user and port: those belong into username and ~/.ssh/config"
        )
    return value


def _is_host(value: str) -> bool:
    plain = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    if ":" not in plain:
        return plain == value and len(value) <= _MOST_HOST_CHARS and bool(_NAME.fullmatch(value)) and _has_labels(value)
    try:
        return ipaddress.IPv6Address(plain).scope_id is None
    except ValueError:
        return False


def _is_ipv4(value: str) -> bool:
    try:
        socket.inet_aton(value)
    except OSError:
        return False
    return True


def _has_labels(name: str) -> bool:
    """Tell whether what stands between the dots can be looked up; a last dot ends a complete name."""
    return all(1 <= len(label) <= _MOST_LABEL_CHARS for label in name.removesuffix(".").split("."))


def _user(value: str) -> str:
    if REDACTED not in value and _NOT_IN_A_USER.search(value):
        raise refuse("a login name, not beginning with -, without blanks, quotes, brackets and ; & | < > `")
    return value


def _host_or_none(value: str) -> str:
    return _host(value) if value else value


HostName = Annotated[str, AfterValidator(_host)]
HostNameOrNone = Annotated[str, AfterValidator(_host_or_none)]
UserName = Annotated[str, AfterValidator(_user)]
