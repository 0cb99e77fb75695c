"""Placeholders: `{user-id}`, `{paths.x}` and what must not be left in a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pytest_aorta.config.document import JsonPath, Table, shortened

_TOKEN = re.compile(r"\{([A-Za-z0-9_.\-]+)\}")
_CHANGE_ME = "<changeme>"
_USER = "{user-id}"
_CVS_TOKENS = frozenset(
    {
        "user-id",
        "shared_fs",
        "models_dir",
        "log_dir",
        "hf_token_file",
        "temp_dir",
        "home",
        "user",
        "home-mount-dir",
        "node-dir-name",
    }
)
_LONGEST_VALUE = 4096  # references that double each other stop here instead of filling the memory

OPAQUE_FIELDS: tuple[JsonPath, ...] = (
    ("container", "env"),
    ("multi_node", "extra_env"),
    ("multi_node", "extra_torchrun_args"),
    ("multi_node", "extra_train_args"),
    ("training_overrides",),
    ("workload", "command"),
)
"""Fields whose text belongs to other programs and may hold braces of its own."""


def substitute(document: Table, username: str) -> Table:
    """Replace placeholders in three passes: `{user-id}`, references inside `paths`, `{paths.x}` everywhere."""
    named = with_user(document, username)
    paths = named.get("paths")
    if not isinstance(paths, Mapping):
        return named
    named["paths"] = solved = _solved(paths)
    known = {f"paths.{key}": _filled(value) for key, value in solved.items() if isinstance(value, str)}
    return _mapped(named, lambda text: _replaced(text, known))


def with_user(document: Table, username: str) -> Table:
    """Replace `{user-id}` everywhere."""
    return _mapped(document, lambda text: text.replace(_USER, username))


def leftover(text: str, *, opaque: bool, seen: str) -> str | None:
    """Say what is wrong with a text that still holds a placeholder, or give None; `seen` shows the text."""
    if _CHANGE_ME in text.lower():
        return f"still holds the placeholder {_CHANGE_ME} ({seen}); put your own value there"
    for token in _TOKEN.findall(text):
        known = token in _CVS_TOKENS or token.startswith("paths.")
        if known or not opaque:
            hint = "it names nothing that is defined" if known else "no such placeholder exists"
            return f"holds {{{shortened(token)}}} ({seen}), but {hint}; write the value itself"
    return None


def is_opaque(path: JsonPath) -> bool:
    """Tell whether a path lies in a field whose text belongs to other programs."""
    return any(path[: len(field)] == field for field in OPAQUE_FIELDS)


def _solved(paths: Mapping[str, Any]) -> Table:
    solved = Table(paths)
    solved.repeated = getattr(paths, "repeated", ())
    for _ in range(len(paths) + 1):
        known = {key: _filled(value) for key, value in solved.items() if isinstance(value, str)}
        known |= {f"paths.{key}": value for key, value in known.items()}
        again = {key: _replaced(value, known) if isinstance(value, str) else value for key, value in solved.items()}
        if again == solved or any(isinstance(value, str) and len(value) > _LONGEST_VALUE for value in again.values()):
            break
        solved.update(again)
    return solved


def _filled(value: str) -> str:
    """Hide `<changeme>` in a value that is referred to: it is told once, where it stands."""
    return re.sub(_CHANGE_ME, "changeme", value, flags=re.IGNORECASE)


def _replaced(text: str, values: Mapping[str, str]) -> str:
    return _TOKEN.sub(lambda match: values.get(match[1], match[0]), text)


def _mapped(table: Mapping[str, Any], change: Callable[[str], str]) -> Table:
    changed = Table((key, _changed(child, change)) for key, child in table.items())
    changed.repeated = getattr(table, "repeated", ())
    return changed


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(child, change) for child in value]
    return _mapped(value, change) if isinstance(value, Mapping) else value
