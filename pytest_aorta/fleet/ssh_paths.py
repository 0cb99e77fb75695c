"""Paths: the files that an ssh configuration names, and what stands for homes, hosts and users in their names."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import fabric

LISTS = frozenset({"userknownhostsfile", "globalknownhostsfile"})
_TOKEN = re.compile(r"%(.?)", re.DOTALL)
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
    config = connection.ssh_config
    users = [in_home(_expanded(word, connection)) for word in _listed("UserKnownHostsFile", config, _USER_FILES)]
    return [*users, *(in_home(word) for word in _listed("GlobalKnownHostsFile", config, _GLOBAL_FILES))]


def _listed(keyword: str, config: Mapping[str, str], usual: str) -> list[str]:
    """Give the names in a list of files, in which blanks stand between quotes."""
    try:
        words = shlex.split(config.get(keyword.lower(), usual))
    except ValueError as error:
        raise OSError(f"{keyword} of the ssh configuration cannot be read: {str(error).lower()}; correct it") from error
    return [word for word in words if word.lower() != "none"]


def _expanded(text: str, connection: fabric.Connection) -> str:
    """Give the name of a known-hosts file with its tokens replaced. Source: TOKENS in ssh_config(5)."""
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
            f"UserKnownHostsFile of the ssh configuration holds {found[0]}, expected one of "
            f"{', '.join(f'%{token}' for token in tokens)}; write out what it stands for"
        )

    return _TOKEN.sub(value, text)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError as error:
        if name := os.environ.get("LOGNAME"):
            return name
        raise nameless() from error
