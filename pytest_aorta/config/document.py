"""Document: what a configuration file says, before anybody asks what it means."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_aorta.config import yaml_text
from pytest_aorta.errors import ConfigError, Fault

JsonPath = tuple[str | int, ...]
MAX_DEPTH = 64
MOST_SHOWN_CHARS = 200
_MOST_FAULTS = 50
_LONGEST_SENTENCE = 2000


class Table(dict[str, Any]):
    """A JSON object that remembers which of its keys were given more than once (the last value counts)."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def of_pairs(cls, pairs: list[tuple[str, Any]]) -> Table:
        """Make a table of key and value pairs in the order of the file."""
        table = cls(pairs)
        if len(table) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            table.repeated = tuple(key for key in table if counts[key] > 1)
        return table


@dataclass(frozen=True, slots=True)
class PathFault:
    """One thing wrong at one place of a document; the file's name is added when it is told."""

    path: JsonPath
    message: str


class Places:
    """The places of many faults, asked in a time that does not grow with their number."""

    def __init__(self, faults: Iterable[PathFault]) -> None:
        self._paths = {fault.path for fault in faults}
        self._above = {path[:length] for path in self._paths for length in range(len(path) + 1)}

    def touch(self, path: JsonPath) -> bool:
        """Tell whether a fault lies at `path`, above it or below it."""
        return path in self._above or any(path[:length] in self._paths for length in range(len(path)))


@dataclass(frozen=True, slots=True)
class Source:
    """A file as read: its name as the user gave it, where it lies, its text and the object in it."""

    label: str
    path: Path
    text: str
    document: Table


def path_text(path: JsonPath) -> str:
    """Write a path as messages show it: `container.runtime.args.volumes[0]`; what would move a cursor is escaped."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = shortened(printable(part))
            text += f".{name}" if text else name
    return text


def printable(text: str) -> str:
    """Give a text with line ends, terminal sequences and other characters that cannot be seen written as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def shortened(text: str, limit: int = MOST_SHOWN_CHARS) -> str:
    """Cut a text that is too long for a message."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def first_faults(faults: Iterable[Fault], label: str) -> list[Fault]:
    """Give each fault once, the first fifty of many and how many more there are; `label` names the file then."""
    found = list(dict.fromkeys(faults))
    told = [
        Fault(shortened(fault.where, _LONGEST_SENTENCE), shortened(fault.message, _LONGEST_SENTENCE))
        for fault in found[:_MOST_FAULTS]
    ]
    if len(found) > len(told):
        told.append(Fault(label, f"and {len(found) - len(told)} more; mend these first"))
    return told


def located(name: str | Path, folder: Path) -> Path:
    """Give the path that a user's text means: `~/` is the home folder, a relative one lies in `folder`."""
    text = str(name)
    return Path.home() / text[2:] if text.startswith("~/") else folder / text


def is_file(path: Path) -> bool:
    """Tell whether a regular file is there; a path that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def nodes(value: Any, path: JsonPath = ()) -> Iterator[tuple[JsonPath, Any]]:
    """Give every value of a document with its path, objects and lists before what they hold, in the file's order."""
    waiting = [(path, value)]
    while waiting:
        here, node = waiting.pop()
        yield here, node
        if isinstance(node, Mapping):
            waiting += [((*here, key), child) for key, child in reversed(list(node.items()))]
        elif isinstance(node, list):
            waiting += [((*here, index), child) for index, child in reversed(list(enumerate(node)))]


def too_deep(value: Any) -> bool:
    """Tell whether a document is nested deeper than any sensible file is."""
    return any(len(path) > MAX_DEPTH for path, _ in nodes(value))


def parse_json(text: str) -> Any:
    """Parse JSON; repeated keys are remembered, NaN and infinities are kept, for the walk to report with their path.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=Table.of_pairs, parse_constant=float)
    except RecursionError as error:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from error


def read(path: Path, label: str) -> Source:
    """Read a JSON file, or a YAML file when its name ends so; comment keys (`_...`) of the top level are left out.

    Raises:
        ConfigError: The file cannot be read, is not JSON or YAML, or holds something else than an object.
    """
    text = _text(path, label)
    is_yaml = path.suffix.lower() in {".yaml", ".yml"}
    try:
        value = yaml_text.parse(text, Table.of_pairs, MAX_DEPTH) if is_yaml else parse_json(text)
    except json.JSONDecodeError as error:
        seen = "the file is empty" if not text.strip() else f"{error.msg} at line {error.lineno} column {error.colno}"
        raise _wrong(label, f"not JSON: {seen}") from error
    except ValueError as error:
        raise _wrong(label, f"not {'YAML' if is_yaml else 'JSON'}: {error}") from error
    return Source(label, path, text, checked_object(value, label))


def checked_object(value: Any, label: str) -> Table:
    """Give the object that a file holds, without its comment keys.

    Raises:
        ConfigError: It is no object, or nested too deeply.
    """
    if not isinstance(value, Mapping):
        raise _wrong(label, f"seen {kind_of(value)}, expected an object ({{...}}) with the fields of the configuration")
    if too_deep(value):
        raise _wrong(label, f"nested deeper than {MAX_DEPTH} levels, expected a plain configuration file")
    table = Table((key, child) for key, child in value.items() if not key.startswith("_"))
    table.repeated = tuple(key for key in getattr(value, "repeated", ()) if not key.startswith("_"))
    return table


def kind_of(value: Any) -> str:
    """Name the JSON kind of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) else "a number"


def _text(path: Path, label: str) -> str:
    try:
        if not path.exists():
            raise _wrong(label, f"no such file (looked at {shortened(str(path))}), expected a JSON or YAML file")
        if not path.is_file():
            raise _wrong(label, "not a regular file, expected a JSON or YAML file")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _wrong(label, f"not UTF-8 text: byte {error.start} cannot be read; save the file as UTF-8") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _wrong(label, f"cannot be read: {why}") from error


def _wrong(label: str, message: str) -> ConfigError:
    return ConfigError([Fault(label, message)])
