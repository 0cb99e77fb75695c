"""Container fields: what the values of a container's arguments must look like for any engine to take them."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated

from pydantic import AfterValidator

from pytest_aorta.config.fields import refuse
from pytest_aorta.config.redact import REDACTED

_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
# Source: the grammar of distribution/reference, which docker and podman share.
_IMAGE = re.compile(
    rf"(?:(?:[A-Za-z0-9][A-Za-z0-9.\-]*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?/)?{_NAME}(?:/{_NAME})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127})?(?:@[A-Za-z][A-Za-z0-9+._\-]*:[0-9A-Fa-f]{32,})?"
)
_MOST_IMAGE_CHARS = 1024
_LIMIT = re.compile(r"([a-z]+)=(-1|[0-9]{1,20})(?::(-1|[0-9]{1,20}))?")
_LIMITS = (
    "core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, rtprio, rttime, sigpending, stack"
)
_MOST = 2**63 - 1  # engines keep numbers in 64 bits with a sign
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_DEVICE = re.compile(r"/[^:\x00-\x1f\x7f]+(?::/[^:\x00-\x1f\x7f]+)?(?::[rwm]{1,3})?")
_OPTION = re.compile(
    r"no-new-privileges(?:[=:](?:true|false))?"
    r"|(?:apparmor|label|mask|proc-opts|seccomp|systempaths|unmask)[=:][^\x00-\x1f\x7f]+"
)
_MODE = re.compile(r"[A-Za-z0-9][!-~]*")
_CAPABILITY = re.compile(r"[A-Za-z][A-Za-z_]*")
_ACCOUNT = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\$?"
_GROUP = re.compile(_ACCOUNT)
_USER = re.compile(rf"{_ACCOUNT}(?::{_ACCOUNT})?")
_SERVER = re.compile(r"[A-Za-z0-9\[][!-~]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MOUNT_OPTIONS = frozenset(("private", "rprivate", "shared", "rshared", "slave", "rslave", "z", "Z", "ro", "rw"))


def target_of(volume: str) -> str:
    """Give the folder inside the container that a volume is mounted on, in one spelling."""
    source, _, rest = volume.partition(":")
    return posixpath.normpath(rest.partition(":")[0] or source)


def _image(value: str) -> str:
    what = "an image's reference, [REGISTRY/]NAME[:TAG][@DIGEST], its name in small letters"
    if len(value) > _MOST_IMAGE_CHARS:
        raise refuse(what)
    return _matching(_IMAGE, value, what)


def _ulimit(value: str) -> str:
    found = _LIMIT.fullmatch(value)
    if REDACTED in value:
        return value
    if found is None or found[1] not in _LIMITS.split(", "):
        raise refuse(f"NAME=SOFT[:HARD], numbers or -1 for no limit, NAME one of {_LIMITS}")
    soft, hard = (float("inf") if number == "-1" else int(number) for number in (found[2], found[3] or found[2]))
    if soft > hard:
        raise refuse("a soft limit that is not above the hard one")
    if any(_MOST < number < float("inf") for number in (soft, hard)):
        raise refuse(f"numbers of at most {_MOST}, or -1 for no limit")
    return value


def _each_once(values: tuple[str, ...]) -> tuple[str, ...]:
    names = [value.partition("=")[0] for value in values if REDACTED not in value]
    if len(set(names)) < len(names):
        raise refuse("each limit's name once")
    return values


def _shm_size(value: str | int) -> str | int:
    if value == "" or REDACTED in str(value):
        return value
    found = _SIZE.fullmatch(str(value))
    size = float(found[1]) * 1024 ** "bkmgt".index(found[2].lower() or "b") if found else 0
    if not 1 <= size < _MOST:  # as a float, which is how engines read it
        raise refuse("a size above 0 that 64 bits can hold, such as 8g")
    return value


def _user(value: str | int) -> str | int:
    return _number_or(_USER, value, "USER[:GROUP], names or numbers") if value != "" else value


def _group(value: str | int) -> str | int:
    return _number_or(_GROUP, value, "a group's name or number")


def _number_or(pattern: re.Pattern[str], value: str | int, what: str) -> str | int:
    if isinstance(value, str):
        return _matching(pattern, value, what)
    if value < 0:
        raise refuse(what)
    return value


def _volume(value: str) -> str:
    if REDACTED in value:
        return value
    source, *rest = value.split(":")
    target = rest[0] if rest else source
    options = rest[1].split(",") if len(rest) > 1 else []
    if len(rest) > 2 or _CONTROL.search(value) or any(option not in _MOUNT_OPTIONS for option in options):
        raise refuse(
            "HOST:CONTAINER[:OPTIONS], paths without colons and control characters, options of "
            f"{', '.join(sorted(_MOUNT_OPTIONS))}"
        )
    for path in (source, target):
        if not path.startswith("/") or not posixpath.normpath(path).strip("/"):
            raise refuse("absolute paths other than / on both sides, HOST:CONTAINER")
    if {"ro", "rw"} <= set(options):
        raise refuse("one of ro and rw")
    return value


def _device(value: str) -> str:
    return _matching(_DEVICE, value, "HOST[:CONTAINER[:MODE]], absolute paths, MODE of the letters r, w, m")


def _security(value: str) -> str:
    names = "apparmor, label, mask, proc-opts, seccomp, systempaths, unmask"
    return _matching(_OPTION, value, f"no-new-privileges, or NAME=VALUE with one of {names}")


def _mode(value: str) -> str:
    return _matching(_MODE, value, "a mode's name, without blanks, not beginning with -")


def _capability(value: str) -> str:
    return _matching(_CAPABILITY, value, "a capability's name, such as SYS_PTRACE")


def _server(value: str) -> str:
    return _matching(_SERVER, value, "HOST or HOST:PORT") if value else value


def _login(value: str) -> str:
    if REDACTED not in value and _CONTROL.search(value):
        raise refuse("a login name without control characters")
    return value


def _matching(pattern: re.Pattern[str], value: str, what: str) -> str:
    if REDACTED not in value and not pattern.fullmatch(value):
        raise refuse(what)
    return value


ImageName = Annotated[str, AfterValidator(_image)]
Ulimits = Annotated[tuple[Annotated[str, AfterValidator(_ulimit)], ...], AfterValidator(_each_once)]
ShmSize = Annotated[str | int, AfterValidator(_shm_size)]
ContainerUser = Annotated[str | int, AfterValidator(_user)]
Group = Annotated[str | int, AfterValidator(_group)]
Volume = Annotated[str, AfterValidator(_volume)]
Device = Annotated[str, AfterValidator(_device)]
SecurityOption = Annotated[str, AfterValidator(_security)]
Mode = Annotated[str, AfterValidator(_mode)]
Capability = Annotated[str, AfterValidator(_capability)]
RegistryServer = Annotated[str, AfterValidator(_server)]
RegistryLogin = Annotated[str, AfterValidator(_login)]
