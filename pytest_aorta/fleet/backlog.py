"""Backlog: what hosts said and nobody has taken yet, in bounded memory."""

from __future__ import annotations

import threading
from collections import Counter, deque

from pytest_aorta.fleet.ask import Event

MAX_LINES = 20_000  # of one host, which are read within a second
MAX_CHARS = 4 * 1024 * 1024


class Backlog:
    """Events in the order in which they came; of a host that prints faster than it is read the oldest lines go."""

    def __init__(self, max_lines: int = MAX_LINES, max_chars: int = MAX_CHARS) -> None:
        self._max_lines = max_lines
        self._max_chars = max_chars
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._events: deque[Event] = deque()
        self._num_lines: Counter[str] = Counter()
        self._num_chars: Counter[str] = Counter()
        self._num_dropped: Counter[tuple[str, str]] = Counter()

    def put(self, event: Event) -> None:
        """Take an event in."""
        with self._lock:
            self._events.append(event)
            self._count(event, 1)
            while self._num_lines[event.host] > self._max_lines or self._num_chars[event.host] > self._max_chars:
                self._drop_oldest(event.host)
            self._ready.set()

    def take(self, timeout_s: float) -> list[Event]:
        """Give all that is there; wait up to `timeout_s` for something."""
        self._ready.wait(timeout_s)
        with self._lock:
            found = [self._told(event) for event in self._events]
            self._events.clear()
            self._num_lines.clear()
            self._num_chars.clear()
            self._num_dropped.clear()
            self._ready.clear()
        return found

    def _drop_oldest(self, host: str) -> None:
        place = next(i for i, event in enumerate(self._events) if event.host == host and _lines(event))
        event = self._events[place]
        self._count(event, -1)
        lines = _lines(event)
        is_only = not self._num_lines[host]
        kept = lines[len(lines) // 2 + 1 :] if is_only else []
        self._num_dropped[host, str(event.data.get("name"))] += len(lines) - len(kept)
        self._events[place] = Event(host, event.kind, {**event.data, "lines": kept})
        self._count(self._events[place], 1)
        if not kept:
            del self._events[place]

    def _count(self, event: Event, sign: int) -> None:
        lines = _lines(event)
        self._num_lines[event.host] += sign * len(lines)
        self._num_chars[event.host] += sign * sum(map(len, lines))

    def _told(self, event: Event) -> Event:
        """Give an event, the first of a log of which lines were dropped with a line about them."""
        dropped = self._num_dropped.pop((event.host, str(event.data.get("name"))), 0) if _lines(event) else 0
        if not dropped:
            return event
        note = f"[{dropped} lines of this log were not shown, they came too fast; its file has them]"
        return Event(event.host, event.kind, {**event.data, "lines": [note, *_lines(event)]})


def _lines(event: Event) -> list[str]:
    lines = event.data.get("lines") if event.kind == "lines" else None
    return lines if isinstance(lines, list) else []
