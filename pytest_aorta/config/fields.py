"""Fields: the kinds of values that several parts of the configuration share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from pytest_aorta.config.redact import REDACTED

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OVERRIDE_KEY = re.compile(r"[A-Za-z0-9_.\-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PROGRAM = re.compile(r"(?!-)(?:\S+|/[^\x00-\x1f\x7f]+)")  # blanks may stand in a path
_NOT_IN_A_URL = re.compile(r'[\s\x00-\x1f\x7f"]')
_SLASH_IN_PASSWORD = re.compile(r"://(?!\[)[^/@]*:(?!\d*/)[^/@]*/")  # what is behind the colon would be a port
_ARGUMENT = re.compile(r"\s-")
_CONTAINER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]+")

EXPECTED = "expected"
"""The type of our own field errors: their message is what was expected."""


class Section(BaseModel):
    """A part of the configuration: strict, frozen, unknown fields refused."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )


class TolerantSection(Section):
    """A part that files of other tools share: unknown fields are kept, named in a warning and otherwise ignored."""

    model_config = ConfigDict(extra="allow")

    def __repr_args__(self) -> Any:
        """Show the declared fields only: nobody knows what stands in the others."""
        return [pair for pair in super().__repr_args__() if pair[0] in type(self).model_fields]


class Secret(Section):
    """A value that is never shown."""

    secret: SecretStr = Field(description="The value; it reaches the workload and nothing else.")


def refuse(what: str) -> PydanticCustomError:
    """Give the error of a field that expects something else; `what` says what."""
    return PydanticCustomError(EXPECTED, "{what}", {"what": what})


def _relative(value: str) -> str:
    if not value or PurePosixPath(value).is_absolute() or ".." in PurePosixPath(value).parts:
        raise refuse('a path inside the repository, not empty, not absolute, without ".."')
    return value


def _below(value: str) -> str:
    if not value or PurePosixPath(value).is_absolute() or ".." in PurePosixPath(value).parts:
        raise refuse('a path below the workload\'s folder, not empty, not absolute, without ".."')
    return value


def _work_dir(value: str) -> str:
    path = PurePosixPath(value)
    if REDACTED in value:
        return value
    if not value.startswith(("/", "~/")) or not path.name or ".." in path.parts:
        raise refuse('an absolute directory other than "/", or one that begins with ~/, without ".."')
    if _CONTROL.search(value):
        raise refuse("a directory without control characters in its name")
    return value


def _command(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value[0].strip():
        raise refuse("a program first, then its arguments")
    return value


def _program(value: str) -> str:
    if REDACTED not in value and (not _PROGRAM.fullmatch(value) or _ARGUMENT.search(value)):
        raise refuse("a program's name or absolute path, one word without arguments, not beginning with -")
    return value


def _clone_url(value: str) -> str:
    if REDACTED not in value and _NOT_IN_A_URL.search(value):
        raise refuse("a repository's address without blanks, control characters and \"; write them as %20 and so on")
    if REDACTED not in value and _SLASH_IN_PASSWORD.search(value):
        raise refuse("a repository's address whose port is a number; write a slash in a password as %2F")
    return value


def _directory(value: str) -> str:
    path = PurePosixPath(value)
    if REDACTED not in value and (not path.is_absolute() or not path.name or ".." in path.parts):
        raise refuse('an absolute directory other than "/", without ".."')
    return value


def _identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value):
        raise refuse("a variable's name: letters, digits and _, not beginning with a digit")
    return value


def _override_key(value: str) -> str:
    if not _OVERRIDE_KEY.fullmatch(value):
        raise refuse("a key of letters, digits, _ . and -")
    return value


def _container_name(value: str) -> str:
    if REDACTED not in value and not _CONTAINER_NAME.fullmatch(value):
        raise refuse("a container's name: letters, digits, _ . and -, beginning with a letter or digit")
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise refuse("text that is not empty")
    return value


def _version(value: int) -> int:
    if value != 1:
        raise refuse("1, the only version there is")
    return value


def _zero_or_one(value: int) -> int:
    if value not in {0, 1}:
        raise refuse("0 or 1")
    return value


def _port(value: int) -> int:
    if value != 0 and not 1024 <= value <= 65535:
        raise refuse("0 (a free port is chosen) or a port of 1024 to 65535")
    return value


def _key_file(value: str) -> str:
    if value and REDACTED not in value and not value.startswith(("/", "~/")):
        raise refuse("an absolute path, or one that begins with ~/")
    return value


# Loading refuses texts that hold the mark of a redacted secret; a stored record with one must be readable all the same.
RelativePath = Annotated[str, AfterValidator(_relative)]
Directory = Annotated[str, AfterValidator(_directory)]
BelowWorkload = Annotated[str, AfterValidator(_below)]
WorkDir = Annotated[str, AfterValidator(_work_dir)]
Command = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_command)]
ProgramName = Annotated[str, AfterValidator(_program)]
ContainerName = Annotated[str, AfterValidator(_container_name)]
UrlOrEmpty = Annotated[str, AfterValidator(_clone_url)]
CloneUrl = Annotated[UrlOrEmpty, AfterValidator(_text)]
Text = Annotated[str, AfterValidator(_text)]
SchemaVersion = Annotated[int, AfterValidator(_version), Field(json_schema_extra={"const": 1})]
ZeroOrOne = Annotated[int, AfterValidator(_zero_or_one), Field(json_schema_extra={"enum": [0, 1]})]
Port = Annotated[int, AfterValidator(_port)]
KeyFile = Annotated[str, AfterValidator(_key_file)]
OverrideKey = Annotated[str, AfterValidator(_override_key)]
Count = Annotated[int, Field(gt=0, le=100_000)]
Seconds = Annotated[float, Field(gt=0, le=100_000_000)]
EnvMap = dict[Annotated[str, AfterValidator(_identifier)], str | int | float | Secret]


def plain_environment(*maps: Mapping[str, str | int | float | Secret]) -> dict[str, str]:
    """Merge environment maps, later ones win, into what a process gets."""
    merged = {name: value for values in maps for name, value in values.items()}
    return {
        name: value.secret.get_secret_value() if isinstance(value, Secret) else str(value)
        for name, value in merged.items()
    }


def open_environment(values: Mapping[str, str | int | float | Secret]) -> dict[str, Any]:
    """Write an environment map as a file would, with its secrets in clear: for redaction, which must know them."""
    return {
        name: {"secret": value.secret.get_secret_value()} if isinstance(value, Secret) else value
        for name, value in values.items()
    }
