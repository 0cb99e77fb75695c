"""Secrets: which values of a document are secret, and how they are kept out of everything that is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pytest_aorta.config.document import JsonPath, nodes
from pytest_aorta.config.placeholders import is_opaque

REDACTED = "<redacted>"
_WORDS = frozenset({"password", "passwd", "token", "secret", "credential", "credentials", "authorization"})
_REGIONS = frozenset({"env", "extra_env", "env_vars", "environment", "cluster", "registry"})
_ORDINARY_WORD = re.compile(r".{1,3}|[a-z]{4,7}", re.DOTALL)
_SHORT_CHARS = 3
# `https://user:password@host`; what JSON puts between two texts is no part of one.
_URL_PASSWORD = re.compile(r"""(://[^\s/:@"']*:)([^\s/"',]+)@""")
# In a value that is one text by itself, more may be part of it.
_URL_PASSWORD_OF_VALUE = re.compile(r"""(://[^\s/:@"]*:)([^\s/"]+)@""")
# `https://token@host`; some servers want a word behind it that says so.
_URL_TOKEN = re.compile(r"""(https?://)([^\s/:@?#"',]+)(?=(?::(?:x-oauth-basic)?)?@)""", re.IGNORECASE)
_HINT = re.compile(r"password|passwd|token|secret|credential|authorization|_key", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable or field of this name holds a secret; names of files and paths do not.

    Of a dotted name, as overrides make them, each part counts.
    """
    return any(_is_secret_word(part) for part in name.lower().split("."))


def is_secret(path: JsonPath) -> bool:
    """Tell whether the value at `path` is secret: a secret name in an environment, cluster or registry block."""
    for index, part in enumerate(path):
        if part in _REGIONS:
            return any(_is_secret_part(path, at) for at in range(index + 1, len(path)))
    return False


def redact(document: Any, secrets: Iterable[str] = ()) -> Any:
    """Give a copy of a document without the secret values, and without `secrets` in its texts; keys stay.

    Texts that belong to other programs (environments, arguments) are free texts.
    """
    return _redacted(document, (), tuple(secrets))


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Replace every one of `secrets` in a free text: everywhere, those of up to three characters as whole words.

    The password or token in a URL is secret whether it is known or not.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) > _SHORT_CHARS:
            text = text.replace(secret, REDACTED)
        elif secret and secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REDACTED, text)
    return without_passwords(text)


def without_passwords(text: str) -> str:
    """Replace the passwords of URLs in a text, and their users where these are tokens."""
    return _without(_URL_PASSWORD, text) if "://" in text else text


def scrub_file(text: str, secrets: Iterable[str]) -> str:
    """Replace `secrets` in the text of a configuration file; one that is JSON stays so, and so do its numbers."""
    return _through_json(text, tuple(secrets), redact, indent=2)


def scrub_value(text: str, secrets: Iterable[str]) -> str:
    """Replace `secrets` in a text of a document that programs read.

    A sentence is free text. A path, or a single word, names something (an outcome, a field, a folder) and loses only
    secrets that look like no ordinary word (up to three characters, or up to seven small letters): a password `test`
    would otherwise take the names of all stages out of the record.
    """
    if _names_something(text):
        secrets = [secret for secret in secrets if not _ORDINARY_WORD.fullmatch(secret)]
    return scrub(text, secrets)


def scrub_line(line: str, secrets: Iterable[str]) -> str:
    """Replace `secrets` in a line of a log; one that is a JSON object stays one: short numbers and plain names stay."""
    if not line.startswith("{"):
        return scrub(line, secrets)
    return _through_json(line, tuple(secrets), _line_value)


def _through_json(
    text: str, secrets: tuple[str, ...], clean: Callable[[Any, tuple[str, ...]], Any], *, indent: int | None = None
) -> str:
    """Clean the document that a text is, leaving its end of line; a text that is none is scrubbed as it stands."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return scrub(text, secrets)
    cleaned = clean(document, secrets)
    return text if cleaned == document else json.dumps(cleaned, indent=indent) + text[len(text.rstrip("\r\n")) :]


def secrets_in(document: Any, path: JsonPath = ()) -> tuple[str, ...]:
    """Give every secret of a document as text, each once, in the document's order; also those in URLs.

    The user of a URL is one where it may be a token: `git` is not, which would be taken out of every text.
    """
    found: dict[str, None] = {}
    for here, value in nodes(document, path):
        if _is_leaf(value) and is_secret(here):
            found[str(value)] = None
        elif isinstance(value, str):
            found.update((password, None) for _, password in _URL_PASSWORD_OF_VALUE.findall(value))
            tokens = (token for _, token in _URL_TOKEN.findall(value))
            found.update((token, None) for token in tokens if not _ORDINARY_WORD.fullmatch(token))
    return tuple(secret for secret in found if secret not in {"", REDACTED})


def hidden(value: Any, path: JsonPath) -> Any:
    """Give a copy of what stands at `path` of a configuration without the secret values in it."""
    return _redacted(value, path, ())


def may_hold_secret(text: str) -> bool:
    """Tell whether a text looks like an object or list, such as one with a comma too many, that names a secret."""
    return text.lstrip()[:1] in {"{", "["} and _HINT.search(text) is not None


def _redacted(value: Any, path: JsonPath, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted(child, (*path, key), secrets) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(child, (*path, index), secrets) for index, child in enumerate(value)]
    if _is_leaf(value) and value != "" and is_secret(path):
        return REDACTED
    if not isinstance(value, str):
        return value
    value = _without(_URL_PASSWORD_OF_VALUE, value)
    return scrub(value, secrets) if is_opaque(path) else scrub_value(value, secrets)


def _without(password: re.Pattern[str], text: str) -> str:
    """Replace tokens in URLs first: the word behind one is taken for a password."""
    return password.sub(rf"\1{REDACTED}@", _URL_TOKEN.sub(rf"\1{REDACTED}", text))


def _names_something(text: str) -> bool:
    return not re.search(r"\s", text) or (text.startswith(("/", "~/")) and ": " not in text)


def _line_value(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            scrub_value(key, secrets): scrub_value(child, secrets)
            if key == "aorta" and isinstance(child, str)
            else _line_value(child, secrets)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_line_value(child, secrets) for child in value]
    if isinstance(value, str):
        return scrub(value, secrets)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return REDACTED if is_number and len(str(value)) > _SHORT_CHARS and str(value) in secrets else value


def _is_secret_word(lower: str) -> bool:
    if lower.endswith(("_file", "_path")):
        return False
    return lower.endswith("_key") or not _WORDS.isdisjoint(re.split(r"[_-]", lower))


def _is_secret_part(path: JsonPath, index: int) -> bool:
    part = path[index]
    return isinstance(part, str) and path[index - 1] != "node_dict" and is_secret_name(part)


def _is_leaf(value: Any) -> bool:
    return value is not None and not isinstance(value, (Mapping, list, tuple))
