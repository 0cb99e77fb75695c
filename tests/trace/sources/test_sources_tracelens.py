"""TraceLens in a process of its own; what stands in for it here is a package of its name with its report function."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.metrics import aggregate, quantities, shares
from pytest_aorta.trace.ranks import Summaries, summarize
from pytest_aorta.trace.sources import tracelens
from pytest_aorta.trace.sources.choice import why_unusable
from tests.trace import synthetic
from tests.trace.synthetic import COMMUNICATION, kernel

REPORT = '''
import json, os, signal, sys

def generate_perf_report_pytorch(profile_json_path, output_xlsx_path=None, output_csvs_dir=None, **options):
    """Give tables by sheet, as the function of this name documents it, with rows of fixed times."""
    print("written to", output_csvs_dir)
    assert output_csvs_dir or output_xlsx_path, "it would write beside the trace"
    rows = {"computation_time": 6.0, "exposed_comm_time": 1.5, "busy_time": 8.0, "idle_time": 2.0,
            "total_time": 10.0, "total_comm_time": 4.0}
    name = os.path.basename(profile_json_path)
    if "exits" in name:
        sys.exit(1)
    if "asks" in name:
        input("install openpyxl? [y/N]")
    if "killed" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "divides" in name:
        rows["busy_time"] = 1 / 0
    if "lacks" in name:
        del rows["total_comm_time"]
    if "empty" in name:
        rows = dict.fromkeys(rows, 0.0)
    return {"gpu_timeline": {"type": list(rows), "time ms": list(rows.values())}, "ops_summary": {}}
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which packages are found."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def package(place: Path) -> Path:
    return install(place, {"__init__.py": REPORT})


def install(place: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = place / "TraceLens" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return place / "TraceLens"


def traces(root: Path, *names: str) -> Path:
    events = [kernel(0, 30), kernel(20, 20, COMMUNICATION)]
    for rank, name in enumerate(names):
        content = synthetic.document(events, rank=rank, world_size=len(names))
        synthetic.write(root / f"rank{rank}" / f"{name}.pt.trace.json", content)
    return root


def summarized(tmp_path: Path, *names: str, **options: Any) -> Summaries:
    found = summarize(traces(tmp_path / "traces", *names), parser="tracelens", **options)
    assert found.errors == ()
    return found


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("jobs", [1, 2])
def test_its_rows_are_the_times_and_its_communication_is_exposed(tmp_path: Path, jobs: int) -> None:
    found = summarized(tmp_path, "a", "b", jobs=jobs).ranks
    assert [(rank.rank, rank.source) for rank in found] == [(0, "tracelens"), (1, "tracelens")]
    assert found[0].label == "TraceLens on raw traces (basic-scan fallback possible per rank)"
    assert (found[0].total_time_us, found[0].exposed_comm_time_us, found[0].total_comm_time_us) == (10_000, 1500, 4000)
    assert (found[0].num_gpu_events, found[0].world_size, found[0].warnings) == (2, 2, ())
    assert (found[0].exposed_memcpy_time_us, found[0].overlap_time_us, found[0].step_times_ms) == (None, None, ())
    assert shares(found[0]).comm_ratio == 0.15
    assert "TraceLens' GPU timeline has no such row" in quantities(found)["host_wait_ratio"].why


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("exits", "TraceLens ended with 1"),
        ("asks", "EOFError"),
        ("killed", "TraceLens was ended by signal 9"),
        ("divides", "ZeroDivisionError"),
        ("lacks", "has no row total_comm_time"),
        ("empty", "found no time at all"),
    ],
)
def test_a_rank_that_it_fails_on_is_scanned_and_never_averaged_with_the_others(
    tmp_path: Path, name: str, why: str
) -> None:
    found = summarized(tmp_path, "good", name).ranks
    assert [rank.source for rank in found] == ["tracelens", "basic"]
    assert found[1].total_time_us == 50
    (warning,) = found[1].warnings
    assert warning.startswith(f"{name}.pt.trace.json: basic scan instead of TraceLens, because ")
    assert why in warning
    whole = aggregate(found)
    assert (whole.source, whole.avg_iteration_time_us, whole.avg_compute_ratio) == (None, None, None)
    assert "Basic raw-trace scan: rank 1" in whole.why
    assert quantities(found)["avg_iteration_time_ms"].value is None


def test_nothing_is_written_beside_the_trace(tmp_path: Path, package: Path) -> None:
    summarized(tmp_path, "a")
    assert [path.name for path in (tmp_path / "traces" / "rank0").iterdir()] == ["a.pt.trace.json"]
    assert tracelens.find() == str(package / "__init__.py")
    assert why_unusable("tracelens") == ""


def test_the_function_may_lie_in_a_module_of_its_name(place: Path, tmp_path: Path) -> None:
    module = "Reporting/generate_perf_report_pytorch.py"
    install(place, {"__init__.py": "", "Reporting/__init__.py": "", module: REPORT})
    assert summarized(tmp_path, "a").ranks[0].source == "tracelens"


def test_its_own_modules_are_not_taken_for_ours(place: Path, tmp_path: Path) -> None:
    (place / "basic.py").write_text("mine = True\n", "utf-8")
    install(place, {"__init__.py": f"import basic\nassert basic.mine\n{REPORT}"})
    assert summarized(tmp_path, "a").ranks[0].source == "tracelens"


def test_another_package_of_the_name_is_refused(place: Path, tmp_path: Path) -> None:
    package = install(place, {"__init__.py": "def trace(): ...\n"})
    why = why_unusable("tracelens")
    assert why.startswith(f"{package / '__init__.py'} is not AMD's TraceLens: the package offers no generate_perf_")
    (rank,) = summarized(tmp_path, "a").ranks
    assert (rank.source, len(rank.warnings)) == ("basic", 1)


def test_a_package_that_breaks_at_import_says_so(place: Path) -> None:
    install(place, {"__init__.py": "import a_module_that_is_not_there\n"})
    with pytest.raises(TraceError, match=r"TraceLens ended with 1 \(.*No module named 'a_module_that_is_not_there'"):
        tracelens.find()


@pytest.mark.skipif(importlib.util.find_spec("TraceLens") is not None, reason="TraceLens is installed here")
@pytest.mark.usefixtures("place")
def test_without_it_one_sentence_says_where_it_is(tmp_path: Path) -> None:
    assert why_unusable("tracelens").startswith("TraceLens is not installed here; install it from its own repository")


@pytest.mark.usefixtures("package")
def test_a_file_without_anything_is_an_error_as_ever(tmp_path: Path) -> None:
    (tmp_path / "trace.json").touch()
    found = summarize(tmp_path / "trace.json", parser="tracelens")
    assert [error.error.startswith("trace.json: holds no data") for error in found.errors] == [True]


def test_traces_are_read_side_by_side_only_as_far_as_memory_goes(tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    small.write_bytes(b"[]")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 43)
    assert tracelens.num_jobs([small]) >= 1
    assert tracelens.num_jobs([small, huge]) == 1
