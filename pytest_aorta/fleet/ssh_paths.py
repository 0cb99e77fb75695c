"""Paths: the files that an ssh configuration names, and what stands for homes, hosts and users in their names."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import fabric

_TOKEN = re.compile(r"%(.?)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_WITH_VARIABLES = frozenset({"CertificateFile", "IdentityAgent", "IdentityFile", "UserKnownHostsFile"})
_USER_FILES = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_FILES = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"


def in_home(path: str) -> Path:
    """Give a path with `~` or `~user` replaced.

    Raises:
        OSError: nobody knows where that home is.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise OSError(
            f"{path}: where that home is is not known, seen neither HOME nor an entry in the list of users (this "
            f"process has uid {os.getuid()}); set HOME, or write the path out"
        ) from error


def nameless() -> OSError:
    """Give the error of a user without a name, which the ssh configuration needs."""
    return OSError(
        f"the ssh configuration needs the name of the user who runs pytest, seen uid {os.getuid()} without an entry in "
        "the list of users; set LOGNAME"
    )


def known_hosts_files(connection: fabric.Connection) -> list[Path]:
    """Give the known-hosts files that the ssh configuration names for a host, the user's first.

    Raises:
        OSError: what names them cannot be understood.
    """
    users = _listed("UserKnownHostsFile", connection, _USER_FILES)
    return [in_home(word) for word in [*users, *_listed("GlobalKnownHostsFile", connection, _GLOBAL_FILES)]]


def _listed(keyword: str, connection: fabric.Connection, usual: str) -> list[str]:
    """Give the names in a list of files: as ssh gave them, or as they are written, with blanks between quotes."""
    value = connection.ssh_config.get(keyword.lower(), usual)
    if isinstance(value, str):
        try:
            value = [expanded(word, connection, keyword) for word in shlex.split(value)]
        except ValueError as error:
            raise OSError(
                f"{keyword} of the ssh configuration cannot be read: {str(error).lower()}; correct it"
            ) from error
    return [word for word in value if word.lower() != "none"]


def expanded(text: str, connection: fabric.Connection, keyword: str) -> str:
    """Give a value of the ssh configuration with its tokens replaced, and variables where ssh takes some.

    Source: TOKENS and ENVIRONMENT VARIABLES in ssh_config(5).

    Raises:
        OSError: it holds one that is not known.
    """
    tokens: dict[str, Callable[[], str]] = {
        "%": lambda: "%",
        "d": lambda: str(in_home("~")),
        "h": lambda: str(connection.host).lower(),
        "i": lambda: str(os.getuid()),
        "k": lambda: str(connection.ssh_config.get("hostkeyalias") or connection.original_host),
        "l": socket.gethostname,
        "L": lambda: socket.gethostname().partition(".")[0],
        "n": lambda: str(connection.original_host),
        "p": lambda: str(connection.port),
        "r": lambda: str(connection.user),
        "u": _own_name,
    }

    def value(found: re.Match[str]) -> str:
        if found[1] in tokens:
            return tokens[found[1]]()
        raise OSError(
            f"{keyword} of the ssh configuration holds {found[0]}, expected one of "
            f"{', '.join(f'%{token}' for token in tokens)}; write out what it stands for"
        )

    def variable(found: re.Match[str]) -> str:
        if found[1] in os.environ:
            return os.environ[found[1]]
        raise OSError(f"{keyword} of the ssh configuration holds {found[0]}, which is not set; write it out")

    told = _TOKEN.sub(value, text)
    return _VARIABLE.sub(variable, told) if keyword in _WITH_VARIABLES else told


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError as error:
        if name := os.environ.get("LOGNAME"):
            return name
        raise nameless() from error
