"""The ssh configuration read without an ssh client: what would be read otherwise than by OpenSSH is refused."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import CouldNotCanonicalize

from pytest_aorta.fleet.ssh_paths import nameless

Found = dict[str, Any]

DIRECTIVE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)\s*$")
INCLUDE_DEPTH = 16
_LISTS = frozenset({"userknownhostsfile", "globalknownhostsfile"})
_PATHS = frozenset({*_LISTS, "certificatefile", "identityagent", "identityfile"})
_WITH_TOKENS = frozenset({"certificatefile", "hostname", "identityfile", "proxycommand", "proxyjump"})  # of paramiko
_WHOLE = frozenset({"knownhostscommand", "localcommand", "match", "proxycommand", "remotecommand"})
_PROXIES = frozenset({"proxycommand", "proxyjump"})
_OF_A_USER = re.compile("~[^/]")
_NO_COMMAND = "none!"  # paramiko forgets a plain one, which holds against the proxies after it
_EVERY_HOST = "Host *"
_BEFORE_COMMENT = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\\.|(?<!\s)\#|[^"'\\\#])*""")
_CERTIFICATE = "certificate:"  # paramiko lists keys only
_ALONE = frozenset({"all", "canonical", "final"})
_WITH_VALUE = frozenset({"host", "originalhost", "localuser"})
_HOW = (
    "which is read by an ssh client alone, seen none, or a user without an entry in the list of users; "
    "install openssh-client, or do without it"
)


def plain_look_up(host: str, *files: Path) -> Found:
    """Give what the files say of a host, by keyword in small letters.

    Raises:
        OSError: they cannot be read, or only by an ssh client.
    """
    lines = [line for path in files for line in [_EVERY_HOST, *_lines(path, path.parent)]]
    try:
        with _told():
            found = dict(paramiko.SSHConfig.from_text("\n".join(lines)).lookup(host))
    except paramiko.ConfigParseError as error:
        raise OSError(f"the ssh configuration ({', '.join(map(str, files))}) cannot be read: {error}") from error
    listed = found.pop("identityfile", [])
    for keyword, mark in (("identityfile", ""), ("certificatefile", _CERTIFICATE)):
        if names := [name.removeprefix(mark) for name in listed if name.startswith(_CERTIFICATE) == bool(mark)]:
            found[keyword] = names
    for keyword in ("connecttimeout", "proxyjump"):
        if str(found.get(keyword, "")).lower() == "none":
            del found[keyword]
    for keyword in [keyword for keyword in found if keyword in _PROXIES][1:]:
        del found[keyword]  # the first one holds
    if found.get("proxycommand") == _NO_COMMAND:
        del found["proxycommand"]
    for keyword in ("hashknownhosts", "identitiesonly"):
        if str(found.get(keyword)).lower() == "true":
            found[keyword] = "yes"
    for keyword in ("port", "connecttimeout"):
        if not str(found.get(keyword, "0")).isdecimal():
            raise OSError(f"the ssh configuration of {host} holds {keyword} {found[keyword]}, {_HOW}")
    return found


def included_files(value: str, base: Path) -> list[Path]:
    """Give the files that an Include names, those of each pattern in their order.

    Raises:
        OSError: it cannot be understood.
    """
    wanted = [str(base / Path(pattern).expanduser()) for pattern in _words("Include", value)]
    found = (Path(name) for pattern in wanted for name in sorted(glob.glob(pattern)))  # noqa: PTH207  # absolute ones
    return [path for path in found if path.is_file()]


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell as an OSError what paramiko raises where it looks a host up."""
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


def _lines(path: Path, base: Path, depth: int = INCLUDE_DEPTH, around: str = _EVERY_HOST) -> Iterator[str]:
    """Give the lines of a file with those of the files that it includes in their place; `around` is its block there."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except (FileNotFoundError, IsADirectoryError):
        return
    except OSError as error:
        raise OSError(f"the ssh configuration {path} cannot be read: {error.strerror}") from error
    block = around
    for number, line in enumerate(lines, 1):
        found = DIRECTIVE.match(line)
        word = found[1].lower() if found else ""
        if word in {"host", "match"}:
            block = line
        if found and _is_for_ssh(word, found[2], around):
            raise OSError(f"{path} line {number} holds {line.strip()!r}, {_HOW}")
        if found is None or word != "include" or not depth:
            yield _plain_line(found[1], found[2]) if found else line
            continue
        for name in included_files(found[2], base):
            yield from _lines(name, base, depth - 1, block)
        yield block  # what follows belongs to it again


def _is_for_ssh(word: str, value: str, around: str) -> bool:
    """Tell whether paramiko would take a line for another thing than OpenSSH does."""
    if word in {"host", "match"} and around != _EVERY_HOST:  # both blocks have to cover the host
        return True
    if word == "match":
        return not _is_plain(value)
    return (word == "host" and "[" in value) or (word in _WITH_TOKENS and "%%" in value)


def _plain_line(keyword: str, value: str) -> str:
    """Write a line as paramiko understands it: it reads comments as values, and takes off one pair of quotes."""
    word = keyword.lower()
    if word == "proxycommand" and value.lower() == "none":
        return f"{keyword} {_NO_COMMAND}"
    if word in _WHOLE:
        return f"{keyword} {value}"
    words = _words(keyword, value)
    if word in _PATHS:
        words = [os.path.expanduser(name) if _OF_A_USER.match(name) else name for name in words]  # noqa: PTH111
    if word == "host":
        return f"{keyword} {shlex.join(words)}"
    if word == "certificatefile":
        return f'IdentityFile "{_CERTIFICATE}{" ".join(words)}"'
    return f'{keyword} "{shlex.join(words) if word in _LISTS else " ".join(words)}"'


def _words(keyword: str, value: str) -> list[str]:
    """Give the words of a value, without quotes and without a comment behind them.

    Raises:
        OSError: it ends within quotes.
    """
    read = _BEFORE_COMMENT.match(value)
    text = read[0] if read else ""
    if not value.startswith("#", len(text)) and text != value:
        raise OSError(f"{keyword} {value} of the ssh configuration cannot be read: no closing quotation; correct it")
    return shlex.split(text)


def _is_plain(criteria: str) -> bool:
    """Tell whether paramiko takes criteria of a Match as OpenSSH does: it passes over what it does not know."""
    words = iter(criteria.split())
    for word in words:
        name = word.removeprefix("!")
        if name not in _ALONE and (name not in _WITH_VALUE or next(words, None) is None):
            return False
    return True
