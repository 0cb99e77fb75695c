"""HTML fragments for the rows and the summary of a pytest-html report, and the log page of a stage.

Everything is complete without scripts: what Jenkins serves blocks them. Values reach a template only through an
environment that cleans and escapes every one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pytest_aorta.checks import Check
from pytest_aorta.reporting.margin import margin
from pytest_aorta.reporting.model import RunView, StageRow, short_label, title, without_cause
from pytest_aorta.reporting.text import clean, cut_middle, one_line, show_seconds, without_tally

TEMPLATES = Path(__file__).parent / "templates"
MAX_UNFOLDED_CHECKS = 64
MAX_OTHER_TESTS = 64
MAX_SECTION_CHARS = 256 * 1024
_MAX_REASON_CHARS = 600
_OUTCOMES = ("failed", "skipped", "passed")
_LINK_SCHEMES = ("", "http", "https", "file")

_WORDS = {
    "passed": "✔ passed",
    "failed": "✘ FAILED",
    "could_not_measure": "✘ COULD NOT MEASURE",
    "interrupted": "■ INTERRUPTED",
    "warned": "▲ warned",
    "skipped": "» skipped",
    "not_run": "» not run",
    "not_judged": "? not judged",
    "unmeasured": "✘ unmeasured",
}


@dataclass(frozen=True, slots=True)
class OtherTest:
    """A test of the session that is no stage: the verdict does not speak of it."""

    name: str
    outcome: Literal["failed", "skipped", "passed"]
    reason: str = ""


def reason_text(row: StageRow) -> str:
    """Give the text of a stage's Reason cell: its own reason, else what its checks came to."""
    if row.reason:
        return one_line(without_cause(row.reason), _MAX_REASON_CHARS)
    return checks_text(row.checks)


def checks_text(checks: Sequence[Check]) -> str:
    """Give what checks came to: `4 checks passed`, `1 of 4 checks failed, 1 unmeasured`."""
    if not checks:
        return ""
    counts = Counter(_state(check) for check in checks)
    noun = "check" if len(checks) == 1 else "checks"
    text = f"{counts['failed']} of {len(checks)} {noun} failed" if counts["failed"] else ""
    if counts["unmeasured"]:
        whole = "" if text else f" of {len(checks)} {noun}"
        text = ", ".join(filter(None, (text, f"{counts['unmeasured']}{whole} unmeasured")))
    if not text and counts["not_judged"] < len(checks):
        text = f"{len(checks) - counts['warned'] - counts['not_judged']} of {len(checks)} {noun} passed"
        if not counts["warned"] and not counts["not_judged"]:
            text = f"{len(checks)} {noun} passed"
    extra = [f"{counts[state]} {state.replace('_', ' ')}" for state in ("warned", "not_judged") if counts[state]]
    return ", ".join([text, *extra] if text else extra)


def reason_cell(text: str) -> str:
    """Give the Reason cell of a pytest-html row."""
    return str(Markup('<td class="col-reason">{}</td>').format(clean(text)))


def subtest_table(checks: Sequence[Check]) -> str:
    """Give the table of a stage's checks: Result, name, Actual, Gate, Reason; many passed ones are one line."""
    if not checks:
        return ""
    shown, num_folded = _fold(checks)
    return render("checks.jinja", checks=shown, num_folded=num_folded)


def result_word(check: Check) -> str:
    """Give what came of a check in a word; a limit that nothing was measured for is told from one that was missed."""
    return _WORDS[_state(check)]


def _state(check: Check) -> str:
    return "unmeasured" if check.unmeasured else check.state


def margin_text(check: Check) -> str:
    """Give how far a value is from its limit: `12.5 % left`, `80.5 % over`; empty where nothing was measured."""
    if check.gate is None or check.actual is None:
        return ""
    return margin(check.gate.kind, check.actual, check.gate.limit, check.gate.tolerance)


def counts_text(view: RunView) -> str:
    """Give the counts: `10 stages: 8 passed, 2 skipped; 3 sub-tests: 1 failed, 2 passed`."""
    texts = [_tally("stage", [row.verdict for row in view.stages])]
    subtests = [_state(check) for row in view.stages for check in row.subtests]
    if subtests:
        texts.append(_tally("sub-test", subtests))
    return "; ".join(texts)


def _tally(noun: str, states: Sequence[str]) -> str:
    counts = Counter(states)
    parts = [f"{counts[state]} {state.replace('_', ' ')}" for state in sorted(counts)]
    return f"{len(states)} {noun}{'s' if len(states) != 1 else ''}: {', '.join(parts)}"


def summary_prefix(
    view: RunView,
    *,
    log_pages: Sequence[str] = (),
    pages_folder: str = "",
    reports: str = "",
    inputs: Sequence[tuple[str, str, str]] = (),
    session: Sequence[tuple[str, str, str]] = (),
    others: Sequence[OtherTest] = (),
) -> str:
    """Give the head of the report: verdict, stages, gates, metrics, environment, paths, all of it static.

    `log_pages` names the stages that have a log page below `pages_folder` (relative to the report); `reports` is
    the fragment that links the deck; `inputs` and `session` are rows (name, value, target or "") of the environment,
    before and after the view's own; `others` are the tests beside the stages.
    """
    pages = {name: quote(f"{pages_folder}/{name}.html") for name in log_pages}
    gates, num_folded = _fold(view.gates)
    failed_first = sorted(others, key=lambda test: _OUTCOMES.index(test.outcome))
    unmeasured: dict[str, list[str]] = {}
    for name, metric in view.metrics.items():
        if metric.value is None:
            unmeasured.setdefault(metric.why, []).append(name)
    return render(
        "summary.jinja",
        view=view,
        counts=counts_text(view),
        others=failed_first[:MAX_OTHER_TESTS],
        num_others=len(others),
        num_others_failed=sum(test.outcome == "failed" for test in others),
        other_counts=_tally("test", [test.outcome for test in others]),
        pages=pages,
        reports=Markup(reports),  # noqa: S704 rendered by us
        tables=[Markup(subtest_table(stage.checks)) for stage in view.stages],  # noqa: S704 rendered by us
        environment=[*inputs, *view.environment, *session],
        gates=gates,
        num_folded=num_folded,
        unmeasured=unmeasured,
    )


def log_page(
    node_id: str,
    sections: Sequence[tuple[str, str]],
    *,
    full_text_name: str,
    report_name: str = "",
    max_chars: int = MAX_SECTION_CHARS,
) -> tuple[str, bool]:
    """Give the log page of a stage, and whether it was cut so that the full text must stand beside it.

    `report_name` is the report's file, one folder above the page.
    """
    cut = [(name, *cut_middle(text, max_chars)) for name, text in sections]
    was_cut = any(omitted for _, _, omitted in cut)
    page = render(
        "log_page.jinja",
        node_id=node_id,
        sections=[(name, text) for name, text, _ in cut],
        full_text=quote(full_text_name) if was_cut else "",
        back=f"../{quote(report_name)}" if report_name else "",
        css=Markup(stylesheet()),  # noqa: S704 our own file
    )
    return page + "\n", was_cut


def full_text(node_id: str, sections: Sequence[tuple[str, str]]) -> str:
    """Give every section uncut as plain text."""
    parts = [f"{clean(node_id)}\n"]
    parts += [f"\n{f' {clean(name)} ':-^80}\n{clean(text)}\n" for name, text in sections]
    return "".join(parts)


def stylesheet() -> str:
    """Give the style sheet of our pages; it stands in a file beside them and once more inside each."""
    return (TEMPLATES / "aorta.css").read_text(encoding="utf-8")


def breakable(path: str) -> Markup:
    """Give a path that may be broken behind each slash, so that no name is broken where there is another way."""
    return Markup("/<wbr/>").join(clean(path).split("/"))


def is_link(target: str) -> bool:
    """Tell whether a page may link there: a path or a web address, never a script."""
    try:
        return bool(target) and urlsplit(clean(target).strip()).scheme.lower() in _LINK_SCHEMES
    except ValueError:
        return False


def _fold(checks: Sequence[Check]) -> tuple[tuple[Check, ...], int]:
    """Give the checks to show and how many passed ones are left to one line."""
    if len(checks) <= MAX_UNFOLDED_CHECKS:
        return tuple(checks), 0
    shown = tuple(check for check in checks if check.state != "passed")
    return shown, len(checks) - len(shown)


def _finalize(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return clean(value)
    return value


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = show_seconds
    environment.filters["one_line"] = one_line
    environment.filters["short_label"] = short_label
    environment.filters["reason"] = reason_text
    environment.filters["checks_text"] = checks_text
    environment.filters["without_tally"] = without_tally
    environment.filters["margin"] = margin_text
    environment.filters["result_word"] = result_word
    environment.filters["heading"] = title
    environment.filters["breakable"] = breakable
    environment.tests["link"] = is_link
    environment.globals["words"] = _WORDS
    return environment


def render(template: str, **values: Any) -> str:
    """Fill a template; every value is cleaned and escaped."""
    return _ENVIRONMENT.get_template(template).render(**values).strip()


_ENVIRONMENT = _environment()
