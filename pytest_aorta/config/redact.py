"""Secrets: which values of a document are secret, and how they are kept out of everything that is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_aorta.config.document import JsonPath, nodes

REDACTED = "<redacted>"
_WORDS = frozenset({"password", "passwd", "token", "secret", "credential", "credentials", "authorization"})
_REGIONS = frozenset({"env", "extra_env", "env_vars", "environment", "cluster", "registry"})
_ORDINARY_WORD = re.compile(r".{1,3}|[a-z]{4,7}", re.DOTALL)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable or field of this name holds a secret; names of files and paths do not."""
    lower = name.lower()
    if lower.endswith(("_file", "_path")):
        return False
    return lower.endswith("_key") or not _WORDS.isdisjoint(re.split(r"[_-]", lower))


def is_secret(path: JsonPath) -> bool:
    """Tell whether the value at `path` is secret: a secret name in an environment, cluster or registry block."""
    for index, part in enumerate(path):
        if part in _REGIONS:
            return any(_is_secret_part(path, at) for at in range(index + 1, len(path)))
    return False


def redact(document: Any, secrets: Iterable[str] = ()) -> Any:
    """Give a copy of a document without the secret values, and without `secrets` in its texts; keys stay."""
    return _redacted(document, (), tuple(secrets))


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Replace every one of `secrets` in a text.

    A secret that looks like an ordinary word (up to three characters, or up to seven small letters) is left: a
    password `test` would otherwise take the names of all stages out of a report, and reveal itself by the gaps.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if secret and not _ORDINARY_WORD.fullmatch(secret):
            text = text.replace(secret, REDACTED)
    return text


def secrets_in(document: Any, path: JsonPath = ()) -> tuple[str, ...]:
    """Give every secret of a document as text, each once, in the document's order."""
    found = {str(value): None for here, value in nodes(document, path) if _is_leaf(value) and is_secret(here)}
    return tuple(secret for secret in found if secret not in {"", REDACTED})


def _redacted(value: Any, path: JsonPath, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted(child, (*path, key), secrets) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(child, (*path, index), secrets) for index, child in enumerate(value)]
    if _is_leaf(value) and value != "" and is_secret(path):
        return REDACTED
    return scrub(value, secrets) if isinstance(value, str) else value


def _is_secret_part(path: JsonPath, index: int) -> bool:
    part = path[index]
    return isinstance(part, str) and path[index - 1] != "node_dict" and is_secret_name(part)


def _is_leaf(value: Any) -> bool:
    return value is not None and not isinstance(value, (Mapping, list, tuple))
