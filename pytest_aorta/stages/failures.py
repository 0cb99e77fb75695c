"""Which rank failed first, told from what torchrun and the ranks themselves say.

torchrun calls the rank that it happened to poll first the root cause. When a rank dies, its peers die of the broken
connection a moment later, often within the same poll; so a rank whose last words are about a lost peer, or that
torchrun ended itself, is never named as the cause while another one failed for a reason of its own.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

# torchrun marks the lines of a rank ("[default1]:"); torch adds the rank once more to uncaught errors ("[rank1]: ").
RANK_MARK = re.compile(r"^\[[A-Za-z_]*(\d{1,4})\]:\s?")
_TORCH_MARK = re.compile(r"^\[rank\d+\]:\s")
_EARLY_NOTICE = re.compile(r"^[EW]\d{4} [\d:.]+ .*\] failed \(exitcode: (-?\d{1,9})\) local_rank: (\d{1,9})")
_RANK = re.compile(r"^\s+rank\s+: (\d{1,9}) \(local_rank: (\d{1,9})\)")
_EXIT = re.compile(r"^\s+exitcode\s+: (-?\d{1,9})(?!\d)")
_ERROR = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b|^\S+: (?:error: |can't open file)")
# What the C and C++ libraries and Python say before they abort; the second line of an exception is its text.
_ABORT = re.compile(
    r"terminate called |\s+what\(\): |Fatal Python error: |\*\*\* .* \*\*\*|.*\bAssertion .* failed"
    r"|(?:malloc|free|realloc|munmap_chunk)\(\): |double free or corruption|corrupted "
)
# The trainer's, of a rank that got a signal, and of one that stopped with it.
_STOPPED = re.compile(r"\b(?:stopped by|ended because rank \d+ got) SIG[A-Z]+,? after step \d+\b")
_TRAINERS_WORD = re.compile(r"^train\.py: ")  # what it refuses, or why it failed
_PEER_LOST = re.compile(
    r"connection (?:reset|closed) by peer|remote (?:worker|process) (?:hanging|crashing|exited)|broken pipe"
    r"|ncclRemoteError|socket (?:closed|timeout)|peer closed|connection was likely closed|caused pair closure"
    r"|timed out (?:waiting|after \d+ seconds waiting)|read timeout|wait timeout after|collective operation timeout"
    r"|watchdog caught|communicator was aborted|unhandled system error|failed to recv, got 0 bytes"
    r"|failed to pass monitoredBarrier|errors while waiting for send/recv|client socket has failed to connect"
    r"|connection abort|no route to host|ended because rank \d+ ",
    re.IGNORECASE,
)
_HANDLED = re.compile(r"\b(?:WARNING|WARN|INFO|DEBUG)\b|^\[?[WI]\d{4} ")
# What a rank ends with when an uncaught error, a library's watchdog or what the trainer's ranks agreed on ends it;
# anything else is of its own making.
_FOLLOWERS_CODES = frozenset({1, -6, 130, 143})
_OF_SIGNALS = frozenset({130, 143})
_ENDED_BY_TORCHRUN = frozenset({-15, 143})
_MAX_WORDS_CHARS = 300
MAX_ALIKE = 3
REFUSED = 2
KILLED = "was ended by SIGKILL"


@dataclass(slots=True)
class RankFailure:
    """One failed rank of a host: its exit code (negative: the signal's number) and its last error line."""

    rank: int
    local_rank: int
    code: int
    last_words: str = ""

    @property
    def is_own(self) -> bool:
        """Tell whether the rank failed for a reason of its own, not because a peer was gone."""
        return self.code not in _FOLLOWERS_CODES or not _PEER_LOST.search(self.last_words)

    def __str__(self) -> str:
        """Give the failure as a clause: `rank 1 exited 13: RuntimeError: …`."""
        words = f": {self.last_words}" if self.last_words else ""
        return f"rank {self.rank} {ended(self.code)}{words}"


@dataclass(slots=True)
class Failures:
    """What the lines of one host's log say about its failed ranks."""

    noticed: tuple[int, int] | None = None
    words: dict[int, str] = field(default_factory=dict)
    last_lines: dict[int, str] = field(default_factory=dict)
    aborts: dict[int, str] = field(default_factory=dict)
    refusal: str = ""
    unmarked_words: str = ""
    ranks: dict[int, RankFailure] = field(default_factory=dict)
    _open: tuple[int, int] | None = None

    def line(self, line: str) -> None:
        """Take one log line."""
        mark = RANK_MARK.match(line)
        text = _TORCH_MARK.sub("", line[mark.end() :] if mark else line)
        if mark is not None:
            local_rank = int(mark[1])
            if trainer := _TRAINERS_WORD.match(text):
                self.refusal = self.refusal or text.strip()[:_MAX_WORDS_CHARS]
                self.words[local_rank] = text[trainer.end() :].strip()[:_MAX_WORDS_CHARS]
            elif stopped := _STOPPED.search(text):
                self.words[local_rank] = stopped[0]
            elif _ERROR.match(text) or (_PEER_LOST.search(text) and not _HANDLED.search(text)):
                self.words[local_rank] = text.strip()[:_MAX_WORDS_CHARS]
            elif text.strip():
                self.last_lines[local_rank] = text.strip()[:_MAX_WORDS_CHARS]
                if _ABORT.match(text):
                    said = " ".join(filter(None, (self.aborts.get(local_rank), text.strip())))
                    self.aborts[local_rank] = said[:_MAX_WORDS_CHARS]
        elif notice := _EARLY_NOTICE.search(line):
            self.noticed = int(notice[2]), int(notice[1])
        elif found := _RANK.match(line):
            self._open = int(found[1]), int(found[2])
        elif (found := _EXIT.match(line)) and self._open is not None:
            rank, local_rank = self._open
            self.ranks[rank] = RankFailure(rank, local_rank, int(found[1]))
        elif _ERROR.match(text):
            self.unmarked_words = text.strip()[:_MAX_WORDS_CHARS]

    def cause(self, code: int | None) -> Cause:
        """Say who failed first on a host whose command ended with `code`."""
        failed = sorted(self.ranks.values(), key=lambda failure: failure.rank)
        codes = {failure.code for failure in failed}
        if self.refusal and REFUSED in codes and codes <= {REFUSED, *_ENDED_BY_TORCHRUN}:
            return Cause(f"the trainer refuses its configuration: {self.refusal}", is_own=True, is_refusal=True)
        for failure in failed:
            failure.last_words = self.words.get(failure.local_rank) or self._last_line(failure)
        if not failed:
            words = self.unmarked_words or next(iter(self.words.values()), "")
            said = f"the workload {ended(code)}" + (f": {words}" if words else "")
            return Cause(said, is_own=not _PEER_LOST.search(words))
        ended_by_torchrun = [f for f in failed if f.code in _ENDED_BY_TORCHRUN]
        by_themselves = [f for f in failed if f not in ended_by_torchrun]
        causes = [f for f in by_themselves if f.is_own] or self._signalled(ended_by_torchrun)
        if not causes and not by_themselves:
            causes = [failure for failure in failed if failure.is_own]
        if not causes:
            return Cause(_lost_peers(by_themselves or failed, ended_by_torchrun), is_own=False)
        followers = len(failed) - len(causes)
        after = f" ({_more(followers, 'rank')} ended after it)" if followers else ""
        return Cause("; ".join(_alike(causes)) + after, is_own=True)

    def _signalled(self, failed: list[RankFailure]) -> list[RankFailure]:
        """Tell whom a signal ended before torchrun ended the others by the same one.

        Those that say so themselves, else the one whose end torchrun noticed before it ended any; nobody where neither.
        """
        own = [failure for failure in failed if failure.is_own]
        stopped = [failure for failure in own if _STOPPED.search(failure.last_words)]
        return stopped or [failure for failure in own if (failure.local_rank, failure.code) == self.noticed]

    def _last_line(self, failure: RankFailure) -> str:
        """Give the last thing a rank said; one that was killed had no last words about it.

        A rank that ended itself by SIGABRT said why before its stacks.
        """
        if failure.code == -signal.SIGABRT:
            return self.aborts.get(failure.local_rank, "")
        return self.last_lines.get(failure.local_rank, "") if failure.code == 1 else ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Who failed first on one host; not its `own` when all its ranks died of peers elsewhere.

    A refusal is the workload's word that it was started wrongly: nothing was measured.
    """

    said: str
    is_own: bool
    is_refusal: bool = False


def first_causes(failures: Mapping[str, Failures], codes: Mapping[str, int | None]) -> dict[str, Cause]:
    """Say who failed first, by host; hosts whose ranks only lost their peers are left out where another has a cause."""
    found = {host: failures.get(host, Failures()).cause(code) for host, code in codes.items()}
    own = {host: cause for host, cause in found.items() if cause.is_own}
    named = own or found
    followers = len(found) - len(named)
    after = f" ({_more(followers, 'host')} ended after it)" if followers else ""
    return {host: replace(cause, said=f"{host}: {cause.said}{after}") for host, cause in named.items()}


def _more(number: int, noun: str) -> str:
    return f"{number} more {noun}{'s' if number > 1 else ''}"


def _lost_peers(losers: list[RankFailure], ended_by_torchrun: list[RankFailure]) -> str:
    """Say that nobody failed for a reason of its own, and who had not failed at all until torchrun ended it."""
    names = ", ".join(str(failure.rank) for failure in losers)
    still = ", ".join(str(failure.rank) for failure in ended_by_torchrun)
    where = f"; rank {still} had not failed until then: look there" if still else "; which rank went first was not seen"
    return f"rank {names} lost a peer or waited for it in vain ({losers[0].last_words}){where}"


def _alike(failures: list[RankFailure]) -> Iterator[str]:
    """Tell of several ranks that say the same with the same code once, and of all of them unless the words tell enough.

    With words of their own all of them were started wrongly alike.
    """
    seen: dict[tuple[int, str], list[RankFailure]] = {}
    for failure in failures:
        seen.setdefault((failure.code, failure.last_words), []).append(failure)
    for (code, words), (first, *others) in seen.items():
        names = [str(failure.rank) for failure in others] if not words or code < 0 or code in _OF_SIGNALS else []
        more = f" and {len(names) - MAX_ALIKE} more" if len(names) > MAX_ALIKE else ""
        yield f"{first} (likewise rank {', '.join(names[:MAX_ALIKE])}{more})" if names else str(first)


def ended(code: int | None) -> str:
    """Say how something ended: `exited 13`, `was ended by SIGKILL`, `did not end`."""
    if code is None:
        return "did not end"
    return f"was ended by {_signal_name(-code)}" if code < 0 else f"exited {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal, or a wrong number
        return f"signal {number}"
