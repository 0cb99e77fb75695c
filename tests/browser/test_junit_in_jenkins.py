"""Both JUnit files, read by the rules of Jenkins' junit plugin (SuiteResult, CaseResult), hold what the run came to."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.browser.reports import TERMINAL, Site

RUNS = ("gates", "rank", "record")
BAD = ("failed", "interrupted")


@dataclass(frozen=True)
class Case:
    """What Jenkins keeps of a testcase."""

    suite: str
    class_name: str
    name: str
    status: str
    message: str
    stack: str
    seconds: float
    properties: dict[str, str]
    stdout: str

    @property
    def page(self) -> tuple[str, str, str]:
        """Package, class, test: the address of its page, and what its history is kept under."""
        package, _, short = self.class_name.rpartition(".")
        return package or "(root)", short, self.name


def cases_of(path: Path) -> list[Case]:
    root = ET.parse(path).getroot()  # noqa: S314  our own file
    return list(_suite(root, path.stem)) if root.tag == "testsuite" else list(_nested(root, path.stem))


def _nested(element: ET.Element, fallback: str) -> Iterator[Case]:
    for suite in element.findall("testsuite"):
        yield from _suite(suite, fallback)


def _suite(suite: ET.Element, fallback: str) -> Iterator[Case]:
    name = suite.get("name") or fallback
    if (package := suite.get("package")) is not None:
        name = f"{package}.{name}"
    yield from _nested(suite, fallback)
    for case in suite.findall("testcase"):
        yield _case(case, name)


def _case(case: ET.Element, suite: str) -> Case:
    name, class_name = case.get("name") or "", case.get("classname") or suite
    if case.get("classname") is None and "." in name:
        class_name, _, name = name.rpartition(".")
    error, failure, skipped = case.find("error"), case.find("failure"), case.find("skipped")
    bad = error if error is not None else failure
    status = "skipped" if skipped is not None else "failed" if bad is not None else "passed"
    told = skipped if skipped is not None else bad
    return Case(
        suite=suite,
        class_name=class_name,
        name=name,
        status=status,
        message=told.get("message", "") if told is not None else "",
        stack=(bad.text or "") if bad is not None else "",
        seconds=float((case.get("time") or "0").replace(",", "")),
        # One value a name: a later one takes the place of an earlier one.
        properties={
            one.get("name", ""): one.get("value") or one.text or "" for one in case.findall("properties/property")
        },
        stdout=case.findtext("system-out") or "",
    )


def record_of(site: Site, run: str) -> dict[str, Any]:
    folder = json.loads((site.root / run / "last_run.json").read_text("utf-8"))["folder"]
    document: dict[str, Any] = json.loads((Path(folder) / "run.json").read_text("utf-8"))
    return document


@pytest.mark.parametrize("run", RUNS)
def test_each_stage_is_a_case_with_its_outcome_reason_and_sub_tests(site: Site, run: str) -> None:
    stages = record_of(site, run)["stages"]
    cases = {case.name: case for case in cases_of(site.root / run / "aorta_single.xml")}
    assert list(cases) == list(stages)
    for name, stage in stages.items():
        case = cases[name]
        assert case.class_name == "aorta_single"
        assert case.status == {"interrupted": "failed"}.get(stage["outcome"], stage["outcome"])
        if stage["outcome"] == "skipped":
            assert stage["reason"] in case.message
        if stage["outcome"] in BAD:
            assert case.properties["aorta.verdict"] in {"failed", "could_not_measure"}
            assert case.message
        assert case.seconds >= stage["seconds"] * 0.9
        for check in stage["checks"]:
            if check["subtest"]:
                kept = case.properties[f"aorta.{check['label']}"]
                assert kept.startswith(f"{check['label']}: {check['state']}")
                assert check["actual"] is None or "actual=" in kept


@pytest.mark.parametrize("run", RUNS)
def test_the_second_file_has_a_case_for_each_check(site: Site, run: str) -> None:
    stages = record_of(site, run)["stages"]
    cases = cases_of(site.root / run / "aorta_single-gates.xml")
    expected = [(f"aorta_single.{name}", check) for name, stage in stages.items() for check in stage["checks"]]
    states = {"warned": "passed", "not_judged": "skipped"}
    assert [(case.class_name, case.status) for case in cases] == [
        (where, states.get(check["state"], check["state"])) for where, check in expected
    ]
    for case, (_, check) in zip(cases, expected, strict=True):
        assert case.name.startswith(check["label"])
        assert not check["gate"] or case.properties["aorta.gate"].startswith(check["gate"]["kind"])


@pytest.mark.parametrize("run", RUNS)
def test_no_case_is_told_twice_and_no_suite_is_without_a_name(site: Site, run: str) -> None:
    files = [site.root / run / name for name in ("aorta_single.xml", "aorta_single-gates.xml")]
    cases = [case for file in files for case in cases_of(file)]
    assert [page for page, count in Counter(case.page for case in cases).items() if count > 1] == []
    assert all(case.suite and case.name for case in cases)
    assert {case.suite for case in cases} == {"pytest", "aorta_single-gates"}


@pytest.mark.parametrize("run", RUNS)
def test_terminal_junit_and_page_count_alike(site: Site, run: str) -> None:
    stages = record_of(site, run)["stages"]
    subtests = [check["state"] for stage in stages.values() for check in stage["checks"] if check["subtest"]]
    outcomes = Counter(stage["outcome"] for stage in stages.values())
    root = ET.parse(site.root / run / "aorta_single.xml").getroot()  # noqa: S314  our own file
    (suite,) = root.iter("testsuite")
    assert int(suite.get("tests", 0)) == len(stages) + len(subtests)
    assert int(suite.get("failures", 0)) == outcomes["failed"] + subtests.count("failed")
    assert int(suite.get("skipped", 0)) == outcomes["skipped"]
    last = (site.root / run / TERMINAL).read_text("utf-8").splitlines()[-1]
    told = [
        (int(count), words) for count, words in re.findall(r"(\d+) ((?:subtests )?(?:passed|failed)|skipped)", last)
    ]
    assert sum(count for count, words in told if words.endswith("failed")) == int(suite.get("failures", 0))
    assert {(outcomes[words], words) for words in ("passed", "skipped")} <= set(told)
    page = (site.root / run / "aorta_single.html").read_text("utf-8")
    assert f"{len(stages)} stages: " in page
    assert not subtests or f"{len(subtests)} sub-test" in page
