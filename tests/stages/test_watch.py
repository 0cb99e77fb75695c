"""Watching a phase: who is waited for after a failure, and how that is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_aorta.config.load import load
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.stages.benchmark import judge_ranks
from pytest_aorta.stages.phase import Phase, fail_fast
from pytest_aorta.stages.watch import Watch, look_at_processes
from tests.run.test_context import context

CONFIG = Path(__file__).parents[2] / "configs" / "local_cpu.json"
NOTICE = "E1129 17:31:30.120000 77 torch/x/api.py:1002] failed (exitcode: 13) local_rank: 0 (pid: 5) of binary: python"


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(load(CONFIG, output=tmp_path))


def given_up(watch: Watch, phase: Phase) -> str:
    grace = watch.settings.config.failure_grace_seconds
    for now in (100.0, 100.0 + grace):
        fail_fast(phase, grace, now, watch.noticed)
        assert phase.given_up == ""
    fail_fast(phase, grace, 100.5 + grace, watch.noticed)
    return phase.given_up


def test_nobody_is_ended_without_a_failure(watch: Watch) -> None:
    assert given_up(watch, Phase("benchmark", ("a", "b"), exits={"a": 0})) == ""


def test_who_still_runs_is_named(watch: Watch) -> None:
    phase = Phase("benchmark", ("a", "b"), exits={"b": 13})

    assert given_up(watch, phase) == "a still ran 30 s after the first failure and was ended"


def test_a_notice_without_an_end_says_where_the_failure_was(watch: Watch) -> None:
    watch.lines("b", [NOTICE])

    assert given_up(watch, Phase("benchmark", ("a", "b"))) == (
        "a, b still ran 30 s after the first failure (on b) and was ended"
    )


def test_a_silent_host_is_not_counted_among_the_alive(watch: Watch) -> None:
    line = watch.progress_line(Phase("benchmark", ("a", "b", "c"), exits={"c": 0}), {"b": 45.0, "c": 60.0})
    assert ", 1 of 3 hosts alive, b silent for 45 s" in line
    assert "c silent" not in line
    assert "silent" not in watch.progress_line(Phase("benchmark", ("a",)))


@pytest.fixture
def two_hosts(tmp_path: Path) -> Watch:
    nodes = {name: {"vpc_ip": f"10.0.0.{i}"} for i, name in enumerate(("a", "b"), 1)}
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"username": "u", "priv_key_file": "~/key", "node_dict": nodes}), "utf-8")
    return Watch(load(CONFIG, cluster=cluster, output=tmp_path))


@pytest.mark.parametrize(
    ("ranks", "hosts", "state", "reason"),
    [
        ({0, 1, 2, 3}, {"a", "b"}, None, ""),
        ({2, 3}, {"b"}, "not_judged", "number of ranks on a not observed: the workload ended before it was looked at"),
        (set(), set(), "not_judged", "number of ranks not observed: the workload ended before it was looked at"),
        ({2}, {"b"}, "failed", "1 rank was seen running (2), expected 2 on b"),
        ({0, 1, 2}, {"a", "b"}, "failed", "3 ranks were seen running (0, 1, 2), expected 4"),
        ({0, 1, 2, 3, 4}, {"a", "b"}, "failed", "5 ranks were seen running (0, 1, 2, 3, 4), expected 4"),
    ],
)
def test_a_host_whose_ranks_ended_unseen_is_not_judged_by_their_number(
    two_hosts: Watch, ranks: set[int], hosts: set[str], state: str | None, reason: str
) -> None:
    two_hosts.ranks, two_hosts.rank_hosts = ranks, hosts
    told = [(check.state, check.reason) for check in judge_ranks(two_hosts.settings, two_hosts)]
    assert told == ([(state, reason)] if state else [])


def test_the_threads_of_each_host_are_known_by_themselves(tmp_path: Path, two_hosts: Watch) -> None:
    def answers(pid: int) -> list[Reply]:
        return [Reply("processes", {"groups": {}}), Reply("marked", {"threads": [pid, pid + 1]})]

    fleet = Fleet({"a": ScriptedTransport(answers(10)), "b": ScriptedTransport(answers(20))})
    cluster = {"transport": "local", "node_dict": {host: {"vpc_ip": "127.0.0.1"} for host in fleet.hosts}}

    look_at_processes(context(tmp_path, fleet, cluster=cluster), two_hosts, Phase("benchmark", fleet.hosts))
    fleet.close()

    assert two_hosts.threads == {"a": {10, 11}, "b": {20, 21}}
