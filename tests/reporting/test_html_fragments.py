from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from pytest_aorta.checks import Bound, Check
from pytest_aorta.metric import Metric
from pytest_aorta.reporting.html_rows import (
    checks_text,
    counts_text,
    full_text,
    is_link,
    log_page,
    reason_cell,
    reason_text,
    subtest_table,
    summary_prefix,
)
from pytest_aorta.reporting.model import RunView, StageRow, title

NASTY = "<script>alert(1)</script>\x1b[31m\x00 & \"quoted\" 'text'"
SLOW = Check(
    label="[threshold] (metric=max_avg_iteration_ms)",
    state="failed",
    actual=20.0,
    unit="ms",
    gate=Bound(kind="max", limit=10, unit="ms"),
    reason="mean iteration 20.00 ms is above 10 ms",
    next_step="look at rank 3",
)
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Reads a page strictly: every element closed, every attribute and text kept."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if any(tag in ("td", "th") for tag in self.open):
            self.rows[-1][-1] += data


def nasty_view() -> RunView:
    check = Check(label=NASTY, state="failed", actual=1.0, gate=Bound(kind="max", limit=0.5), reason=NASTY, host=NASTY)
    return RunView(
        run_id=NASTY,
        suite="aorta_single",
        verdict="failed",
        sentence=NASTY,
        stages=(
            StageRow("test_run_benchmark", "passed", 41.2),
            StageRow(NASTY, "failed", 1.5, NASTY, (check,)),
            StageRow("test_analyze", "skipped", 0.0, "Optional TraceLens/GEMM analysis is disabled"),
            StageRow("test_teardown", "not_run"),
        ),
        metrics={
            NASTY: Metric(value=1234567.891, unit=NASTY, source=NASTY),
            "avg_overlap_ratio": Metric(value=None, unit="", source="timeline", why=NASTY),
        },
        environment=((NASTY, NASTY, "javascript:alert(1)"), ("config", "local.json", "aorta_single_html/local.json")),
        paths=((NASTY, NASTY),),
        next_step=NASTY,
        first_cause=NASTY,
        not_judged=(NASTY,),
    )


def refused_in_pages(html: str) -> list[str]:
    return re.findall(r"\x1b|\x00|style=|data:|<script|<iframe|<img|javascript:", html)


def test_nothing_hostile_reaches_the_summary_and_nothing_needs_a_script() -> None:
    html = summary_prefix(nasty_view(), log_pages=["test_run_benchmark"], pages_folder="aorta_single_html")
    assert refused_in_pages(html) == []
    page = Page(html)
    assert [value for name, value in page.attributes if name == "href"] == [
        "aorta_single_html/test_run_benchmark.html",
        "aorta_single_html/local.json",
    ]


def test_summary_shows_stages_in_order_with_reasons_gates_metrics_and_paths() -> None:
    view = RunView(
        "0123",
        "aorta_single",
        "could_not_measure",
        "the workload did not start",
        stages=(
            StageRow("test_build_rccl", "skipped", 0.0, "skip_rccl_build=true"),
            StageRow("test_run_benchmark", "failed", 65.0, "could not measure: rank 1 exited 13"),
            StageRow("test_validate_thresholds", "failed", 0.5, "1 of 1 gates failed", (SLOW,)),
        ),
        metrics={"avg_iteration_time_ms": Metric(value=20.0, unit="ms", source="timeline")},
        paths=(("run folder", "out/0123"),),
    )
    page = Page(summary_prefix(view))
    assert "✘ COULD NOT MEASURE the workload did not start" in page.text
    assert ["1", "test_build_rccl", "» skipped", "", "skip_rccl_build=true"] in page.rows
    assert [
        "2",
        "test_run_benchmark",
        "✘ COULD NOT MEASURE",
        "1 min 05 s",
        "could not measure: rank 1 exited 13",
    ] in page.rows
    assert ["✘ FAILED", "max_avg_iteration_ms", "20.00 ms", "max 10 ms", "100.0 % over", SLOW.reason] in page.rows
    assert "3 stages: 1 could not measure, 1 failed, 1 skipped; 1 sub-test: 1 failed" in page.text
    assert ["avg_iteration_time_ms", "20", "ms", "timeline"] in page.rows
    assert ["run folder", "out/0123"] in page.rows


def test_metrics_that_were_not_measured_share_a_line_a_reason() -> None:
    cpu = Metric(value=None, unit="us", source="cpu-steps", why="the traces hold no GPU events")
    measured = Metric(value=20.0, unit="ms", source="cpu-steps")
    metrics = {"idle_time_us": cpu, "avg_iteration_time_ms": measured, "busy_time_us": cpu}
    rows = Page(summary_prefix(RunView("0", "aorta_single", "passed", "all held", metrics=metrics))).rows
    assert ["avg_iteration_time_ms", "20", "ms", "cpu-steps"] in rows
    assert ["Not measured, because the traces hold no GPU events: idle_time_us, busy_time_us"] in rows
    assert not any("n/a" in row for row in rows)


def test_subtest_table_shows_actual_beside_gate() -> None:
    host = Check(label="[trace collection] (host=b)", state="failed", host="b", reason="nothing fresh")
    rows = Page(subtest_table([SLOW, host])).rows
    assert rows == [
        ["Result", "Name", "Actual", "Gate", "Reason"],
        ["✘ FAILED", SLOW.label, "20.00 ms", "max 10 ms", f"{SLOW.reason} Next: look at rank 3"],
        ["✘ FAILED", host.label, "", "", "nothing fresh"],
    ]
    assert subtest_table([]) == ""


def test_a_gate_without_a_value_says_so() -> None:
    unmeasured = Check(label="x", state="failed", gate=Bound(kind="min", limit=0.1), reason="not measured")
    assert Page(subtest_table([unmeasured])).rows[1][:3] == ["✘ unmeasured", "x", "n/a"]
    assert checks_text([unmeasured, SLOW]) == "1 of 2 checks failed, 1 unmeasured"
    assert checks_text([unmeasured, Check(label="p", state="passed")]) == "1 of 2 checks unmeasured"
    view = RunView("r", "aorta_single", "failed", "s", stages=(StageRow("t", "failed", checks=(unmeasured,)),))
    assert ["✘ unmeasured", "x", "n/a", "min 0.1", "", "not measured"] in Page(summary_prefix(view)).rows
    assert counts_text(view) == "1 stage: 1 failed; 1 sub-test: 1 unmeasured"


@pytest.mark.parametrize(("num_passed", "num_rows"), [(63, 1 + 64), (64, 1 + 1 + 1)])
def test_many_passed_checks_are_folded_but_no_failed_one(num_passed: int, num_rows: int) -> None:
    passed = [Check(label=f"[trace collection] (host=n{n})", state="passed") for n in range(num_passed)]
    rows = Page(subtest_table([*passed, SLOW])).rows
    assert len(rows) == num_rows
    assert any(SLOW.label in row for row in rows)
    if num_rows == 3:
        assert f"{num_passed} more passed" in rows[-1][1]


def test_many_passed_gates_are_folded_in_the_summary_too() -> None:
    gates = tuple(Check(label=f"g{n}", state="passed", gate=Bound(kind="max", limit=1)) for n in range(100))
    view = RunView("r", "aorta_single", "failed", "s", stages=(StageRow("t", "failed", checks=(*gates, SLOW)),))
    rows = Page(summary_prefix(view)).rows
    assert ["✔ passed", "100 more passed; each stands in the JUnit file"] in rows
    assert any("max_avg_iteration_ms" in row for row in rows)
    assert not any("g7" in row for row in rows)


def test_reason_is_the_stages_own_or_what_its_checks_came_to() -> None:
    warned = Check(label="w", state="warned", reason="hot")
    passed = Check(label="p", state="passed")
    assert reason_text(StageRow("s", "failed", reason="a\nb")) == "a b"
    assert reason_text(StageRow("s", "passed")) == ""
    assert checks_text([passed]) == "1 check passed"
    assert checks_text([passed, passed]) == "2 checks passed"
    assert checks_text([passed, warned]) == "1 of 2 checks passed, 1 warned"
    assert checks_text([SLOW, passed, warned]) == "1 of 3 checks failed, 1 warned"
    assert checks_text([Check(label="n", state="not_judged")]) == "1 not judged"
    assert reason_cell("<b>\x1b[1m") == '<td class="col-reason">&lt;b&gt;</td>'


def test_log_page_escapes_and_cuts_the_middle_and_the_full_text_has_it_all() -> None:
    long = "first\n" + "x" * 5000 + "\nlast"
    sections = [(NASTY, NASTY), ("Captured stdout call", long)]
    html, was_cut = log_page(NASTY, sections, full_text_name="test x.log", max_chars=1000)
    assert was_cut
    assert refused_in_pages(html) == []
    page = Page(html)
    assert ("href", "test%20x.log") in page.attributes
    assert "characters left out" in page.text
    assert "first" in page.text
    assert "last" in page.text
    assert "x" * 5000 in full_text(NASTY, sections)
    whole, was_cut = log_page("n", [("s", "short")], full_text_name="x.log")
    assert not was_cut
    assert "x.log" not in whole


@pytest.mark.parametrize(
    ("target", "links"),
    [
        ("a/b.html", True),
        ("https://example.org", True),
        ("", False),
        ("JavaScript:x", False),
        ("java\tscript:x", False),
        ("data:text/html,x", False),
        ("http://[", False),
    ],
)
def test_only_paths_and_web_addresses_become_links(target: str, links: bool) -> None:
    assert is_link(target) is links


def test_title() -> None:
    assert title("aorta_distributed") == "Aorta distributed"
