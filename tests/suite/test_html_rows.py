from __future__ import annotations

import json
import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.suite.html import forget_pages

pytest_plugins = ["pytester"]

# A session as ours will be: stage tests leave their rows, then open their sub-tests and fail with one sentence.
CONFTEST = r"""
import pytest
from pytest_aorta.checks import Bound, Check
from pytest_aorta.reporting.model import RunView, StageRow
from pytest_aorta.suite.html import HtmlRows
from pytest_aorta.suite.rows import STAGE_ROW, StageRows

ROWS = StageRows()

def view():
    stages = tuple(ROWS.by_nodeid.values())
    if not stages:
        return None
    return RunView(
        run_id="0123", suite="aorta_single", verdict="failed", sentence="<b>1 of 2 gates failed</b>", stages=stages,
        environment=(("Cluster File", "<i>cluster.json</i>", "aorta_single_html/cluster.json"),),
        paths=(("run folder", "out/0123"),),
    )

def pytest_configure(config):
    config.pluginmanager.register(ROWS)
    if config.option.htmlpath:
        redact = lambda text: text.replace("hunter2", "***")
        config.pluginmanager.register(HtmlRows(config, "aorta_single", view, ROWS.by_nodeid, redact=redact))

@pytest.fixture
def leave(request):
    def leave(outcome, reason="", checks=(), **more):
        request.node.stash[STAGE_ROW] = StageRow(request.node.name, outcome, 1.5, reason, tuple(checks), **more)
    return leave

def gate(name, state, actual, limit, reason=""):
    return Check(label=f"[threshold] (metric={name})", state=state, actual=actual, unit="ms", reason=reason,
                 gate=Bound(kind="max", limit=limit, unit="ms"))
"""
STAGES = r"""
import sys
import pytest
from conftest import gate

def test_launch_container(leave):
    print("<script>alert('out')</script> \x1b[31mred\x1b[0m password=hunter2")
    leave("passed")

def test_build_rccl(leave):
    leave("skipped", "skip_rccl_build=true")
    pytest.skip("skip_rccl_build=true")

def test_run_benchmark(leave):
    leave("passed", log_sections=[("rank 0", "line\n" * 200_000)])

def test_validate_thresholds(leave, subtests):
    checks = [gate("max_avg_iteration_ms", "failed", 20.0, 10, "20.00 ms is <above> 10 ms"),
              gate("max_b_ms", "passed", 1.0, 10), gate("max_c_ms", "passed", 2.0, 10)]
    leave("failed", "1 of 3 gates failed: max_avg_iteration_ms", checks)
    for check in checks:
        with subtests.test("threshold", metric=check.label):
            print("inside", check.label)
            if check.failed:
                pytest.fail(check.reason, pytrace=False)
    pytest.fail("1 of 3 gates failed: max_avg_iteration_ms hunter2", pytrace=False)

def test_teardown(leave):
    leave("passed", "left nothing")
"""


def blob_of(page: Path) -> dict[str, Any]:
    match = re.search(r'data-jsonblob="([^"]*)"', page.read_text(encoding="utf-8"))
    assert match is not None
    blob: dict[str, Any] = json.loads(unescape(match[1]))
    return blob


def cells_of(entry: dict[str, Any]) -> list[str]:
    return [re.sub(r"<[^>]*>", "", cell) for cell in entry["resultsTableRow"]]


def counters_of(page: Path) -> dict[str, int]:
    found = re.findall(r'<span class="(\w+)">(\d+) ', page.read_text(encoding="utf-8"))
    return {name: int(number) for name, number in found if number != "0"}


def run_suite(pytester: pytest.Pytester, stages: str, *args: str) -> Path:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_stages=stages)
    pytester.runpytest_inprocess("--html=out/report.html", *args)
    return pytester.path / "out" / "report.html"


@pytest.mark.parametrize("args", [(), ("--self-contained-html",)], ids=["assets", "self-contained"])
def test_one_row_a_stage_in_run_order_with_true_counts(pytester: pytest.Pytester, args: tuple[str, ...]) -> None:
    page = run_suite(pytester, STAGES, *args)
    blob = blob_of(page)
    assert blob["initialSort"] == "original"
    assert blob["title"] == "Aorta single"
    rows = [(nodeid.rpartition("::")[2], cells_of(entry)) for nodeid, found in blob["tests"].items() for entry in found]
    assert [(name, cells[0], cells[3]) for name, cells in rows] == [
        ("test_launch_container", "Passed", ""),
        ("test_build_rccl", "Skipped", "skip_rccl_build=true"),
        ("test_run_benchmark", "Passed", ""),
        ("test_validate_thresholds", "Failed", "1 of 3 gates failed: max_avg_iteration_ms"),
        ("test_teardown", "Passed", "left nothing"),
    ]
    assert counters_of(page) == {"passed": 3, "skipped": 1, "failed": 1}
    assert Counter(cells[0].lower() for _, cells in rows) == counters_of(page)


def test_columns_are_result_test_duration_reason_links(pytester: pytest.Pytester) -> None:
    page = run_suite(pytester, STAGES)
    head = re.search(r'<thead id="results-table-head">(.*?)</thead>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert head is not None
    assert re.findall(r">(\w+)</th>", head[1]) == ["Result", "Test", "Duration", "Reason", "Links"]


def test_subtests_stand_inside_their_stages_row(pytester: pytest.Pytester) -> None:
    page = run_suite(pytester, STAGES)
    entries = blob_of(page)["tests"]["test_stages.py::test_validate_thresholds"]
    assert len(entries) == 1
    (table,) = [extra["content"] for extra in entries[0]["extras"] if extra["format_type"] == "html"]
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr.*?</tr>", table)]
    assert rows == [
        ["Result", "Name", "Actual", "Gate", "Reason"],
        [
            "✘ FAILED",
            "[threshold] (metric=max_avg_iteration_ms)",
            "20.00 ms",
            "max 10 ms",
            "20.00 ms is &lt;above&gt; 10 ms",
        ],
        ["✔ passed", "[threshold] (metric=max_b_ms)", "1.00 ms", "max 10 ms", ""],
        ["✔ passed", "[threshold] (metric=max_c_ms)", "2.00 ms", "max 10 ms", ""],
    ]


def test_captured_output_goes_to_a_log_page(pytester: pytest.Pytester) -> None:
    page = run_suite(pytester, STAGES)
    tests = blob_of(page)["tests"]
    (launch,) = tests["test_stages.py::test_launch_container"]
    assert 'href="aorta_single_html/test_launch_container.html"' in launch["resultsTableRow"][4]
    assert ">Full Log<" in launch["resultsTableRow"][4]
    assert "alert" not in launch["log"]
    log_page = (page.parent / "aorta_single_html" / "test_launch_container.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(&#39;out&#39;)&lt;/script&gt; red password=***" in log_page
    (teardown,) = tests["test_stages.py::test_teardown"]
    assert "Full Log" not in teardown["resultsTableRow"][4]
    assert not (page.parent / "aorta_single_html" / "test_teardown.html").exists()
    subtest_output = (page.parent / "aorta_single_html" / "test_validate_thresholds.html").read_text(encoding="utf-8")
    assert "inside [threshold] (metric=max_b_ms)" in subtest_output


def test_a_large_log_is_cut_and_stands_whole_beside(pytester: pytest.Pytester) -> None:
    page = run_suite(pytester, STAGES)
    folder = page.parent / "aorta_single_html"
    assert (folder / "test_run_benchmark.html").stat().st_size < 400_000
    assert 'href="test_run_benchmark.log"' in (folder / "test_run_benchmark.html").read_text(encoding="utf-8")
    assert (folder / "test_run_benchmark.log").read_text(encoding="utf-8").count("line\n") == 200_000
    assert not (folder / "test_launch_container.log").exists()


def test_pages_and_copies_of_an_earlier_session_are_gone(tmp_path: Path) -> None:
    for name in ("test_setup_rdma.html", "config_of_another_run.json", "aorta_run_deck.html", "notes.txt"):
        (tmp_path / name).write_text("old")
    (tmp_path / "test_folder.html").mkdir()
    forget_pages(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "test_folder.html"}


def test_summary_is_readable_without_scripts_and_no_secret_is_anywhere(pytester: pytest.Pytester) -> None:
    page = run_suite(pytester, STAGES)
    html = page.read_text(encoding="utf-8")
    static = html.partition('<div id="data-container"')[0]
    assert "&lt;b&gt;1 of 2 gates failed&lt;/b&gt;" in static
    assert "skip_rccl_build=true" in static
    assert '<a href="aorta_single_html/test_launch_container.html">' in static
    assert "style=" not in static
    assert "Other tests" not in static
    assert '<a href="aorta_single_html/cluster.json">&lt;i&gt;cluster.json&lt;/<wbr/>i&gt;</a>' in static
    assert blob_of(page)["environment"] == {}
    for file in page.parent.rglob("*.*"):
        assert "hunter2" not in file.read_text(encoding="utf-8"), file


def test_a_log_page_that_cannot_be_written_costs_only_its_link(pytester: pytest.Pytester) -> None:
    (pytester.path / "out").mkdir()
    (pytester.path / "out" / "aorta_single_html").write_text("in the way")
    page = run_suite(pytester, STAGES)
    assert counters_of(page) == {"passed": 3, "skipped": 1, "failed": 1}
    assert "Full Log</a>" not in page.read_text(encoding="utf-8")


def test_setup_error_and_broken_stage_keep_a_reason(pytester: pytest.Pytester) -> None:
    page = run_suite(
        pytester,
        """
        import pytest

        @pytest.fixture
        def broken():
            raise RuntimeError("no <cluster>")

        def test_launch_container(broken):
            pass

        def test_clone_aorta():
            assert 1 == 2, "not a stage row"

        def test_setup_rdma():
            pytest.fail("measured, bad: no device", pytrace=False)
        """,
    )
    tests = blob_of(page)["tests"]
    (launch,) = tests["test_stages.py::test_launch_container"]
    assert cells_of(launch)[0] == "Error"
    assert cells_of(launch)[3] == "RuntimeError: no &lt;cluster&gt;"
    (clone,) = tests["test_stages.py::test_clone_aorta"]
    assert cells_of(clone)[3] == "AssertionError: not a stage row"
    (rdma,) = tests["test_stages.py::test_setup_rdma"]
    assert cells_of(rdma)[3] == "measured, bad: no device"
    assert "aorta-summary" not in page.read_text(encoding="utf-8")


def test_a_users_own_subtests_are_shown_and_no_failure_is_lost(pytester: pytest.Pytester) -> None:
    page = run_suite(
        pytester,
        """
        def test_mine(subtests):
            with subtests.test("first", host="a<b>"):
                assert False, "one"
            with subtests.test("second"):
                pass
        """,
    )
    entries = blob_of(page)["tests"]["test_stages.py::test_mine"]
    assert "Failed" in [cells_of(entry)[0] for entry in entries]
    tables = [extra["content"] for extra in entries[0]["extras"] if extra["format_type"] == "html"]
    assert "[first] (host=a&lt;b&gt;)" in tables[0]
    assert "[second]" in tables[0]


def test_the_sessions_other_tests_stand_in_the_static_page_failed_ones_first_and_bounded(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_uncollected="import no_such_module\n",
        test_user="""
        import pytest

        @pytest.mark.parametrize("number", range(70))
        def test_many(number):
            pass

        def test_skipped():
            pytest.skip("<i>later</i>")

        @pytest.mark.parametrize("name", ["<b>"])
        def test_mine(name):
            assert name == "hunter2", "one <is>\\nmore"
        """,
    )
    page = run_suite(pytester, STAGES, "--continue-on-collection-errors")
    static = page.read_text(encoding="utf-8").partition('<div id="data-container"')[0]
    assert "<dd>2 of 73 tests beside the stages failed; the verdict does not speak of them</dd>" in static
    table = static.partition("<h3>Other tests</h3>")[2].partition("</table>")[0]
    assert "73 tests: 2 failed, 70 passed, 1 skipped" in table
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr class=.*?</tr>", table)]
    assert rows[:4] == [
        ["✘ FAILED", "test_uncollected.py", rows[0][2]],
        ["✘ FAILED", "test_user.py::test_mine[&lt;b&gt;]", "AssertionError: one &lt;is&gt;"],
        ["» skipped", "test_user.py::test_skipped", "&lt;i&gt;later&lt;/i&gt;"],
        ["✔ passed", "test_user.py::test_many[0]", ""],
    ]
    assert "test_uncollected.py" in rows[0][2]
    assert len(rows) == 65
    assert rows[-1] == ["", "9 more; each stands in the JUnit file"]


def test_without_pytest_html_nothing_is_written(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_stages=STAGES)
    pytester.runpytest_inprocess()
    assert not list(pytester.path.rglob("*.html"))
