"""JUnit: properties of a stage's testcase, and a second file with one testcase a gate and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree as ET

from pytest_aorta.checks import Check
from pytest_aorta.reporting.hints import find
from pytest_aorta.reporting.model import RunView, StageRow
from pytest_aorta.reporting.text import one_line

SUBTEST_PROPERTY = "cvs_aorta_subtest"
VERDICT_PROPERTY = "aorta.verdict"
HINT_PROPERTY = "aorta.hint"


def properties_for(checks: Sequence[Check]) -> list[tuple[str, str]]:
    """Give the properties of the sub-tests among the checks, in order.

    Each sub-test stands twice: under the documented name, which repeats, and under a name of its own, because readers
    such as Jenkins keep one value a name.
    """
    subtests = [check for check in checks if check.subtest]
    properties = []
    for check, name in zip(subtests, _told_apart(check.label for check in subtests), strict=True):
        text = one_line(check.line())
        properties += [(SUBTEST_PROPERTY, text), (f"aorta.{one_line(name)}", text)]
    return properties


def _told_apart(names: Iterable[str]) -> Iterator[str]:
    """Number names that come again, such as those of a metric's second gate; the first keeps its own."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}"


def stage_properties(row: StageRow) -> list[tuple[str, str]]:
    """Give all properties of a stage's testcase: its sub-tests, then its verdict, then the hint about its failure."""
    hint = [(HINT_PROPERTY, row.hint.line())] if row.hint is not None else []
    return [*properties_for(row.checks), (VERDICT_PROPERTY, row.verdict), *hint]


def gates_xml(view: RunView) -> str:
    """Give `<suite>-gates.xml`: one testcase a check, so that a CI server draws a trend for each gate and host.

    Names do not hold values, so that a testcase is the same from run to run. A check that was not judged is skipped;
    one that only warns passes and says why in its output. A run that did not pass though no check failed is an error.
    """
    cases = [
        _testcase(f"{view.suite}.{stage.name}", name, check)
        for stage in view.stages
        for check, name in zip(stage.checks, _told_apart(map(_name, stage.checks)), strict=True)
    ]
    if view.verdict != "passed" and not any(check.failed for stage in view.stages for check in stage.checks):
        cases.append(_run_itself(view))
    failures = sum(case.find("failure") is not None for case in cases)
    errors = sum(case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    root = ET.Element("testsuites", name="aorta gates")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=one_line(f"{view.suite}-gates"),
        tests=str(len(cases)),
        failures=str(failures),
        errors=str(errors),
        skipped=str(skipped),
        time="0.000",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("aorta.run_id", view.run_id), (VERDICT_PROPERTY, view.verdict)):
        ET.SubElement(properties, "property", name=name, value=one_line(value))
    suite.extend(cases)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _run_itself(view: RunView) -> ET.Element:
    case = ET.Element("testcase", classname=one_line(view.suite), name="run", time="0.000")
    ET.SubElement(case, "error", message=one_line(view.sentence))
    return case


def _name(check: Check) -> str:
    has_host = check.host is not None and check.host not in check.label and check.gate is None
    return f"{check.label} (host={check.host})" if has_host else check.label


def _testcase(classname: str, name: str, check: Check) -> ET.Element:
    case = ET.Element("testcase", classname=one_line(classname), name=one_line(name), time="0.000")
    if check.gate is not None:
        properties = ET.SubElement(case, "properties")
        for key, value in (("aorta.actual", check.actual_text), ("aorta.gate", str(check.gate))):
            ET.SubElement(properties, "property", name=key, value=one_line(value))
    if check.state == "failed":
        failure = ET.SubElement(case, "failure", message=one_line(check.reason or check.line()))
        failure.text = one_line(check.line())
        if check.next_step:
            failure.text += f"\nnext: {one_line(check.next_step)}"
        hint = find(check.reason, () if check.unmeasured else (check.label,))
        if hint is not None:
            failure.text += f"\nhint: {hint.line()}"
    elif check.state == "not_judged":
        ET.SubElement(case, "skipped", message=one_line(check.reason or "not judged"))
    elif check.state == "warned":
        ET.SubElement(case, "system-out").text = one_line(f"warned: {check.reason}")
    return case
