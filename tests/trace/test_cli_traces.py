"""`aorta traces`: the table, the JSON document, exit codes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_aorta.cli_traces import traces
from tests.trace import synthetic
from tests.trace.simulated import Job, Planted, simulate
from tests.trace.synthetic import COMMUNICATION, kernel, launch, step

KEYS = {
    *("rank", "device", "file", "source", "total_time_us", "computation_time_us", "total_comm_time_us"),
    *("exposed_comm_time_us", "exposed_memcpy_time_us", "busy_time_us", "idle_time_us", "overlap_time_us"),
    *("true_overlap_ratio", "num_comm_kernels", "num_gpu_events", "step_times_ms", "events_lost", "warnings"),
}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(traces, [str(argument) for argument in arguments])


def document(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in (10, 9):
        events = [step(1, 0, 10), step(2, 10, 10), launch(1, 1, 1), launch(11, 1, 2), kernel(5, 10, correlation=1)]
        content = synthetic.document([*events, kernel(20, 10, COMMUNICATION, correlation=2)], rank=rank)
        synthetic.write(tmp_path / f"rank{rank}" / "trace.json.gz", content)
    return tmp_path


def test_json_for_programs(folder: Path) -> None:
    result = run(folder, "--json")
    found = document(result)
    assert result.exit_code == 0
    across = ["matched_ratio", "straggler", "largest_candidate", "lateness"]
    assert list(found) == ["ranks", "aggregate", *across, "errors", "left_out"]
    assert [row["rank"] for row in found["ranks"]] == [9, 10]
    assert found["ranks"][0].keys() >= KEYS
    assert found["ranks"][0]["file"] == str(folder / "rank9" / "trace.json.gz")
    assert found["ranks"][0]["step_times_ms"] == [0.015]
    assert found["aggregate"]["avg_iteration_time_ms"] == 0.025
    assert found["aggregate"]["avg_compute_ratio"] == 0.4
    assert found["aggregate"]["source"] == "timeline"
    assert (found["errors"], found["left_out"]) == ([], [])


def test_table_for_people(folder: Path) -> None:
    result = run(folder)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[1].split()[:2] == ["rank", "GPU"]
    assert lines[2].split()[:5] == ["9", "0", "0.025", "40.0%", "40.0%"]
    assert "compute and comm can add up to more than 100 %" in " ".join(lines)
    assert "Over 2 rank(s): means, or what the name says; source: Timeline of raw traces" in lines
    assert any(line.split() == ["0.020", "2", "gemm"] for line in lines)


@pytest.mark.parametrize("width", [80, 100])
def test_every_line_fits_the_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(folder)
    for rank, content in enumerate(simulate(Job(num_ranks=3, planted=(Planted(2, "host", 0.1),)))):
        synthetic.write(Path(f"wide/rank{rank}/trace.json.gz"), content)
    lines = run("wide").stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert "Files, below wide:" in lines
    assert "  rank 2    rank2/trace.json.gz" in lines


def test_counts_are_whole_and_no_total_is_said_twice(folder: Path) -> None:
    lines = run(folder).stdout.splitlines()
    assert any(line.split() == ["num_gpu_events", "2"] for line in lines)
    assert not any("total_time_us" in line for line in lines)
    assert "true_overlap_ratio is measured event by event: trust that one" in " ".join(lines)


def test_a_run_can_be_named_like_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    place = folder / "aorta_results" / "01a2ffff"
    place.mkdir(parents=True)
    (folder / "rank9").rename(place / "rank9")
    (place / "run.json").write_text("{}")
    (folder / "aorta_reports").mkdir()
    (folder / "aorta_reports" / "last_run.json").write_text(json.dumps({"folder": str(place)}))
    for name in ("last", "01a2"):
        assert [row["rank"] for row in document(run(name, "--json"))["ranks"]] == [9]
    assert run("ffff").exit_code == 2


def test_a_broken_file_costs_the_exit_code_and_not_the_others(folder: Path) -> None:
    (folder / "rank3.json").write_text("")
    result = run(folder / "rank9", folder / "rank10", folder / "rank3.json", "--json")
    found = document(result)
    assert result.exit_code == 1
    assert [row["rank"] for row in found["ranks"]] == [9, 10]
    assert [error["file"] for error in found["errors"]] == [str(folder / "rank3.json")]
    assert result.stderr.splitlines() == [found["errors"][0]["error"]]


def test_a_single_file_takes_its_rank_from_its_folder(tmp_path: Path) -> None:
    path = synthetic.write(tmp_path / "rank4" / "t.json", synthetic.document([kernel(0, 1)]))
    assert document(run(path, "--json"))["ranks"][0]["rank"] == 4
    lone = synthetic.write(tmp_path / "x" / "t.json", synthetic.document([kernel(0, 1)]))
    assert document(run(lone, "--json"))["ranks"][0]["rank"] is None


def test_a_file_named_twice_is_read_once(folder: Path) -> None:
    assert len(document(run(folder, folder / "rank9", folder / "rank9" / "trace.json.gz", "--json"))["ranks"]) == 2


def test_paths_are_shown_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert document(run("rank9", "--json"))["ranks"][0]["file"] == "rank9/trace.json.gz"


@pytest.mark.parametrize("arguments", [("absent.json",), (), (".", "--jobs", "0"), (".", "--bad")])
def test_usage_errors_exit_with_2_and_still_print_json(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--json")
    assert result.exit_code == 2
    assert document(result)["ranks"] == []
    assert len(document(result)["errors"]) == 1
    assert result.stderr
    plain = run(*arguments)
    assert (plain.exit_code, plain.stdout) == (2, "")


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path, "--json")
    assert result.exit_code == 1
    assert "holds no trace" in document(result)["errors"][0]["error"]


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "t.json", synthetic.document([kernel(0, 1, "bad\x1b[31m\nname")]))
    result = run(tmp_path)
    assert "\x1b" not in result.stdout
    assert "bad\\x1b[31m\\nname" in result.stdout


def test_what_is_not_measured_says_why(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "t.json", synthetic.document([step(1, 0, 10)]))
    result = run(tmp_path)
    assert "Not measured, because the traces hold no GPU events: avg_compute_ratio" in result.stdout


def test_a_straggler_is_named_in_both_ways(tmp_path: Path) -> None:
    job = Job(num_ranks=3, jitter_ratio=0.01, planted=(Planted(2, "host", 0.1),))
    for rank, content in enumerate(simulate(job)):
        synthetic.write(tmp_path / f"rank{rank}" / "trace.json.gz", content)
    found = document(run(tmp_path, "--json"))
    assert found["matched_ratio"] == 1.0
    assert found["straggler"] == found["largest_candidate"]
    told = {"rank", "kind", "caused_delay_ms_per_step", "share_last", "steady_ms", "causes"}
    assert found["straggler"].keys() == told
    assert (found["straggler"]["rank"], found["straggler"]["kind"]) == (2, "host")
    assert found["aggregate"]["caused_delay_ms_per_step"] == found["straggler"]["caused_delay_ms_per_step"]
    assert [row["operation"] for row in found["lateness"]["bus_bandwidth"]] == ["all_reduce"]
    text = run(tmp_path).stdout
    assert "Across ranks: 90 of 90 collectives matched, 0 without metadata; times per step\n" in text
    assert "Straggler: rank 2, kind host: the others wait 1.0" in text
    assert "What to do: on its host look for a slow data loader" in text
    # The lateness metrics stand among the means, under the names of the JSON document.
    assert any(line.split()[:2] == ["matched_ratio", "1.0000"] for line in text.splitlines())


def test_when_nobody_is_named_the_reason_and_the_largest_candidate_are(tmp_path: Path) -> None:
    for rank, content in enumerate(simulate(Job(num_ranks=3, jitter_ratio=0.01))):
        synthetic.write(tmp_path / f"rank{rank}" / "trace.json.gz", content)
    found = document(run(tmp_path, "--json"))
    assert found["straggler"] is None
    assert found["largest_candidate"]["rank"] in (0, 1, 2)
    assert "No straggler: the most that a rank caused is 0.0" in run(tmp_path).stdout


def test_of_ranks_that_share_nothing_nothing_is_said(folder: Path) -> None:
    found = document(run(folder, "--json"))
    assert (found["straggler"], found["largest_candidate"]) == (None, None)
    assert (found["lateness"]["num_unnamed"], found["lateness"]["by_name_only"]) == (2, True)
    text = " ".join(run(folder).stdout.split())
    assert "2 of 2 collectives matched, by the names of kernels only, 2 without metadata; times per step" in text
    assert "No statement about a straggler: no trace says which" in text


def test_files_that_were_left_out_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "rank11").mkdir()
    (folder / "rank11" / "trace.json.gz").symlink_to(folder / "rank9" / "trace.json.gz")
    for number in range(4):
        synthetic.write(Path(f"part{number}.json"), synthetic.document([kernel(0, 1)], rank=number))
    found = document(run(".", "--json"))
    assert [row["rank"] for row in found["ranks"]] == [9, 10]
    names = ["part0.json", "part1.json", "part2.json", "part3.json", "rank11/trace.json.gz"]
    assert [row["file"] for row in found["left_out"]] == names
    assert found["left_out"][4]["why"] == "a link, which is not followed; name it to read it"
    result = run(".", "part0.json")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "left out: 3 JSON file(s) or link(s), part1.json, part2.json, part3.json: not named like a trace" in text
    assert "left out: 1 JSON file(s) or link(s), rank11/trace.json.gz: a link" in text
    assert "part0.json, part1.json, part2.json and 1 more: not named like a trace" in " ".join(run(".").stdout.split())


@pytest.mark.parametrize("name", ["x" * 300, "y/" * 2500 + "t.json"])
def test_a_name_that_no_file_system_takes_costs_the_exit_code_and_not_the_others(folder: Path, name: str) -> None:
    result = run(folder, name, "--json")
    found = document(result)
    assert result.exit_code == 1
    assert [row["rank"] for row in found["ranks"]] == [9, 10]
    assert found["errors"] == [{"file": name, "error": f"{name}: cannot be looked into (File name too long)"}]


def test_what_may_not_be_entered_costs_the_exit_code_and_not_the_others(folder: Path) -> None:
    closed = synthetic.write(folder / "rank3" / "trace.json", synthetic.document([kernel(0, 1)]))
    closed.parent.chmod(0)
    if os.access(closed.parent, os.X_OK):
        pytest.skip("this user may enter any folder")
    found = document(run(folder, closed, "--json"))
    closed.parent.chmod(0o700)
    assert [row["rank"] for row in found["ranks"]] == [9, 10]
    assert [error["error"] for error in found["errors"]] == [
        f"{path}: cannot be looked into (Permission denied)" for path in (closed.parent, closed)
    ]


def test_errors_name_files_as_they_were_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "inner").mkdir()
    (folder / "linked").symlink_to("inner")
    synthetic.write(Path("inner/rank0/trace.json"), synthetic.document([kernel(0, 1)]))
    os.link("inner/rank0/trace.json", "hard_rank0.json")
    Path("inner/rank1.json").write_text("")
    for typed in ("linked/rank0/trace.json", "hard_rank0.json", "./inner/../inner/rank1.json"):
        assert Path(typed).exists()
    found = document(run("linked/rank0/trace.json", "hard_rank0.json", "inner/../inner/rank1.json", "--json"))
    errors = {error["file"]: error["error"] for error in found["errors"]}
    assert set(errors) == {"linked/rank0/trace.json", "hard_rank0.json", "inner/../inner/rank1.json"}
    assert all(error.startswith(f"{file}: ") for file, error in errors.items())
    assert "among them . and linked: two runs, " in errors["hard_rank0.json"]


def test_a_folder_of_runs_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for run_id in ("01a", "01b", "01c"):
        for rank in range(2):
            content = synthetic.document([kernel(0, 1)], rank=rank, base_ns=int(run_id, 16) * 1_000_000)
            synthetic.write(Path(f"results/{run_id}/traces/out/torch_profiler/rank{rank}/trace.json"), content)
        Path(f"results/{run_id}/run.json").write_text("{}")
    result = run("results", "--json")
    assert (result.exit_code, document(result)["ranks"]) == (1, [])
    told = "among them results/01a/traces/out/torch_profiler and results/01b/traces/out/torch_profiler: "
    assert all(told in error["error"] for error in document(result)["errors"])
    assert [row["rank"] for row in document(run("results/01b", "--json"))["ranks"]] == [0, 1]


def test_an_empty_path_is_refused(folder: Path) -> None:
    ended = CliRunner().invoke(traces, [str(folder), ""])
    assert ended.exit_code == 2
    assert "a path is empty" in ended.output
