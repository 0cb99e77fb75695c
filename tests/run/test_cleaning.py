"""Cleaning: what a run left is taken away, what may be somebody else's is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_aorta.cli_runs import clean, runs
from pytest_aorta.config.load import load
from pytest_aorta.errors import ConfigError
from pytest_aorta.fleet.ask import Answer
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.scripted import Reply, ScriptedTransport
from pytest_aorta.fleet.transport import Pipes
from pytest_aorta.node.facts import identity
from pytest_aorta.node.files import prepare
from pytest_aorta.run.folder import RunFolder, new_run_id
from pytest_aorta.run.machine import hostname
from pytest_aorta.run.record import HostRecord, JudgementKeeper, RecordKeeper, is_run_folder, read
from pytest_aorta.run.sweeping import CACHE, sweep_fleet
from pytest_aorta.suite.opening import remember

GONE_PID = 2**22 + 1  # above the highest pid there can be
CONFIG = {"schema_version": 1, "gpus_per_node": 1, "enforce_thresholds": False}


MACHINE = {"identity": identity(), "hostname": hostname()}
GONE = {
    "token": "t",
    "boot_id": "b",
    "pid_namespace": "p",
    "machine": MACHINE,
    "node": {"pid": GONE_PID, "start_ticks": 1},
    "groups": [],
}


@dataclass
class Left:
    """A run that was never closed and whose pytest is gone, with its work folder on this machine."""

    keeper: RecordKeeper
    work: Path

    @property
    def run_id(self) -> str:
        return self.keeper.folder.run_id

    def change(self, **fields: Any) -> None:
        path = self.keeper.folder.record
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")

    def elsewhere(self) -> None:
        ids = {"boot_id": "another", "pid_namespace": "pid:[1]", "identity": "other"}
        self.change(machine="node7", pid=4711, machine_ids=ids)


@pytest.fixture
def leave(tmp_path: Path) -> Callable[[], Left]:
    def make() -> Left:
        settings = load(tmp_path / "c.json", config_text=CONFIG, cwd=tmp_path)
        folder = RunFolder.create(tmp_path / "results", new_run_id())
        keeper = RecordKeeper.begin(
            folder, suite="single", plan=(), config=settings.document(), inputs={}, environment={}
        )
        work = tmp_path / "work" / folder.run_id
        prepare(str(work))
        keeper.hosts({settings.head.name: HostRecord(work_dir=str(work), state_dir=f"{work}.node")})
        left = Left(keeper, work)
        left.change(pid=GONE_PID)
        return left

    return make


@pytest.fixture
def aorta(tmp_path: Path) -> Callable[..., Result]:
    def call(command: Any, *arguments: str) -> Result:
        places = ["--output", str(tmp_path / "results")] if arguments[:1] != ("list",) else []
        return CliRunner().invoke(command, [*arguments, *places])

    return call


Leave = Callable[[], Left]
Aorta = Callable[..., Result]


def closed(left: Left) -> bool:
    return read(left.keeper.folder).finished is not None


def test_an_abandoned_run_is_cleaned_and_closed(leave: Leave, aorta: Aorta) -> None:
    left = leave()
    result = aorta(clean)
    assert result.exit_code == 0, result.output
    assert not left.work.exists()
    assert read(left.keeper.folder).verdict == "interrupted"
    assert "nothing to clean" in aorta(clean).output
    assert "no work folder was left" in aorta(clean, "--all").output


@pytest.mark.parametrize("arguments", [(), ("--all",)])
def test_a_run_of_another_machine_is_left_alone(leave: Leave, aorta: Aorta, arguments: tuple[str, ...]) -> None:
    left = leave()
    left.elsewhere()
    result = aorta(clean, *arguments)
    assert result.exit_code == 0
    assert f"{left.run_id} (elsewhere): left alone" in result.output
    assert "begun on node7 as pid 4711" in result.output
    assert left.work.exists()
    assert not closed(left)


def test_a_run_of_another_machine_needs_its_id_and_force(leave: Leave, aorta: Aorta) -> None:
    left = leave()
    left.elsewhere()
    refused = aorta(clean, left.run_id)
    assert isinstance(refused.exception, ConfigError)
    assert "begun on node7 as pid 4711" in str(refused.exception)
    assert f"aorta clean {left.run_id} --force" in str(refused.exception)
    assert isinstance(aorta(clean, "--all", "--force").exception, ConfigError)
    assert left.work.exists()
    result = aorta(clean, left.run_id, "--force")
    assert result.exit_code == 0, result.output
    assert not left.work.exists()
    assert "on node7" in read(left.keeper.folder).sentence


def test_a_run_of_another_machine_is_listed_as_such(leave: Leave, tmp_path: Path) -> None:
    left = leave()
    left.elsewhere()
    result = CliRunner().invoke(runs, ["list", "--output", str(tmp_path / "results")])
    assert f"{left.run_id[:8]}  elsewhere" in result.output
    assert "begun on node7" in result.output


def test_a_list_in_a_pipe_has_short_lines_too_and_names_the_configuration(
    leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    left = leave()
    left.change(finished="now", verdict="failed", sentence="a cause " * 200, inputs={"config": "/home/ops/gpu.json"})
    heading, line = CliRunner().invoke(runs, ["list", "--output", str(tmp_path / "results")]).output.splitlines()
    assert heading.split()[-1] == "config"
    assert "  gpu.json  a cause a cause " in line
    assert 160 <= len(line) <= 240
    assert line.endswith("…")


@pytest.mark.parametrize("columns", [80, 200])
def test_the_list_fits_the_terminal_and_its_ids_are_unique_beginnings(
    leave: Leave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    left = [leave() for _ in range(3)]
    for run in left:
        run.change(finished="now", verdict="failed", sentence="a long cause " * 9)
    heading, *lines = CliRunner().invoke(runs, ["list", "--output", str(tmp_path / "results")]).output.splitlines()
    assert heading.split() == ["run", "state", "begun", "(UTC)", "suite", "config"]
    assert max(map(len, lines)) <= columns
    assert all(("…" in line) is (columns == 80) for line in lines)
    names = [line.split()[0] for line in lines]
    assert len(set(names)) == 3
    for name in names:
        shown = CliRunner().invoke(runs, ["show", name, "--output", str(tmp_path / "results")])
        assert f"run {name}" in shown.output


def test_what_is_not_there_is_named_as_it_was_typed(leave: Leave, aorta: Aorta) -> None:
    leave()
    for command, arguments in ((runs, ("show", "zzz")), (clean, ("zzz",))):
        error = aorta(command, *arguments).exception
        assert isinstance(error, ConfigError)
        assert str(error).startswith("RUN: no single run 'zzz'")


def test_a_change_of_the_hostname_hides_nothing(leave: Leave) -> None:
    left = leave()
    left.change(machine="renamed")
    assert read(left.keeper.folder).presence == "abandoned"
    left.change(pid=left.keeper.document.pid)
    assert read(left.keeper.folder).presence == "running"


def test_the_same_name_in_another_boot_or_container_is_not_this_machine(leave: Leave) -> None:
    left = leave()
    ids = left.keeper.document.machine_ids.model_dump()
    left.change(machine_ids={**ids, "boot_id": "another", "identity": "other"})
    assert read(left.keeper.folder).presence == "elsewhere"
    left.change(machine_ids={**ids, "pid_namespace": "pid:[1]"})
    assert read(left.keeper.folder).presence == "elsewhere"
    if ids["identity"]:
        left.change(machine_ids={**ids, "boot_id": "before the reboot"})
        assert read(left.keeper.folder).presence == "abandoned"


@pytest.mark.parametrize("field", ["work_dir", "state_dir"])
def test_a_record_that_names_another_runs_folders_is_refused(leave: Leave, aorta: Aorta, field: str) -> None:
    left, victim = leave(), leave()
    victim.change(finished="now", verdict="passed")
    (host,) = left.keeper.document.hosts
    own, other = (run.keeper.document.hosts[host].model_dump() for run in (left, victim))
    left.change(hosts={host: {**own, field: other[field]}})
    for arguments in ((), (left.run_id,), ("--all",)):
        result = aorta(clean, *arguments)
        assert result.exit_code == 1
        assert "nothing was touched" in result.output
        assert left.work.exists()
        if arguments != ("--all",):
            assert victim.work.exists()
    assert not closed(left)


def test_a_record_of_another_run_in_this_folder_is_refused(leave: Leave, aorta: Aorta) -> None:
    left, victim = leave(), leave()
    victim.change(finished="now", verdict="passed")
    text = victim.keeper.folder.record.read_text("utf-8")
    left.keeper.folder.record.write_text(text, "utf-8")
    result = aorta(clean, str(left.keeper.folder.path))
    assert result.exit_code == 1
    assert f"lies in a folder named '{left.run_id}'" in result.output
    assert victim.work.exists()


def test_a_record_that_lost_a_part_of_the_path_is_not_taken_for_clean(leave: Leave, aorta: Aorta) -> None:
    left = leave()
    (host,) = left.keeper.document.hosts
    redacted = f"/data/<redacted>/{left.run_id}"
    left.change(hosts={host: {"work_dir": redacted, "state_dir": f"{redacted}.node"}})
    result = aorta(clean)
    assert result.exit_code == 1
    assert "remove the folder" in result.output
    assert not closed(left)


def test_hosts_that_this_version_cannot_reach_are_not_looked_for_here(leave: Leave, aorta: Aorta) -> None:
    left = leave()
    config = left.keeper.document.config
    left.change(config={**config, "cluster": {**config["cluster"], "transport": "carrier-pigeon"}})
    result = aorta(clean)
    assert result.exit_code == 1
    assert "could not be cleaned: " in result.output
    assert left.work.exists()


def test_a_run_whose_teardown_failed_is_taken_up_again(leave: Leave, aorta: Aorta) -> None:
    left = leave()
    left.keeper.closed((), ("work folders removed: node-a: its node program ended",))
    left.keeper.close("failed", "it went wrong")
    assert f"run `aorta clean {left.run_id}`" in read(left.keeper.folder).remark
    result = aorta(clean)
    assert result.exit_code == 0, result.output
    assert not left.work.exists()
    record = read(left.keeper.folder)
    assert (record.uncleaned, record.verdict, record.sentence) == ((), "failed", "it went wrong")
    assert "nothing to clean" in aorta(clean).output
    assert "no work folder was left" in aorta(clean, "--all").output


def test_the_folder_of_a_cleaning_is_one_that_a_sweep_finds(leave: Leave, aorta: Aorta) -> None:
    left = leave()
    taken = left.work.with_name(f"{left.run_id}+clean.node")
    taken.touch()
    result = aorta(clean)
    assert result.exit_code == 1
    assert f"the folder {taken} cannot be written" in result.output


def test_only_the_hosts_that_failed_are_noted(leave: Leave) -> None:
    keeper = leave().keeper
    (entry,) = keeper.document.hosts.values()
    keeper.hosts({"a": entry, "b": entry, "c": entry})
    keeper.not_cleaned(("b", "stranger"))
    keeper.not_cleaned(("a",))
    assert keeper.document.uncleaned == ("a", "b")
    keeper.closed((), ("it is known already",))
    assert keeper.document.uncleaned == ("a", "b")


def test_what_cannot_be_removed_stays_noted(leave: Leave, aorta: Aorta) -> None:
    left = leave()
    (left.work / ".aorta-work").unlink()
    left.change(finished="now", verdict="failed", uncleaned=list(left.keeper.document.hosts))
    for _ in range(2):
        result = aorta(clean)
        assert result.exit_code == 1
        assert "could not be cleaned" in result.output
    assert left.work.exists()


def test_a_later_judging_leaves_the_end_of_the_run_as_it_was(leave: Leave) -> None:
    left = leave()
    left.keeper.closed(("stopped",), ("not removed",))
    kept = (left.keeper.document.closing, left.keeper.document.uncleaned)
    judging = JudgementKeeper(left.keeper.folder, left.keeper.document)
    judging.closed((), ())
    judging.not_cleaned(())
    assert (judging.document.closing, judging.document.uncleaned) == kept


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "\xff", "[" * 100_000, '{"run_id": 1}', '{"pid": ' + "9" * 5000 + "}", None]
)
def test_a_damaged_record_does_not_stop_the_others(
    leave: Leave, aorta: Aorta, tmp_path: Path, content: str | None
) -> None:
    left = leave()
    damaged = tmp_path / "results" / "000-damaged"
    damaged.mkdir()
    if content is None:
        (damaged / "run.json").mkdir()
    else:
        (damaged / "run.json").write_text(content, "latin-1")
    result = aorta(clean, "--all")
    assert result.exit_code == 1
    assert "000-damaged: left alone: " in result.stderr
    assert not left.work.exists()


def test_a_record_with_a_foreign_configuration_does_not_stop_the_others(leave: Leave, aorta: Aorta) -> None:
    strange, left = leave(), leave()
    strange.change(config={})
    result = aorta(clean)
    assert result.exit_code == 1
    assert "could not be cleaned: run.json: config.schema_version" in result.output
    assert strange.work.exists()
    assert not left.work.exists()


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/proc/self/mem", ""])
def test_a_path_that_no_folder_can_have_is_no_run(name: str) -> None:
    assert not is_run_folder(name)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (clean, ("--output", "aorta_result")),
        (runs, ("list", "--output", "aorta_result")),
        (runs, ("--output", "aorta_result")),
        (runs, ("show", "last", "--output", "aorta_result")),
        (runs, ("--output", "aorta_result", "show", "last")),
    ],
)
def test_an_output_folder_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "'--output': aorta_result: no such folder" in result.stderr
    assert CliRunner().invoke(runs, []).output == "no runs in aorta_results\n"
    assert CliRunner().invoke(clean, []).exit_code == 0


def test_the_group_hands_its_output_folder_on(leave: Leave, tmp_path: Path) -> None:
    left, place = leave(), str(tmp_path / "results")
    for arguments in ((), ("list",), ("show", leave().run_id)):
        assert left.run_id[:8] in CliRunner().invoke(runs, ["--output", place, *arguments]).output


def test_the_last_run_must_be_in_the_output_folder_that_was_typed(leave: Leave, tmp_path: Path) -> None:
    left = leave()
    remember(tmp_path / "reports", left.keeper.folder, "single")
    (tmp_path / "others").mkdir()
    for command, arguments in ((runs, ["show"]), (clean, [])):
        asked = [*arguments, "last", "--report-dir", str(tmp_path / "reports"), "--output"]
        error = CliRunner().invoke(command, [*asked, str(tmp_path / "others")]).exception
        assert isinstance(error, ConfigError)
        assert f"is {left.keeper.folder.path}, which is not in {tmp_path / 'others'}" in str(error)
        assert CliRunner().invoke(command, [*asked, str(tmp_path / "results")]).exit_code == 0


def home_without_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> Path:
    """Make a home on a machine where Docker says why it does not work; gives the cache folder there."""
    for name in ("docker", "sudo"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n", "utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".cache" / "pytest-aorta"


@pytest.mark.parametrize(
    ("said", "code"), [("permission denied", 0), ("Cannot connect to the Docker daemon", 1)], ids=["closed", "down"]
)
def test_a_sweep_names_the_folders_and_needs_no_right_to_use_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    cache, run_id = home_without_docker(tmp_path, monkeypatch, said), new_run_id()
    for name in (run_id, f"{run_id}.node"):
        prepare(str(cache / name))
    (cache / f"{run_id}.node" / "groups.json").write_text(json.dumps(GONE), "utf-8")
    (tmp_path / "cluster.json").write_text('{"transport": "local", "node_dict": {"here": {}}}', "utf-8")

    result = CliRunner().invoke(clean, ["--cluster", str(tmp_path / "cluster.json")])

    assert result.exit_code == code, result.output
    told = f"here: run {run_id}: 0 processes ended, ~/.cache/pytest-aorta/{run_id} removed"
    assert told in result.output
    assert said in result.output
    assert list(cache.iterdir()) == []


def test_a_sweep_leaves_alone_what_another_host_has_in_the_same_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, run_id = home_without_docker(tmp_path, monkeypatch, "permission denied"), new_run_id()
    others = {"node2": {**MACHINE, "hostname": "node2"}, "node3": {**MACHINE, "identity": "other"}}
    for host, machine in others.items():
        for name in (f"{run_id}-{host}", f"{run_id}-{host}.node"):
            prepare(str(cache / name))
        record = cache / f"{run_id}-{host}.node" / "groups.json"
        record.write_text(json.dumps({**GONE, "machine": machine}), "utf-8")
    before = sorted(cache.iterdir())
    (tmp_path / "cluster.json").write_text('{"transport": "local", "node_dict": {"here": {}}}', "utf-8")

    result = CliRunner().invoke(clean, ["--cluster", str(tmp_path / "cluster.json")])

    assert result.exit_code == 0, result.output
    assert run_id not in result.output
    assert sorted(cache.iterdir()) == before


class SharedHome(ScriptedTransport):
    """A host that shows the state folders of the sweep's own programs, and what is left of a dead run of its own."""

    started: list[str]

    def __init__(self, name: str, started: list[str]) -> None:
        refused = {"exit_code": 1, "stdout": "", "stderr": "permission denied", "timed_out": False}
        super().__init__(
            [
                Reply("clock", {"wall_ns": 10**18}),
                Reply("find", self.found),
                Reply("alive", {"recorded": True, "alive": False}, times=0),
                Reply("reap", {"ended": [], "left": [], "undone": [], "not_undone": {}}, times=0),
                Reply("remove", {"removed": True}, times=0),
                Reply("run", refused, times=0),
            ]
        )
        self.name = name
        self.started = started

    def start(self, lease_s: float, state_dir: str) -> Pipes:
        self.started.append(state_dir)
        return super().start(lease_s, state_dir)

    def found(self, args: Mapping[str, Any]) -> Answer:
        assert (args["depth"], args["skip_closed"]) == (2, True)
        names = [path.rpartition("/")[2] for path in self.started] + [f"dead-{self.name}.node"]
        entries = [{"path": f"{name}/groups.json", "size": 1, "mtime_ns": 1} for name in names]
        return {"files": entries, "stale": 0, "too_deep": 0, "closed": [f"closed-{self.name}"]}


def test_a_sweep_has_a_folder_for_each_host_and_tells_what_it_may_not_look_into() -> None:
    started: list[str] = []
    hosts = {name: SharedHome(name, started) for name in ("node1", "node2")}

    swept = sweep_fleet(Fleet(hosts))

    assert len(set(started)) == 2
    assert {name: [ask.args["path"] for ask in host.asked if ask.do == "reap"] for name, host in hosts.items()} == {
        name: [f"{CACHE}/dead-{name}.node"] for name in hosts
    }
    assert [line.partition(";")[0] for line in swept.problems] == [
        f"{name}: {CACHE}/closed-{name} may not be looked into" for name in hosts
    ]
