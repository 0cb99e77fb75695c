"""The terminal: one line while a stage works, at most 25 lines at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_aorta.checks import Bound, Check, show, worst_first
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.hints import Hint
from pytest_aorta.reporting.model import RunView, short_label
from pytest_aorta.reporting.text import one_line, without_tally

MAX_SUMMARY_LINES = 25
_MAX_GATES = 10
_MAX_NOTES = 3
_MAX_SILENT = 3
_MAX_DRAINS = 4
_MAX_REASON_CHARS = 200
_MAX_LINE_CHARS = 400
_MAX_STEP_CHARS = 1200  # a command that is cut is none
_UNMEASURED = "unmeasured"
_GRAVITY = {"failed": 2, _UNMEASURED: 1}
_FOREMOST = (  # shown where no limit says which matter; of a row the first that was measured
    ("step_time_ms_median", "profiled_step_time_ms_median"),
    ("tokens_per_second_per_gpu", "samples_per_second"),
    ("avg_compute_ratio",),
    ("true_overlap_ratio", "avg_overlap_ratio"),
    ("time_variance_ratio",),
)
_NUMBER = re.compile(r"[+-]?\d[\d.,:]*(?:[eE][+-]?\d+)?")
_HEADLINES = {
    "passed": "PASSED",
    "failed": "FAILED",
    "could_not_measure": "COULD NOT MEASURE",
    "interrupted": "INTERRUPTED",
}


@dataclass(frozen=True, slots=True)
class Pulse:
    """What is known of a stage under way; None is not known (yet). Hosts of `silent_s` are not among the alive."""

    stage: str
    elapsed_s: float
    limit_s: float | None = None
    num_alive: int | None = None
    num_hosts: int | None = None
    step: int | None = None
    max_steps: int | None = None
    loss: float | None = None
    step_ms: float | None = None
    stalled_s: float | None = None
    silent_s: Mapping[str, float] = field(default_factory=dict)


def progress_text(pulse: Pulse) -> str:
    """Give the pulse as one line: stage, elapsed of limit, hosts alive, step, loss, time a step, stall."""
    elapsed = f"{pulse.elapsed_s:.0f} s"
    if pulse.limit_s is not None:
        elapsed += f" of {pulse.limit_s:.0f} s"
    parts = [f"{pulse.stage} {elapsed}"]
    if pulse.num_alive is not None and pulse.num_hosts is not None:
        parts.append(f"{pulse.num_alive} of {pulse.num_hosts} hosts alive")
    shown = list(pulse.silent_s.items())[:_MAX_SILENT]
    parts += [f"{host} silent for {seconds:.0f} s" for host, seconds in shown]
    if len(pulse.silent_s) > len(shown):
        parts.append(f"and {len(pulse.silent_s) - len(shown)} more silent")
    if pulse.step is not None:
        parts.append(f"step {pulse.step}" + (f" of {pulse.max_steps}" if pulse.max_steps is not None else ""))
    if pulse.loss is not None:
        parts.append(f"loss {pulse.loss:.4f}")
    if pulse.step_ms is not None:
        parts.append(f"{pulse.step_ms:.1f} ms a step")
    if pulse.stalled_s is not None:
        parts.append(f"no new step for {pulse.stalled_s:.0f} s")
    return ", ".join(parts)


def stamped(text: str, elapsed_s: float) -> str:
    """Give a progress text as a full line of a CI log: `[aorta +123.4s] …`."""
    return f"[aorta +{elapsed_s:.1f}s] {one_line(text)}"


class Cadence:
    """Says when a line is due where lines cannot be rewritten: when the words change, else every period.

    Numbers are no change: a step counter would else fill a CI log with a line a step.
    """

    def __init__(self, period_s: float = 30.0) -> None:
        self._period_s = period_s
        self._words: str | None = None
        self._last_s = 0.0

    def due(self, text: str, now_s: float) -> bool:
        """Tell whether the text is due at that time, and take it as written if so."""
        words = _NUMBER.sub("#", text)
        if words == self._words and now_s - self._last_s < self._period_s:
            return False
        self._words, self._last_s = words, now_s
        return True


def headline(view: RunView) -> str:
    """Give the verdict in one line: `PASSED: …`; of a long one, what the next step repeats is left out."""
    sentence = view.sentence
    for step in view.next_step.split("; ") if len(sentence) > _MAX_LINE_CHARS else ():
        sentence = sentence.replace(f"; {step}", "")
    return f"{_HEADLINES[view.verdict]}: {one_line(sentence, _MAX_LINE_CHARS)}"


def summary(view: RunView) -> tuple[str, ...]:
    """Give the end of the run in at most 25 lines: verdict, cause, gates or metrics, next step, drains, paths."""
    lines = [headline(view)]
    if view.first_cause and view.first_cause not in view.sentence:
        lines.append(f"first cause: {one_line(view.first_cause, _MAX_LINE_CHARS)}")
    if view.hint is not None:
        lines.append(f"hint: {one_line(hint_text(view.hint, view.next_step), _MAX_LINE_CHARS)}")
    lines += _gate_lines(view.gates) if view.gates else _metric_lines(view.metrics)
    if view.untold:
        lines.append(f"not judged: {one_line('; '.join(view.untold), _MAX_LINE_CHARS)}")
    lines += [f"note: {one_line(note, _MAX_LINE_CHARS)}" for note in view.notes[:_MAX_NOTES]]
    if len(view.notes) > _MAX_NOTES:
        lines.append(f"note: and {len(view.notes) - _MAX_NOTES} more in the report")
    lines += [f"{label}: {text}" for label, text in what_to_do(view)]
    room = MAX_SUMMARY_LINES - len(lines)
    lines += [f"{one_line(label)}: {one_line(path)}" for label, path in view.paths[:room]]
    return tuple(lines)


def what_to_do(view: RunView) -> Iterator[tuple[str, str]]:
    """Give (label, text) of the next step and of the commands that drain the hosts at fault."""
    if view.next_step:
        yield "next", one_line(view.next_step, _MAX_STEP_CHARS)
    yield from (("drain, in a Slurm cluster", command) for command in view.drain[:_MAX_DRAINS])
    if len(view.drain) > _MAX_DRAINS:
        yield "drain", f"and {len(view.drain) - _MAX_DRAINS} more such commands in the report"


def hint_text(hint: Hint, next_step: str) -> str:
    """Give a hint's severity, cause and next step; a next step that is told already is left out."""
    step = "" if hint.next_step in next_step else f"; {hint.next_step}"
    return f"[{hint.severity}] {hint.cause}{step}"


def _word(check: Check) -> str:
    return _UNMEASURED if check.unmeasured else check.state.replace("_", " ")


def _why(check: Check) -> str:
    """Give the reason of a gate that did not hold, without the tally that every failing gate carries."""
    if check.state == "passed" or not check.reason:
        return ""
    return f": {one_line(without_tally(check.reason), _MAX_REASON_CHARS)}"


def _metric_lines(metrics: Mapping[str, Metric]) -> list[str]:
    measured = {name: one for name, one in metrics.items() if one.value is not None}
    shown = [known[0] for row in _FOREMOST if (known := [name for name in row if name in measured])]
    width = max(map(len, shown), default=0)
    rows = [f"  {name:{width}}  {show(measured[name].value, measured[name].unit, name)}" for name in shown]
    return ["measured:", *rows] if rows else []


def _gate_lines(gates: Sequence[Check]) -> list[str]:
    words: dict[tuple[str, Bound | None], str] = {}  # the ranks of one gate are one, and one that failed says more
    for check in sorted(gates, key=lambda check: _GRAVITY.get(_word(check), 0)):
        words[check.gate_name, check.gate] = _word(check)
    told = list(words.values())
    bad = [f"{told.count(word)} of {len(told)} {word}" for word in ("failed", _UNMEASURED) if word in told]
    header = f"gates: {', '.join(bad)}" if bad else f"gates: {len(told)}, none failed"
    shown = [*worst_first(gates), *(check for check in gates if not check.failed)][:_MAX_GATES]
    names = [one_line(short_label(check), 80) for check in shown]
    width = max(map(len, names))
    lines = [
        f"  {_word(check):10} {name:{width}}  {check.actual_text} ({check.gate}){_why(check)}"
        for name, check in zip(names, shown, strict=True)
    ]
    if len(gates) > len(shown):
        lines.append(f"  and {len(gates) - len(shown)} more in the report")
    return [header, *lines]
