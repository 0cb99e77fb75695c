from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = r"""
import pathlib
import pytest
from pytest_aorta.checks import Bound, Check
from pytest_aorta.reporting.model import RunView, StageRow
from pytest_aorta.suite.junit import JUnitProperties
from pytest_aorta.suite.rows import STAGE_ROW, StageRows

ROWS = StageRows()

def view():
    stages = tuple(ROWS.by_nodeid.values())
    return RunView("0123", "aorta_single", "failed", "bad", stages=stages) if stages else None

@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    own = not config.option.xmlpath
    if own:
        config.option.xmlpath = str(config.rootpath / "own.xml")
    gates = pathlib.Path(config.rootpath / "out" / "aorta_single-gates.xml")
    config.pluginmanager.register(ROWS)
    config.pluginmanager.register(JUnitProperties(view, gates, own_file=own))

def gate(name, state, actual, limit, reason=""):
    return Check(label=f"[threshold] (metric={name})", state=state, actual=actual, unit="ms", reason=reason,
                 gate=Bound(kind="max", limit=limit, unit="ms"))

@pytest.fixture
def leave(request):
    def leave(outcome, reason="", checks=()):
        request.node.stash[STAGE_ROW] = StageRow(request.node.name, outcome, 1.5, reason, tuple(checks))
    return leave
"""
STAGES = r"""
import pytest
from conftest import gate

def test_launch_container(leave):
    leave("passed")

def test_build_rccl(leave):
    leave("skipped", "skip_rccl_build=true")
    pytest.skip("skip_rccl_build=true")

def test_validate_thresholds(leave, subtests):
    checks = [gate("max_a_ms", "failed", 20.0, 10, "too slow\x1b[1m\x00"), gate("max_b_ms", "passed", 1.0, 10)]
    leave("failed", "1 of 2 gates failed: max_a_ms", checks)
    for check in checks:
        with subtests.test("threshold", metric=check.label):
            if check.failed:
                pytest.fail(check.reason, pytrace=False)
    pytest.fail("1 of 2 gates failed: max_a_ms", pytrace=False)
"""
SLOW = "[threshold] (metric=max_a_ms): failed; actual=20.00 ms; gate=max 10 ms; too slow\ufffd"
FAST = "[threshold] (metric=max_b_ms): passed; actual=1.00 ms; gate=max 10 ms"


def cases_of(path: Path) -> dict[str, ET.Element]:
    return {case.get("name", ""): case for case in ET.parse(path).iter("testcase")}  # noqa: S314 made here


def properties(case: ET.Element) -> list[tuple[str, str]]:
    return [(found.get("name", ""), found.get("value", "")) for found in case.iter("property")]


def test_stage_testcases_hold_their_subtests_and_verdict(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_stages=STAGES)
    pytester.runpytest_inprocess()
    cases = cases_of(pytester.path / "own.xml")
    assert properties(cases["test_launch_container"]) == [("aorta.verdict", "passed")]
    assert properties(cases["test_build_rccl"]) == [("aorta.verdict", "skipped")]
    assert properties(cases["test_validate_thresholds"]) == [
        ("cvs_aorta_subtest", SLOW),
        ("aorta.[threshold] (metric=max_a_ms)", SLOW),
        ("cvs_aorta_subtest", FAST),
        ("aorta.[threshold] (metric=max_b_ms)", FAST),
        ("aorta.verdict", "failed"),
    ]
    failures = cases["test_validate_thresholds"].findall("failure")
    assert failures[-1].get("message") == "Failed: 1 of 2 gates failed: max_a_ms"
    assert len(failures) == 2
    assert cases["test_validate_thresholds"].find("skipped") is None


def test_our_own_file_is_xunit1_and_a_users_file_is_as_the_user_set_it(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_stages=STAGES)
    pytester.makeini("[pytest]\njunit_family = xunit2\n")
    pytester.runpytest_inprocess()
    pytester.runpytest_inprocess("--junitxml=theirs.xml")
    assert cases_of(pytester.path / "own.xml")["test_launch_container"].get("file") == "test_stages.py"
    theirs = cases_of(pytester.path / "theirs.xml")["test_launch_container"]
    assert theirs.get("file") is None
    assert properties(theirs) == [("aorta.verdict", "passed")]


def test_properties_survive_a_failing_teardown(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        test_stages="""
        import pytest

        @pytest.fixture
        def fragile():
            yield
            raise RuntimeError("teardown")

        def test_run_benchmark(leave, fragile):
            leave("failed", "measured, bad: x")
            pytest.fail("measured, bad: x", pytrace=False)
        """
    )
    pytester.runpytest_inprocess()
    found = list(ET.parse(pytester.path / "own.xml").iter("testcase"))  # noqa: S314 made here
    assert properties(found[0]) == [("aorta.verdict", "failed")]


def test_a_row_left_before_the_call_phase_is_recorded_too(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        test_stages="""
        import pytest

        @pytest.fixture
        def gated(leave):
            leave("skipped", "a prior lifecycle stage failed")
            pytest.skip("a prior lifecycle stage failed")

        def test_analyze(gated):
            pass
        """
    )
    pytester.runpytest_inprocess()
    assert properties(cases_of(pytester.path / "own.xml")["test_analyze"]) == [("aorta.verdict", "skipped")]


def test_gates_file_is_written_beside(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_stages=STAGES)
    pytester.runpytest_inprocess()
    cases = cases_of(pytester.path / "out" / "aorta_single-gates.xml")
    assert {name: case.find("failure") is not None for name, case in cases.items()} == {
        "[threshold] (metric=max_a_ms)": True,
        "[threshold] (metric=max_b_ms)": False,
    }


def test_no_gates_file_when_nothing_ran_and_no_crash_when_it_cannot_be_written(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_stages=STAGES)
    pytester.runpytest_inprocess("--collect-only")
    assert not (pytester.path / "out").exists()
    (pytester.path / "out").write_text("in the way")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
