"""TraceLens' reports of single ranks, as the analysis script of a checkout leaves them."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.metrics import aggregate, quantities, shares
from pytest_aorta.trace.ranks import summarize
from pytest_aorta.trace.sources.choice import summarizer
from pytest_aorta.trace.sources.workbooks import find_workbooks, rank_of

openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed (extra excel)")

TIMES_MS = {
    "computation_time": 60.0,
    "exposed_comm_time": 15.0,
    "exposed_memcpy_time": 5.0,
    "busy_time": 80.0,
    "idle_time": 20.0,
    "total_time": 100.0,
    "total_comm_time": 40.0,
    "total_memcpy_time": 6.0,
}


def write(path: Path, times: dict[str, Any], *, sheet: str = "gpu_timeline", head: tuple[str, ...] = ()) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    book = openpyxl.Workbook()
    book.active.title = "kernel_summary"
    table = book.create_sheet(sheet)
    table.append(list(head or ("type", "time ms", "percent")))
    for name, time_ms in times.items():
        table.append([name, time_ms, 1.0])
    book.save(path)
    book.close()
    return path


@pytest.mark.parametrize("sheet", ["gpu_timeline", "GPU Timeline"])
@pytest.mark.parametrize("name", ["perf_rank7.xlsx", "perf_28ch_rank7.xlsx", "perf_256thread_28ch_rank7.xlsx"])
def test_rows_are_found_by_name(tmp_path: Path, name: str, sheet: str) -> None:
    path = write(tmp_path / name, dict(reversed(TIMES_MS.items())) | {"new_row": 1.0}, sheet=sheet)
    (found,) = summarizer("excel")(path, name)
    assert (found.rank, found.source, found.label) == (7, "excel", "Aorta TraceLens Excel reports")
    assert (found.total_time_us, found.computation_time_us, found.total_comm_time_us) == (100_000, 60_000, 40_000)
    assert (found.exposed_comm_time_us, found.exposed_memcpy_time_us, found.total_memcpy_time_us) == (15e3, 5e3, 6e3)
    assert (found.busy_time_us, found.idle_time_us) == (80_000, 20_000)
    assert found.overlap_time_us is None
    ratios = shares(found)
    assert (ratios.compute_ratio, ratios.comm_ratio, ratios.overlap_ratio) == (0.6, 0.15, 0)


@pytest.mark.parametrize("row", ["total_time", "computation_time", "exposed_comm_time", "total_comm_time"])
def test_a_missing_row_is_an_error_not_0(tmp_path: Path, row: str) -> None:
    path = write(tmp_path / "perf_rank0.xlsx", {name: time for name, time in TIMES_MS.items() if name != row})
    with pytest.raises(TraceError, match=f"perf_rank0.xlsx: has no row {row} .*; there is "):
        summarizer("excel")(path, path.name)


def test_a_row_that_is_not_needed_may_be_missing_and_is_not_measured(tmp_path: Path) -> None:
    path = write(tmp_path / "perf_rank0.xlsx", {name: time for name, time in TIMES_MS.items() if name != "idle_time"})
    (found,) = summarizer("excel")(path, path.name)
    assert found.idle_time_us is None


@pytest.mark.parametrize("value", [-1.0, "fast", None, True, "=1/0"])
def test_what_is_no_time_is_refused(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "perf_rank0.xlsx", TIMES_MS | {"total_time": value})
    with pytest.raises(TraceError, match=r"total_time is .*; expected a time in ms"):
        summarizer("excel")(path, path.name)


def test_other_sheets_and_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has no sheet gpu_timeline or GPU Timeline; there is kernel_summary, summary"):
        summarizer("excel")(write(tmp_path / "perf_rank0.xlsx", TIMES_MS, sheet="summary"), "perf_rank0.xlsx")
    path = write(tmp_path / "perf_rank1.xlsx", TIMES_MS, head=("kind", "time us"))
    with pytest.raises(TraceError, match="has no columns 'type' and 'time ms'; there is kind, time us"):
        summarizer("excel")(path, path.name)


def test_a_broken_workbook_stops_no_other(tmp_path: Path) -> None:
    write(tmp_path / "perf_rank0.xlsx", TIMES_MS)
    (tmp_path / "perf_rank1.xlsx").write_bytes(b"<html>not found</html>")
    whole = write(tmp_path / "perf_rank2.xlsx", TIMES_MS).read_bytes()
    (tmp_path / "perf_rank2.xlsx").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(tmp_path / "perf_rank3.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "<broken")
    found = summarize(tmp_path, find_workbooks(tmp_path), parser="excel")
    assert [rank.rank for rank in found.ranks] == [0]
    assert [error.file for error in found.errors] == ["perf_rank1.xlsx", "perf_rank2.xlsx", "perf_rank3.xlsx"]
    assert all("is no Excel workbook that can be read" in error.error for error in found.errors)


def test_reports_of_all_ranks_are_no_ranks(tmp_path: Path) -> None:
    for name in ("perf_rank1.xlsx", "perf_28ch_rank0.xlsx", "collective_all_ranks.xlsx", "perf_rank2.csv", "perf.xlsx"):
        (tmp_path / name).touch()
    assert [path.name for path in find_workbooks(tmp_path)] == ["perf_28ch_rank0.xlsx", "perf_rank1.xlsx"]
    assert rank_of(Path("collective_all_ranks.xlsx")) is None
    assert find_workbooks(tmp_path / "absent") == []


def test_two_reports_of_one_rank_are_refused(tmp_path: Path) -> None:
    for name in ("perf_rank0.xlsx", "perf_28ch_rank0.xlsx"):
        write(tmp_path / name, TIMES_MS)
    found = summarize(tmp_path, find_workbooks(tmp_path), parser="excel")
    assert found.ranks == ()
    assert "rank 0 has several reports" in found.errors[0].error


def test_what_reports_do_not_tell_is_not_measured_and_says_why(tmp_path: Path) -> None:
    for rank, total_ms in enumerate((100.0, 110.0)):
        write(tmp_path / f"perf_rank{rank}.xlsx", TIMES_MS | {"total_time": total_ms})
    found = summarize(tmp_path, find_workbooks(tmp_path), parser="excel", jobs=2)
    assert aggregate(found.ranks).avg_iteration_time_us == 105_000
    metrics = quantities(found.ranks)
    for name in ("num_gpu_events", "num_comm_kernels", "host_wait_ratio", "profiled_step_time_ms_median"):
        assert metrics[name].value is None
        assert "Excel reports have no such row" in metrics[name].why
