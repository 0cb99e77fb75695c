"""Host lists as Slurm writes them: `node[1-3,07],login`; what is said of several hosts, and the command that drains."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)(\d+)$")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_NO_REASON = re.compile(r"[^A-Za-z0-9 .,:;()/_+@%-]+")
_EVERY_NODE = "ALL"  # scontrol takes it for all nodes of the cluster
MAX_REASON_CHARS = 120
MAX_SPELT = 3
_SILENCE = re.compile(r"(?<=\bfor )\d+(?= s\b)")  # how long, which is never the same on two hosts
_ADDRESS = re.compile(r"(\0) is \S+(?= port \d)|(connection to) \S+(?= port \d)")  # which ssh was led to


def host_list(hosts: Iterable[str]) -> str:
    """Write names as one host list, in their order; neighbours that count on are folded into a range.

    Names that no host list can hold (an address with colons, for example) stand as they are.
    """
    groups: list[tuple[str, int, list[int]]] = []
    for host in dict.fromkeys(hosts):
        found = _NUMBERED.fullmatch(host) if _PLAIN.fullmatch(host) else None
        if found is None or _is_address(host):
            groups.append((host, 0, []))
            continue
        prefix, digits = found.groups()
        width = len(digits) if digits.startswith("0") else 0
        before, before_width, numbers = groups[-1] if groups else ("", 0, [])
        if numbers and before == prefix and before_width in {width, len(digits)}:
            numbers.append(int(digits))
        else:
            groups.append((prefix, width, [int(digits)]))
    return ",".join(_written(*group) for group in groups)


def told(sentences: Iterable[tuple[str | None, str]]) -> str:
    """Join what is said of hosts, each sentence beginning with its host's name; the same is said once for all of them.

    `gpu1 (likewise gpu[2-9]): the name gpu1 does not resolve`, or `gpu1, gpu2: no torch` where no name comes again.
    What is said of no host stands as it is, and of how many seconds something lasted those of the first host.
    """
    groups: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for host, said in sentences:
        alike = said if host is None else _without_name(host, said)
        first.setdefault(alike, said)
        groups.setdefault(alike, []).extend([] if host is None else [host])
    return "; ".join(_said(hosts, first[alike]) for alike, hosts in groups.items())


def _said(hosts: list[str], sentence: str) -> str:
    first, *others = dict.fromkeys(hosts) or [""]
    rest = sentence.removeprefix(first)
    if not others or rest == sentence:
        return sentence
    if rest.startswith(":") and not _name(first).search(rest) and not _ADDRESS.search(rest):
        return spelt([first, *others]) + rest
    return f"{first} (likewise {spelt(others)}){rest}"


def advised(steps: Iterable[tuple[str | None, str]]) -> str:
    """Give the first thing to do, for all the hosts of which the same is to be done: `look at the link of gpu[1-9]`.

    One with a command, or with a file of a host, is given as it is.
    """
    (first, step), *others = steps
    if (
        first is None
        or _of_file(first).search(step)
        or any(_name(first).search(text) for text in step.split("`")[1::2])
    ):
        return step
    alike = _without_name(first, step)
    hosts = [host for host, said in others if host is not None and _without_name(host, said) == alike]
    return _name(first).sub(lambda _: spelt(list(dict.fromkeys([first, *hosts]))), step)


def likewise(steps: Iterable[tuple[str, str]]) -> list[str]:
    """Give what to do on hosts, each thing once, as ``try `ssh gpu1` (likewise for gpu[2-9])``."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for host, step in steps:
        groups.setdefault(_without_name(host, step), []).append((host, step))
    return [_for_all(alike) for alike in groups.values()]


def _for_all(alike: list[tuple[str, str]]) -> str:
    (first, step), *others = alike
    hosts = list(dict.fromkeys(host for host, _ in others if host != first))
    return f"{step} (likewise for {spelt(hosts)})" if hosts and _name(first).search(step) else step


def _of_file(host: str) -> re.Pattern[str]:
    return re.compile(rf"[/._-]{re.escape(host)}(?![A-Za-z0-9])|(?<![A-Za-z0-9]){re.escape(host)}(?:[/_:'-]|\.\w)")


def _without_name(host: str, text: str) -> str:
    return _SILENCE.sub("", _ADDRESS.sub(lambda found: found[1] or found[2], _name(host).sub("\0", text)))


def spelt(hosts: list[str]) -> str:
    """Name a few hosts in words, many as a host list."""
    return ", ".join(hosts) if len(hosts) <= MAX_SPELT else host_list(hosts)


def _name(host: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])")


def drain_command(hosts: Iterable[str], reason: str) -> str:
    """Give the shell command that drains Slurm nodes; empty where no host has a name that a node can have.

    What a host wrote may stand in the reason: only characters that neither a shell nor scontrol reads are left of it.
    """
    nodes = [host for host in hosts if _PLAIN.fullmatch(host) and not _is_address(host) and host.upper() != _EVERY_NODE]
    if not nodes:
        return ""
    told = " ".join(_NO_REASON.sub(" ", reason).split())[:MAX_REASON_CHARS].rstrip()
    return shlex.join(["scontrol", "update", f"nodename={host_list(nodes)}", "state=drain", f"reason={told}"])


def _written(prefix: str, width: int, numbers: list[int]) -> str:
    ranges = [_range(list(run), width) for run in _runs(numbers)]
    if not ranges:
        return prefix
    if len(numbers) == 1:
        return prefix + ranges[0]
    return f"{prefix}[{','.join(ranges)}]"


def _runs(numbers: list[int]) -> Iterable[Iterable[int]]:
    numbered = enumerate(numbers)
    for _, run in itertools.groupby(numbered, key=lambda pair: pair[1] - pair[0]):
        yield (number for _, number in run)


def _range(numbers: list[int], width: int) -> str:
    first, last = (f"{number:0{width}d}" if width else str(number) for number in (numbers[0], numbers[-1]))
    return first if len(numbers) == 1 else f"{first}-{last}"


def _is_address(host: str) -> bool:
    return re.fullmatch(r"[0-9.]+", host) is not None
