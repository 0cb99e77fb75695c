"""What is wrong with the ranks of a run, told once."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.checks import Check
from pytest_aorta.config.load import load
from pytest_aorta.config.settings import Settings
from pytest_aorta.run.products import Artifacts
from pytest_aorta.stages.cross_checks import cross_checks, missing_ranks
from pytest_aorta.trace.ranks import FileError, Summaries
from pytest_aorta.trace.step_log import Step, StepLog
from pytest_aorta.trace.summary import RankSummary

CONFIG = Path(__file__).parents[2] / "configs" / "local_cpu.json"
ARTIFACTS = Artifacts(layout="single", torch_traces="traces", accelerator="cpu", completed=False)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(CONFIG, output=tmp_path)


@pytest.mark.parametrize(
    ("collected", "completed", "state"),
    [(True, True, "failed"), (False, True, "warned"), (True, False, "warned"), (False, False, "warned")],
)
def test_missing_ranks_only_warn_where_something_else_failed_by_what_they_lack(
    settings: Settings, collected: bool, completed: bool, state: str
) -> None:
    host = settings.cluster.hosts[0].name
    found = {"errors": {} if collected else {host: f"{host} has no trace file"}, "completed": completed}

    (check,) = cross_checks(settings, ARTIFACTS.model_copy(update=found), Summaries((), ()), ())

    assert check.label == "[evidence] (check=missing_ranks)"
    assert check.reason == f"no trace of rank 0, 1 (on {host}); metrics are those of the others"
    assert check.state == state


def cluster_of(tmp_path: Path, **workload: Any) -> Settings:
    """Two hosts of one GPU each."""
    hosts = {"transport": "local", "node_dict": {"n1": {"vpc_ip": "127.0.0.1"}, "n2": {"vpc_ip": "127.0.0.1"}}}
    given = {
        "schema_version": 1,
        "gpus_per_node": 1,
        "accelerator": "cuda",
        "enforce_thresholds": False,
        "cluster": hosts,
        "workload": {"command": ["train.py"], "traces": "out/*", **workload},
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(given), "utf-8")
    return load(path, output=tmp_path)


def gpu_rank(rank: int, world_size: int | None = None, *, communicates: bool = False) -> RankSummary:
    return RankSummary(
        rank=rank,
        device=0,
        files=(f"rank{rank}/x.pt.trace.json",),
        source="timeline",
        world_size=world_size,
        start_ns=0,
        end_ns=10,
        total_time_us=10.0,
        num_gpu_events=3,
        num_comm_kernels=int(communicates),
    )


def checks(
    settings: Settings,
    *ranks: RankSummary,
    errors: Sequence[FileError] = (),
    logs: Sequence[StepLog] = (),
    completed: bool = False,
    lost: Mapping[str, str] | None = None,
) -> list[Check]:
    given = {"layout": "combined", "accelerator": "cuda", "completed": completed, "errors": lost or {}}
    return [*cross_checks(settings, ARTIFACTS.model_copy(update=given), Summaries(ranks, tuple(errors)), logs)]


def told(settings: Settings, *ranks: RankSummary, **more: Any) -> list[tuple[str, str]]:
    """Give state and reason of what is wrong with the ranks."""
    return [(check.state, check.reason) for check in checks(settings, *ranks, **more)]


def step_log(rank: int, world_size: int | None = 2, num_steps: int = 3, **more: Any) -> StepLog:
    steps = tuple(Step(number, 1.0, profiled=False, samples=None, tokens=None) for number in range(1, num_steps + 1))
    return StepLog(rank, f"rank_{rank}_metrics.jsonl", world_size, steps, **more)


@pytest.mark.parametrize(
    ("world_size", "communicates", "reasons"),
    [
        (2, True, []),
        (None, True, []),
        (None, False, ["no communication in the trace of rank 0, 1 although 2 ranks were launched"]),
        (2, False, ["no communication in the trace of rank 0, 1 although the world has 2 ranks"]),
        (1, False, ["the trace of rank 0, 1 tells of a world of 1, 2 were launched"]),
        (1, True, ["the trace of rank 0, 1 tells of a world of 1, 2 were launched"]),
        (4, True, ["the trace of rank 0, 1 tells of a world of 4, 2 were launched"]),
    ],
)
def test_ranks_that_torchrun_started_train_together(
    tmp_path: Path, world_size: int | None, communicates: bool, reasons: list[str]
) -> None:
    ranks = [gpu_rank(rank, world_size, communicates=communicates) for rank in (0, 1)]

    assert told(cluster_of(tmp_path, launcher="torchrun"), *ranks) == [("failed", reason) for reason in reasons]


@pytest.mark.parametrize(("launcher", "where"), [("torchrun", " (on n2)"), ("none", "")])
def test_a_missing_rank_is_of_no_host_where_the_workload_placed_it(tmp_path: Path, launcher: str, where: str) -> None:
    ranks = [gpu_rank(0, 2, communicates=True)]
    [(state, reason)] = told(cluster_of(tmp_path, launcher=launcher), *ranks, completed=True)

    assert (state, reason) == ("failed", f"no trace of rank 1{where}; metrics are those of the others")
    lost = {"n1" if launcher == "none" else "n2": "it is down"}
    [(state, _)] = told(cluster_of(tmp_path, launcher=launcher), *ranks, completed=True, lost=lost)
    assert state == "warned"


def test_ranks_that_the_workload_starts_itself(tmp_path: Path) -> None:
    settings = cluster_of(tmp_path)

    assert told(settings, gpu_rank(0, 2, communicates=True), gpu_rank(1, 2, communicates=True)) == []
    [(state, reason)] = told(settings, gpu_rank(0, 1), gpu_rank(1, 1))
    assert (state, reason) == ("failed", "the trace of rank 0, 1 tells of a world of 1, 2 wrote traces")
    [size, together] = told(settings, gpu_rank(0), gpu_rank(1))
    assert size == ("not_judged", "whether 2 ranks are all: no trace and no step log tells a world_size")
    assert together[0] == "not_judged"
    assert together[1].startswith("whether 2 ranks trained together: the trace of rank 0, 1 shows neither")


@pytest.mark.parametrize("world_size", [1000, 10**12])
def test_a_world_that_is_too_large_is_counted_and_not_listed(tmp_path: Path, world_size: int) -> None:
    settings = cluster_of(tmp_path)
    ranks = [gpu_rank(rank, world_size, communicates=True) for rank in (0, 2)]

    [(state, reason)] = told(settings, *ranks, completed=True)

    assert state == "failed"
    assert reason == (
        "no trace of rank 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, ... "
        f"({world_size - 2} of {world_size}); metrics are those of the others"
    )
    missing = missing_ranks(settings, ranks, [step_log(0, world_size)])
    assert (missing.num, missing.first(3)) == (world_size - 2, (1, 3, 4))


@pytest.mark.parametrize(("launcher", "said"), [("torchrun", "2 were launched"), ("none", "2 wrote traces")])
def test_a_step_log_that_tells_of_a_world_of_one(tmp_path: Path, launcher: str, said: str) -> None:
    settings = cluster_of(tmp_path, launcher=launcher)
    ranks = [gpu_rank(rank, communicates=True) for rank in (0, 1)]

    assert told(settings, *ranks, logs=[step_log(0), step_log(1)]) == []
    wrong = ("failed", f"the step log of rank 0, 1 tells of a world of 1, {said}")
    assert wrong in told(settings, *ranks, logs=[step_log(0, 1), step_log(1, 1)])
    alone = ("failed", f"the step log of rank 1 tells of a world of 1, {said}")
    assert alone in told(settings, *ranks, logs=[step_log(0), step_log(1, 1)])


@pytest.mark.parametrize("completed", [True, False])
def test_a_trace_without_its_end_is_not_judged(tmp_path: Path, completed: bool) -> None:
    ranks = [gpu_rank(0, 2, communicates=True), dataclasses.replace(gpu_rank(1, 2, communicates=True), is_cut=True)]

    [(state, reason)] = told(cluster_of(tmp_path, launcher="torchrun"), *ranks, completed=completed)

    assert reason == "the trace of rank 1 is cut: its end is missing, so that its times are too small"
    assert state == ("failed" if completed else "warned")  # of a rank that was ended nobody expects more


@pytest.mark.parametrize("completed", [True, False])
def test_a_trace_that_lost_more_than_a_few_events_is_not_judged(tmp_path: Path, completed: bool) -> None:
    few, many = (
        dataclasses.replace(gpu_rank(rank, 2, communicates=True), events_lost=1, lost_ratio=ratio)
        for rank, ratio in ((0, 0.01), (1, 0.011))
    )

    [(state, reason)] = told(cluster_of(tmp_path, launcher="torchrun"), few, many, completed=completed)

    assert reason == (
        "the trace of rank 1 lost 1.1% of its GPU events, launch calls or steps (expected 1% or less), so that its "
        "times are wrong"
    )
    assert state == ("failed" if completed else "warned")


def test_what_a_step_log_lacks_is_told_of_its_host(tmp_path: Path) -> None:
    ranks = [gpu_rank(rank, 2, communicates=True) for rank in (0, 1)]
    logs = [step_log(0), step_log(1, num_steps=2, num_bad_losses=1)]

    [found] = checks(cluster_of(tmp_path, launcher="torchrun"), *ranks, logs=logs, completed=True)

    assert (found.label, found.host) == ("[evidence] (host=n2, check=step_log)", "n2")
    assert found.reason == (
        "step logs (on n2): rank 1 logged 2 of 3 steps; the loss of rank 1 is no finite number in 1 steps"
    )
    assert found.next_step == "look in the step logs where the loss left the numbers"
    [found] = checks(cluster_of(tmp_path), *ranks, logs=logs, completed=True)  # who knows where its ranks are
    assert (found.label, found.host) == ("[evidence] (check=step_log)", None)


def test_a_rank_alone_has_nobody_to_train_with(settings: Settings, tmp_path: Path) -> None:
    alone = cluster_of(tmp_path, launcher="torchrun")
    one_host = dataclasses.replace(alone, cluster=settings.cluster)

    assert told(one_host, gpu_rank(0)) == []
    assert told(one_host, gpu_rank(0, 1)) == []


def test_fewer_ranks_than_hosts_wrote_traces(tmp_path: Path) -> None:
    [wrong] = told(cluster_of(tmp_path), gpu_rank(0, 1))

    assert wrong == ("failed", "1 rank wrote a trace on 2 hosts, expected one or more of each host")


def test_the_first_few_of_many_files_that_are_no_traces_are_named(tmp_path: Path) -> None:
    errors = [FileError(f"f{number}", f"f{number}: no JSON") for number in range(3000)]
    ranks = [gpu_rank(rank, 2, communicates=True) for rank in (0, 1)]

    found = told(cluster_of(tmp_path), *ranks, errors=errors)

    assert [reason for _, reason in found] == [
        *(e.error for e in errors[:5]),
        "and 2995 more files",
    ]
    assert told(cluster_of(tmp_path), *ranks, errors=errors[:6])[-1][1] == "and 1 more file"
