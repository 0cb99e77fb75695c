"""Whole runs: what is on stdout, in the step lines, and in the traces."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

pytest.importorskip("torch", reason="the workload needs torch")
pytestmark = pytest.mark.torch

Start = Callable[..., subprocess.CompletedProcess[str]]
PROFILED = [2, 3, 4, 5, 6]


class Finished:
    """The tiny configuration after its run on two ranks, started where an older run has left its lines."""

    def __init__(self, ended: subprocess.CompletedProcess[str], folder: Path) -> None:
        self.ended = ended
        self.output = folder / "artifacts" / "tiny_cpu"
        files = [self.output / f"rank_0{rank}_metrics.jsonl" for rank in range(2)]
        self.lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
        self.heartbeats = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"aorta"')]


@pytest.fixture(scope="module")
def finished(start_ranks: Start, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("run")
    older = folder / "artifacts" / "tiny_cpu" / "rank_00_metrics.jsonl"
    older.parent.mkdir(parents=True)
    older.write_text('{"step": "of an older run"}\n')
    ended = start_ranks(folder, tree / "train.py", "--config", str(tree / "config" / "tiny_cpu.yaml"))
    assert ended.returncode == 0, ended.stderr[-3000:]
    return Finished(ended, folder)


def test_every_step_of_every_rank_has_a_line(finished: Finished) -> None:
    for rank, lines in enumerate(finished.lines):
        steps = lines[:-1]
        assert [line["global_step"] for line in steps] == list(range(1, 61))
        assert {(line["rank"], line["world_size"], line["samples"], line["tokens"]) for line in steps} == {
            (rank, 2, 8, 128)
        }
        assert [line["global_step"] for line in steps if line["profiled"]] == PROFILED
        assert all(line["step_ms"] > 0 and line["memory_peak_bytes"] > 0 and line["model_flops"] > 0 for line in steps)
        assert steps[7]["samples_per_s"] == pytest.approx(8000 / steps[7]["step_ms"], rel=1e-3)
        assert steps[7]["tokens_per_s"] == pytest.approx(128000 / steps[7]["step_ms"], rel=1e-3)


def test_enough_steps_are_left_to_judge_by(finished: Finished) -> None:
    for lines in finished.lines:
        assert sum(not line["profiled"] for line in lines[10:-1]) >= 20


def test_the_ranks_learn_from_different_data_and_agree_on_the_gradient(finished: Finished) -> None:
    first, second = ([line["loss"] for line in lines[:-1]] for lines in finished.lines)
    assert all(left != right for left, right in zip(first, second, strict=True))
    assert sum(first[-10:]) < 0.8 * sum(first[:10])
    norms = [[line["grad_norm"] for line in lines[:-1]] for lines in finished.lines]
    assert norms[0] == norms[1]


def test_the_last_line_holds_equal_checksums(finished: Finished) -> None:
    ends = [lines[-1] for lines in finished.lines]
    assert len({end["weights_checksum"] for end in ends}) == 1
    assert re.fullmatch("[0-9a-f]{16}", ends[0]["weights_checksum"])
    for rank, end in enumerate(ends):
        expected = {"final": True, "rank": rank, "world_size": 2, "steps": 60, "exit": "completed", "mode": "fsdp"}
        assert expected.items() <= end.items()
        assert {"dtype": "fp32", "device": "cpu", "compile": "off"}.items() <= end.items()


def test_rank_0_beats_once_a_step_for_the_whole_job(finished: Finished) -> None:
    assert [beat["step"] for beat in finished.heartbeats] == list(range(1, 61))
    line = finished.lines[0][20]
    beat = finished.heartbeats[20]
    assert beat["max_steps"] == 60
    assert beat["loss"] == line["loss"]
    assert beat["samples_per_s"] == pytest.approx(2 * line["samples_per_s"], rel=1e-3)
    assert beat["tokens_per_s"] == pytest.approx(2 * line["tokens_per_s"], rel=1e-3)


def test_progress_is_logged_at_its_interval(finished: Finished) -> None:
    assert re.findall(r"step (\d+)/60 loss", finished.ended.stderr) == ["20", "40", "60"]


def test_each_rank_has_one_trace_of_the_active_steps(finished: Finished) -> None:
    for rank in range(2):
        files = list((finished.output / "torch_profiler" / f"rank{rank}").iterdir())
        assert len(files) == 1
        assert re.fullmatch(r".+_\d+\.\d+\.pt\.trace\.json", files[0].name)
        trace = json.loads(files[0].read_text())
        steps = {
            event["name"] for event in trace["traceEvents"] if str(event.get("name", "")).startswith("ProfilerStep#")
        }
        assert steps == {"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"}
        assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (rank, 2)


def test_only_what_is_severe_enough_is_logged(start_alone: Start, tiny_config: Path, tmp_path: Path) -> None:
    short = ["training.max_steps=2", "profiling.enabled=false", "training.log_interval=1"]
    levels = {
        level: start_alone(tmp_path, "--config", str(tiny_config), "--override", *short, f"logging.level={level}")
        for level in ("INFO", "WARNING")
    }
    assert all(ended.returncode == 0 for ended in levels.values())
    assert "step 2/2 loss" in levels["INFO"].stderr
    assert "step 2/2 loss" not in levels["WARNING"].stderr


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("fault", "code"), [("none", 0), ("nan", 1)])
def test_no_temporary_folder_stays(
    start_alone: Start, tiny_config: Path, tmp_path: Path, fault: str, code: int, num_workers: int
) -> None:
    overrides = [f"dataloader.num_workers={num_workers}", f"fault_injection.kind={fault}", "fault_injection.step=3"]
    with TemporaryDirectory(dir="/tmp") as place:  # the names of sockets in it may not be long
        ended = start_alone(tmp_path, "--config", str(tiny_config), "--override", *overrides, TMPDIR=place)
        assert ended.returncode == code, ended.stderr
        assert list(Path(place).glob("pymp-*")) == []


def test_over_gloo_a_rank_that_did_its_work_leaves_at_once(
    start_alone: Start, tiny_config: Path, tmp_path: Path
) -> None:
    """An orderly end of the interpreter aborts the process when a thread of gloo is late."""
    orderly = "import atexit\natexit.register(print, 'an orderly end', flush=True)\n"
    (tmp_path / "sitecustomize.py").write_text(orderly)
    short = ["training.max_steps=1", "profiling.enabled=false"]
    arguments = ["--config", str(tiny_config), "--override", *short]
    trained = start_alone(tmp_path, *arguments, PYTHONPATH=str(tmp_path))
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert "an orderly end" not in trained.stdout
    refused = start_alone(tmp_path, *arguments, "no.such=1", PYTHONPATH=str(tmp_path))
    assert (refused.returncode, refused.stdout) == (2, "an orderly end\n")


def traces_of(start_alone: Start, config: Path, folder: Path, *overrides: str) -> dict[str, Any]:
    """Run alone and give each trace by its name; compressed ones are opened."""
    short = ["distributed.mode=ddp", "training.max_steps=13", "training.output_dir=out", *overrides]
    ended = start_alone(folder, "--config", str(config), "--override", *short)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = {}
    for file in (folder / "out" / "torch_profiler" / "rank0").iterdir():
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        found[file.name] = content
    return found


def test_both_exports_of_every_cycle_are_written_compressed(
    start_alone: Start, tiny_config: Path, tmp_path: Path
) -> None:
    traces = traces_of(
        start_alone,
        tiny_config,
        tmp_path,
        "profiling.chrome_trace=true",
        "profiling.gzip=true",
        "profiling.repeat=2",
        "profiling.active=2",
        "profiling.trace_filename=my.json",
        "profiling.record_shapes=true",
    )
    chrome = {name: content for name, content in traces.items() if name.startswith("my")}
    tensorboard = {name: content for name, content in traces.items() if name.endswith(".pt.trace.json.gz")}
    assert sorted(chrome) == ["my_step4.json.gz", "my_step8.json.gz"]
    assert len(tensorboard) == 2
    assert sorted(chrome.values()) == sorted(tensorboard.values())
    for content in traces.values():
        events = json.loads(content)["traceEvents"]
        assert any("Input Dims" in event.get("args", {}) for event in events)
        assert len({event["name"] for event in events if str(event.get("name", "")).startswith("ProfilerStep#")}) == 2


def test_one_cycle_keeps_the_given_name_and_records_what_is_asked(
    start_alone: Start, tiny_config: Path, tmp_path: Path
) -> None:
    traces = traces_of(
        start_alone,
        tiny_config,
        tmp_path,
        "profiling.chrome_trace=true",
        "profiling.tensorboard=false",
        "profiling.profile_memory=true",
        "profiling.with_stack=true",
        "profiling.with_flops=true",
        "dataloader.num_workers=1",
    )
    assert list(traces) == ["trace.json"]
    events = json.loads(traces["trace.json"])["traceEvents"]
    names = {event.get("name") for event in events}
    assert "[memory]" in names
    assert any(event.get("cat") == "python_function" for event in events)
    assert json.loads(traces["trace.json"])["with_flops"] == 1
