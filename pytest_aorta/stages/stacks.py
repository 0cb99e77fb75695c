"""Stacks: where the ranks of a workload that hangs stand, and who stands elsewhere than the others."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_aorta.ranks import ranks_of

MAX_LINES = 5000
MAX_NAMED = 4

_BEGINS = re.compile(r"most recent call first")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen ")
_WAITS = re.compile(
    r"/torch/(?:distributed|nn/parallel|autograd)/|/torch/cuda/(?:streams|__init__)\.py$|/torch/_ops\.py$"
    r"|/deepspeed/comm/"
)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+) in (\S+)')


class Source(NamedTuple):
    """Who wrote a stack: a host, and the rank on it, as torchrun marks its lines."""

    host: str
    local_rank: int | None


class Place(NamedTuple):
    """Where a main thread stands; `waits`: most likely for other ranks or its device, by the file of its frame.

    It orders what is told and blames nobody: the user's own line may wait for the device, and a library's may not.
    """

    text: str
    waits: bool


class Stacks:
    """The Python stacks that ranks wrote, as faulthandler writes them."""

    def __init__(self) -> None:
        self._lines: dict[Source, list[str]] = {}

    def __len__(self) -> int:
        """Give how many ranks have written one."""
        return len(self._lines)

    def clear(self) -> None:
        """Forget what was written before."""
        self._lines.clear()

    def line(self, source: Source, text: str) -> None:
        """Take a line of a rank, if it belongs to a stack."""
        if _BEGINS.search(text) or _FRAME.match(text):
            kept = self._lines.setdefault(source, [])
            if len(kept) < MAX_LINES:
                kept.append(text)

    def places(self) -> dict[Source, Place]:
        """Give where each rank's main thread stands; a rank without a frame is left out."""
        found = {source: _place(lines) for source, lines in self._lines.items()}
        return {source: place for source, place in sorted(found.items(), key=_order) if place is not None}


def where_they_stand(places: Mapping[Source, Place], hosts: Sequence[str], ranks_per_host: int) -> str:
    """Say where the ranks stand: first those that did not answer, then those that are not like the others.

    `hosts` are those of the cluster in their order, by which torchrun numbers `ranks_per_host` ranks on each; 0 where
    nobody numbers them, and one stack of each host is expected. Empty when nobody has answered.
    """
    if not places:
        return ""
    silent = [_rank(source, hosts, ranks_per_host) for source in _silent(places, hosts, ranks_per_host)]
    groups: dict[Place, list[Source]] = {}
    for source, place in places.items():
        groups.setdefault(place, []).append(source)
    ordered = sorted(groups.items(), key=lambda group: (group[0].waits, len(group[1])))
    told = [
        f"{_named([_rank(source, hosts, ranks_per_host) for source in sources])} in {place.text}"
        for place, sources in ordered
    ]
    return "; ".join([*([f"no stack came from {_named(silent)}"] if silent else []), *told])


def _silent(places: Mapping[Source, Place], hosts: Sequence[str], ranks_per_host: int) -> list[Source]:
    if not ranks_per_host:
        answered = {source.host for source in places}
        return [Source(host, None) for host in hosts if host not in answered]
    expected = [Source(host, local) for host in hosts for local in range(ranks_per_host)]
    return [source for source in expected if source not in places]


def _order(found: tuple[Source, Place | None]) -> tuple[str, int]:
    source = found[0]
    return source.host, -1 if source.local_rank is None else source.local_rank


def _rank(source: Source, hosts: Sequence[str], ranks_per_host: int) -> str:
    host, local = source
    if local is None:
        return host
    if host not in hosts or local >= ranks_per_host:
        return f"local rank {local} of {host}"
    return f"rank {ranks_of(hosts.index(host), ranks_per_host)[local]} ({host})"


def _named(ranks: list[str]) -> str:
    more = len(ranks) - MAX_NAMED
    return ", ".join([*ranks[:MAX_NAMED], *([f"{more} more"] if more > 0 else [])])


def _place(lines: list[str]) -> Place | None:
    """Give where the main thread of a rank stands: of several that answered for it, one that waits, else the first.

    A helper of a rank may write its stack among the rank's lines, and does not wait for other ranks.
    """
    starts = [i for i, line in enumerate(lines) if _BEGINS.search(line)]
    current = [i for i in starts if lines[i].lstrip().startswith("Current thread")]
    places = [place for start in (current or starts[-1:] or [-1]) if (place := _stands(lines[start + 1 :])) is not None]
    return next((place for place in places if place.waits), places[0] if places else None)


def _stands(lines: list[str]) -> Place | None:
    """Give the innermost frame of a thread, and the workload's own frame above it.

    faulthandler calls the thread that takes the signal, the main one, the current thread; frames go outwards.
    """
    thread = itertools.takewhile(lambda line: not _BEGINS.search(line), lines)
    frames = [(f[1], f"{f[3]} ({f[1].rpartition('/')[2]}:{f[2]})") for line in thread if (f := _FRAME.match(line))]
    if not frames:
        return None
    own = next((shown for path, shown in frames if not _LIBRARY.search(path)), "")
    path, inner = frames[0]
    return Place(inner if own in {"", inner} else f"{inner}, called from {own}", bool(_WAITS.search(path)))
