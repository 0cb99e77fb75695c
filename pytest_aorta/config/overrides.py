"""Overrides: `--aorta-set KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pytest_aorta.config.document import MAX_DEPTH, JsonPath, Table, kind_of, parse_json, path_text, shortened, too_deep
from pytest_aorta.config.redact import REDACTED, is_secret, may_hold_secret, secrets_in
from pytest_aorta.config.scalars import parse_scalar
from pytest_aorta.errors import Fault

OPTION = "--aorta-set"
_MOST_DIGITS = 9
_ONE_KEY_BELOW: tuple[JsonPath, ...] = (("training_overrides",), ("container", "env"), ("multi_node", "extra_env"))


@dataclass(frozen=True, slots=True)
class Override:
    """One value set from the command line."""

    path: JsonPath
    value: Any
    text: str

    @property
    def option(self) -> str:
        """Give the option as it was written, cut when long, its value hidden when that is or may hold a secret."""
        if self._holds_secret():
            return f"{OPTION} {shortened(self.text.partition('=')[0])}={REDACTED}"
        return f"{OPTION} {shortened(self.text)}"

    def secrets(self) -> tuple[str, ...]:
        """Give the secret texts of the value."""
        return secrets_in(self.value, self.path)

    def _holds_secret(self) -> bool:
        if is_secret(self.path) or self.secrets():
            return True
        return isinstance(self.value, str) and may_hold_secret(self.value)


def parse(texts: Iterable[str]) -> tuple[list[Override], list[Fault]]:
    """Read the options; those that are no KEY=VALUE are faults."""
    overrides, faults = [], []
    for text in texts:
        key, sign, value = text.partition("=")
        path = _path(key)
        if not sign or not all(path) or len(path) > MAX_DEPTH:
            faults.append(
                Fault(f"{OPTION} {shortened(key)}", "expected KEY=VALUE with a dotted key, such as timeout_seconds=600")
            )
            continue
        parsed = parse_scalar(value)
        if isinstance(parsed, (dict, list)):
            parsed = parse_json(value)  # the same, with repeated keys remembered
        if too_deep(parsed):
            faults.append(Fault(f"{OPTION} {shortened(key)}", "the value is nested too deeply, expected a plain one"))
            continue
        overrides.append(Override(path, parsed, text))
    return overrides, faults


def apply(document: Table, overrides: Iterable[Override], *, below: JsonPath = ()) -> list[Fault]:
    """Set the values in the document, whose own place in the configuration is `below`; objects on the way are made.

    In a list a number names the entry, counted from 0; it must be there.
    """
    faults = []
    for override in overrides:
        node: Any = document
        path = override.path[len(below) :]
        for depth, part in enumerate(path):
            if why := _why_not_into(node, part):
                seen = path_text((*below, *path[:depth]))
                faults.append(Fault(override.option, f"{seen} is {kind_of(node)}, {why}"))
                break
            key: Any = int(part) if isinstance(node, list) else part
            if depth == len(path) - 1:
                _set(node, key, override.value)
            elif isinstance(node, dict) and node.get(part) is None:
                node[part] = node = Table()
            else:
                node = node[key]
    return faults


def _why_not_into(node: Any, part: str | int) -> str:
    """Say why `part` names no place in `node`, or give nothing."""
    if isinstance(node, dict):
        return ""
    if not isinstance(node, list):
        return "expected an object to set a key in"
    if str(part).isdecimal() and len(str(part)) <= _MOST_DIGITS and int(part) < len(node):
        return ""
    entries = f"its entries are 0 to {len(node) - 1}" if node else "it is empty"
    return f"{entries}; a new entry comes with the whole list as JSON, KEY=[...]"


def _set(node: Any, key: str | int, value: Any) -> None:
    node[key] = value
    if isinstance(node, Table):
        node.repeated = tuple(name for name in node.repeated if name != key)


def origin(path: JsonPath, overrides: Iterable[Override]) -> str:
    """Give ` (set by --aorta-set ...)` when an override set what stands at `path`, or nothing."""
    for override in reversed(list(overrides)):
        shared = min(len(path), len(override.path))
        if [str(part) for part in path[:shared]] == [str(part) for part in override.path[:shared]]:
            return f" (set by {override.option})"
    return ""


def _path(key: str) -> JsonPath:
    parts = tuple(key.split("."))
    for field in _ONE_KEY_BELOW:
        if parts[: len(field)] == field and len(parts) > len(field):
            return (*field, ".".join(parts[len(field) :]))
    return parts
