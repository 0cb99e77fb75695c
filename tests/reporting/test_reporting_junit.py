from __future__ import annotations

import xml.etree.ElementTree as ET

from pytest_aorta.checks import Bound, Check
from pytest_aorta.reporting.junit import gates_xml, properties_for, stage_properties
from pytest_aorta.reporting.model import RunView, StageRow

SLOW = Check(
    label="[threshold] (metric=max_avg_iteration_ms)",
    state="failed",
    actual=20.0,
    unit="ms",
    gate=Bound(kind="max", limit=10, unit="ms"),
    reason="mean iteration 20.00 ms is above 10 ms",
    next_step="look at the slowest rank",
)
BUSY = Check(
    label="[threshold] (metric=min_compute_ratio)", state="passed", actual=0.5, gate=Bound(kind="min", limit=0.01)
)
HOST_B = Check(
    label="[trace collection] (host=node-b)",
    state="failed",
    host="node-b",
    reason="node-b returned no profiler file newer than launch",
)
UNMEASURED = Check(
    label="[threshold] (metric=min_overlap_ratio)",
    state="not_judged",
    gate=Bound(kind="min", limit=0.1),
    reason="cannot fail",
)
SHOWN_ONLY = Check(label="power cap", state="warned", host="node-a", reason="differs", subtest=False)


def test_properties_stand_in_order_twice_each() -> None:
    slow = (
        "[threshold] (metric=max_avg_iteration_ms): failed; actual=20.00 ms; gate=max 10 ms; "
        "mean iteration 20.00 ms is above 10 ms"
    )
    busy = "[threshold] (metric=min_compute_ratio): passed; actual=0.5000; gate=min 0.01"
    host = "[trace collection] (host=node-b): failed; node-b returned no profiler file newer than launch"
    assert properties_for([SLOW, BUSY, SHOWN_ONLY, HOST_B]) == [
        ("cvs_aorta_subtest", slow),
        ("aorta.[threshold] (metric=max_avg_iteration_ms)", slow),
        ("cvs_aorta_subtest", busy),
        ("aorta.[threshold] (metric=min_compute_ratio)", busy),
        ("cvs_aorta_subtest", host),
        ("aorta.[trace collection] (host=node-b)", host),
    ]


def test_two_gates_on_one_metric_have_names_of_their_own() -> None:
    upper = SLOW.model_copy(update={"label": "[threshold] (metric=total_time_us)"})
    lower = upper.model_copy(update={"state": "passed", "gate": Bound(kind="min", limit=1, unit="ms"), "reason": ""})
    names = ["[threshold] (metric=total_time_us)", "[threshold] (metric=total_time_us) #2"]
    assert [name for name, _ in properties_for([upper, SHOWN_ONLY, lower])][1::2] == [f"aorta.{name}" for name in names]
    view = RunView("r", "aorta_single", "failed", "bad", stages=(StageRow("s", "failed", checks=(upper, lower)),))
    cases = ET.fromstring(gates_xml(view).encode()).iter("testcase")  # noqa: S314 made here
    assert [case.get("name") for case in cases] == names


def test_verdict_property_tells_bad_from_unmeasured() -> None:
    assert stage_properties(StageRow("s", "passed"))[-1] == ("aorta.verdict", "passed")
    assert stage_properties(StageRow("s", "failed", reason="measured, bad: x"))[-1][1] == "failed"
    assert stage_properties(StageRow("s", "failed", reason="could not measure: x"))[-1][1] == "could_not_measure"
    assert stage_properties(StageRow("s", "skipped"))[-1][1] == "skipped"


def test_gates_file_has_one_testcase_a_check_and_true_counts() -> None:
    view = RunView(
        "r",
        "aorta_single",
        "failed",
        "bad",
        stages=(
            StageRow("test_collect_traces", "failed", checks=(HOST_B, SHOWN_ONLY)),
            StageRow("test_validate_thresholds", "failed", checks=(SLOW, BUSY, UNMEASURED)),
        ),
    )
    root = ET.fromstring(gates_xml(view).encode())  # noqa: S314 made here
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "2", "1")
    cases = {(case.get("classname"), case.get("name")): case for case in suite.iter("testcase")}
    assert list(cases) == [
        ("aorta_single.test_collect_traces", "[trace collection] (host=node-b)"),
        ("aorta_single.test_collect_traces", "power cap (host=node-a)"),
        ("aorta_single.test_validate_thresholds", "[threshold] (metric=max_avg_iteration_ms)"),
        ("aorta_single.test_validate_thresholds", "[threshold] (metric=min_compute_ratio)"),
        ("aorta_single.test_validate_thresholds", "[threshold] (metric=min_overlap_ratio)"),
    ]
    slow = cases[("aorta_single.test_validate_thresholds", "[threshold] (metric=max_avg_iteration_ms)")]
    failure = slow.find("failure")
    assert failure is not None
    assert failure.get("message") == "mean iteration 20.00 ms is above 10 ms"
    assert "next: look at the slowest rank" in (failure.text or "")
    assert {p.get("name"): p.get("value") for p in slow.iter("property")} == {
        "aorta.actual": "20.00 ms",
        "aorta.gate": "max 10 ms",
    }
    warned = cases[("aorta_single.test_collect_traces", "power cap (host=node-a)")]
    assert warned.find("failure") is None
    assert warned.findtext("system-out") == "warned: differs"


def test_a_gates_testcase_keeps_its_name_wherever_its_rank_ran() -> None:
    ranked = SLOW.model_copy(update={"label": "[threshold] (metric=x, rank=1)", "host": "node-b"})
    view = RunView("r", "aorta_single", "failed", "bad", stages=(StageRow("s", "failed", checks=(ranked,)),))
    (case,) = ET.fromstring(gates_xml(view).encode()).iter("testcase")  # noqa: S314 made here
    assert case.get("name") == "[threshold] (metric=x, rank=1)"


def test_gates_file_survives_hostile_text() -> None:
    nasty = Check(label="[x] (host=\x1b[1m<b>\x00)", state="failed", reason=']]>"\x07\ud800&\n</failure>')
    view = RunView("r", "aorta_single", "failed", "s", stages=(StageRow("test_x", "failed", checks=(nasty,)),))
    case = next(ET.fromstring(gates_xml(view).encode()).iter("testcase"))  # noqa: S314 made here
    assert case.get("name") == "[x] (host=<b>\ufffd)"
