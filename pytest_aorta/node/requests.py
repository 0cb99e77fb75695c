"""Request: one thing asked of the node program, its arguments, its deadline and its one answer."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Mapping

Answer = Dict[str, Any]
FAULTS = (OSError, ValueError, LookupError, TypeError, RuntimeError, EOFError, MemoryError)


class CommandError(Exception):
    """Why a command cannot be answered; `kind` is `failed`, `timeout`, `unknown` or `bad_request`."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(message)


class Deadline:
    """The moment after which an answer is of no use."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.at_s = time.monotonic() + seconds

    def check(self) -> None:
        """Raise once the deadline has passed; long work calls this between its pieces."""
        if time.monotonic() > self.at_s:
            raise CommandError("timeout", f"not done within {self.seconds:g} s")


class Args:
    """The arguments of a command, each read with the type it must have."""

    def __init__(self, command: str, values: Mapping[str, Any]) -> None:
        self._command = command
        self._values = values

    def _get(self, name: str, kinds: Any, wanted: str, default: Any) -> Any:
        value = self._values.get(name)
        if value is None:
            if default is ...:
                raise CommandError("bad_request", f"{self._command} needs {name} ({wanted})")
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise CommandError("bad_request", f"{self._command}: {name} is {value!r}, expected {wanted}")
        return value

    def text(self, name: str, default: Any = ...) -> Any:
        """Give a string."""
        return self._get(name, str, "a string", default)

    def path(self, name: str, default: Any = ...) -> Any:
        """Give a path, absolute, with `~` as the node's own home."""
        value = self.text(name, default)
        return expanded(value) if isinstance(value, str) else value

    def number(self, name: str, default: Any = ...) -> float:
        """Give a number that is not negative."""
        value = float(self._get(name, (int, float), "a number", default))
        if value < 0:
            raise CommandError("bad_request", f"{self._command}: {name} is {value:g}, expected 0 or more")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Give a truth value."""
        return bool(self._get(name, bool, "true or false", default))

    def texts(self, name: str, default: Any = ...) -> list[str]:
        """Give a list of strings."""
        values = self._get(name, list, "a list of strings", default)
        if not all(isinstance(value, str) for value in values):
            raise CommandError("bad_request", f"{self._command}: {name} is {values!r}, expected a list of strings")
        return list(values)

    def mapping(self, name: str, kinds: Any, wanted: str) -> dict[str, Any]:
        """Give an object whose values are all of one kind; absent is empty."""
        values = self._get(name, dict, "an object", {})
        for key, value in values.items():
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise CommandError("bad_request", f"{self._command}: {name}.{key} is {value!r}, expected {wanted}")
        return dict(values)

    def given(self, name: str) -> bool:
        """Tell whether an argument is there and not null."""
        return self._values.get(name) is not None


class Request:
    """One request; only its first answer is sent, later ones are dropped."""

    def __init__(
        self, number: Any, do: str, values: Mapping[str, Any], seconds: float, send: Callable[[Answer], None]
    ) -> None:
        self.number = number
        self.do = do
        self.args = Args(do, values)
        self.deadline = Deadline(seconds)
        self.answered = False
        self._send = send

    def answer(self, answer: Answer | None) -> None:
        """Answer that it was done."""
        self._first({"id": self.number, "ok": answer or {}})

    def refuse(self, error: CommandError) -> None:
        """Answer that it was not done, and why."""
        self._first({"id": self.number, "error": {"kind": error.kind, "message": error.message}})

    def _first(self, message: Answer) -> None:
        if not self.answered:
            self.answered = True
            self._send(message)


def expanded(path: str) -> str:
    """Give the path with `~` replaced; refuse a relative one, which would depend on where the program was started."""
    full = os.path.expanduser(path)
    if not os.path.isabs(full):
        raise CommandError("bad_request", f"the path {path!r} is relative, expected an absolute one or one with ~")
    return os.path.normpath(full)


def sentence(error: BaseException) -> str:
    """Give an error of the operating system or the library as words without a traceback."""
    if isinstance(error, OSError):
        where = f" ({error.filename!r})" if error.filename is not None else ""
        return f"{error.strerror or error}{where}"
    return f"{type(error).__name__}: {error}"
