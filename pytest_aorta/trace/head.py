"""Head: the text of a trace before its events, and where these begin: at a list `traceEvents` of the document itself.

A list of that name inside of something else is none of the trace's. Damage can hide what is inside of what; then the
first list of that name is taken.
"""

from __future__ import annotations

import re

from pytest_aorta.trace.salvage import is_json

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_LIST = re.compile(rb"\s*\[(?=\s*\{)")
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_CLOSING = {ord("{"): ord("}"), ord("["): ord("]")}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Head:
    """Takes the first blocks of a file, in order, until its events begin."""

    def __init__(self) -> None:
        self.text = b""
        self.is_list = False
        self._open = bytearray()
        self._counted = 0
        self._searched = 0
        self._is_sound = False

    def add(self, block: bytes) -> bytes | None:
        """Take the next block; give what follows the bracket that opens the list of events, None before it is there.

        Then `text` is the head, that bracket included, or `is_list` tells that the file is nothing but a list.
        """
        self.text = (self.text + block) if self.text else block.removeprefix(_BYTE_ORDER_MARK)
        begin = self._begin()
        if begin is None:
            return None
        rest, self.text = self.text[begin:], self.text[:begin]
        return rest

    def _begin(self) -> int | None:
        if found := _LIST.match(self.text):
            self.is_list = True
            return found.end()
        for found in _EVENTS.finditer(self.text, self._searched):
            self._count_until(found.start())
            if self._open == b"{" or not self._is_inside(found.end()):
                return found.end()
            self._searched = found.end()
        text = self.text.lstrip()
        self.is_list = text.startswith(b"[")
        return len(self.text) - len(text) + 1 if self.is_list else None

    def _count_until(self, end: int) -> None:
        """Follow which brackets are open; each part of the text is looked at once."""
        for found in _STRING_OR_BRACKET.finditer(self.text, self._counted, end):
            bracket = found[0][0]
            if bracket in _CLOSING:
                self._open.append(bracket)
            elif bracket != ord('"') and self._open:
                self._open.pop()
        self._counted = end

    def _is_inside(self, end: int) -> bool:
        """Tell whether a list that is not the document's own is no artefact of damage: its brackets close to JSON."""
        if not self._is_sound:
            closing = bytes(_CLOSING[bracket] for bracket in reversed(self._open))
            self._is_sound = is_json((self.text[:end] + b"]" + closing).decode("utf-8", "replace"))
        return self._is_sound
