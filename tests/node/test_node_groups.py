"""Process groups: whatever a group starts ends with it, and nothing else does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.errors import FleetError
from pytest_aorta.fleet.ask import Answer, Ask, Event
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.node.facts import boot_id, identity, pid_namespace
from pytest_aorta.node.files import prepare
from pytest_aorta.node.groups import reap
from pytest_aorta.node.processes import process
from pytest_aorta.node.requests import CommandError

AskNode = Callable[..., Answer]
Start = Callable[..., int]
Said = Callable[[str], str]
Gone = Callable[[int], None]
Until = Callable[[Callable[[Event], bool]], list[Event]]

COUNTING = {"boot_id": boot_id(), "pid_namespace": pid_namespace()}
MACHINE = {"identity": identity(), "hostname": socket.gethostname()}
DEAF = "trap '' TERM; echo ready $$; while :; do sleep 0.1; done"


def exited(event: Event) -> bool:
    return event.kind == "exited"


@pytest.mark.parametrize(
    ("script", "exit_code", "number"), [("exit 0", 0, None), ("exit 13", 13, None), ("kill -9 $$", None, 9)]
)
def test_an_exit_code_and_a_signal_are_told_apart(
    start: Start, until: Until, script: str, exit_code: int | None, number: int | None
) -> None:
    start("g", script)
    data = until(exited)[-1].data
    assert (data["name"], data["exit_code"], data["signal"]) == ("g", exit_code, number)


def test_a_group_ends_on_request(start: Start, ask: AskNode, until: Until, said: Said) -> None:
    start("g", "echo ready; exec sleep 1000")
    said("ready")
    assert ask("stop", names=["g"]) == {"stopped": {"g": "terminated"}, "left": []}
    assert until(exited)[-1].data["signal"] == signal.SIGTERM


def test_a_child_that_ignores_term_is_killed(start: Start, ask: AskNode, said: Said, gone: Gone) -> None:
    start("g", DEAF)
    pid = int(said("ready"))
    assert ask("stop", names=["g"], grace_s=0.3)["stopped"] == {"g": "killed"}
    gone(pid)


def test_a_stopped_process_ends_by_term(start: Start, ask: AskNode, said: Said) -> None:
    start("g", "echo ready; kill -STOP $$; sleep 1000")
    said("ready")
    assert ask("stop", names=["g"])["stopped"] == {"g": "terminated"}


def test_stopping_what_has_ended(start: Start, ask: AskNode, until: Until) -> None:
    start("g", "exit 0")
    until(exited)
    assert ask("stop", names=["g"]) == {"stopped": {"g": "ended"}, "left": []}
    assert ask("stop") == {"stopped": {"g": "ended"}, "left": []}


def test_stopping_what_was_never_started(fleet: Fleet) -> None:
    with pytest.raises(FleetError, match=r"there is no group 'x'; groups started here: none"):
        fleet.perform(Ask("stop", {"names": ["x"]})).or_raise()


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sh -c '{deaf}' & wait",
        "setsid sh -c '{deaf}' & sleep 1000",
        "(setsid sh -c '{deaf}' &) ; sleep 1000",
        "(setsid sh -c '{deaf}' >pid &) ; until [ -s pid ]; do sleep 0.1; done; cat pid; exit 0",
        "(env -i setsid /bin/sh -c '{deaf}' &) ; sleep 1000",
    ],
    ids=["child", "child of a busy leader", "orphan", "orphan of a leader that is gone", "orphan without environment"],
)
def test_a_session_of_its_own_is_no_escape(start: Start, fleet: Fleet, said: Said, gone: Gone, escape: str) -> None:
    start("g", escape.format(deaf='trap "" TERM; echo ready $$; while :; do sleep 0.1; done'))
    pid = int(said("ready"))
    fleet.perform(Ask("stop", {"grace_s": 0.2})).or_raise()
    if "env -i" in escape:  # nothing ties it to its group any more, but it is still ours
        fleet.close()
    gone(pid)


def test_only_the_named_group_ends(start: Start, ask: AskNode, said: Said) -> None:
    start("one", "setsid sleep 1000 & setsid sleep 1001 & wait")
    start("two", "echo ready; setsid sleep 1000 & wait")
    said("ready")
    before = ask("processes")["groups"]["two"]["descendants"]
    ask("stop", names=["one"])
    groups = ask("processes")["groups"]
    assert groups["one"] == {"pid": groups["one"]["pid"], "running": False, "descendants": []}
    assert groups["two"]["running"]
    assert {row["pid"] for row in groups["two"]["descendants"]} >= {row["pid"] for row in before}


def test_a_foreign_process_survives(start: Start, fleet: Fleet, said: Said) -> None:
    foreign = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        start("g", DEAF)
        said("ready")
        fleet.close()
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_a_name_is_free_again_when_its_group_has_ended(start: Start, until: Until, fleet: Fleet) -> None:
    start("g", "sleep 1000")
    with pytest.raises(FleetError, match="the group 'g' runs already as pid"):
        start("g", "true")
    fleet.perform(Ask("stop")).or_raise()
    until(exited)
    start("g", "exit 5")
    assert until(lambda event: exited(event) and event.data["exit_code"] == 5)


def test_a_log_that_cannot_be_written(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    args = {"name": "g", "argv": ["true"], "cwd": "/", "log": str(tmp_path / "file" / "log")}
    with pytest.raises(FleetError, match=r"cannot write the log .*/file/log: Not a directory"):
        fleet.perform(Ask("start", args)).or_raise()


def test_no_folder_is_made_and_no_link_is_written_through_for_a_log(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to("target")
    for log in (tmp_path / "gone" / "log", tmp_path / "link"):
        args = {"name": "g", "argv": ["echo", "x"], "cwd": "/", "log": str(log)}
        with pytest.raises(FleetError, match="cannot write the log"):
            fleet.perform(Ask("start", args)).or_raise()
    assert not (tmp_path / "gone").exists()
    assert (tmp_path / "target").read_text() == "precious"


RANKS = """
import os, signal, subprocess, sys, time
if "RANK" in os.environ:
    def say(words):
        os.write(1, f"{words} {os.environ['RANK']}\\n".encode())  # one write a line: the ranks share the log
    signal.signal(signal.SIGUSR1, lambda *_: say("stacks of"))
    say("ready")
else:
    for rank in ("0", "1"):
        env = {**os.environ, "RANK": rank, "LOCAL_RANK": rank}
        subprocess.Popen([sys.executable, "-c", os.environ["SCRIPT"]], env=env, start_new_session=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("rank", ["²", "9" * 5000, "x", ""])
def test_what_is_no_number_is_no_rank(fleet: Fleet, ask: AskNode, tmp_path: Path, rank: str) -> None:
    args = {
        "name": "g",
        "argv": ["bash", "-c", "sleep 60 & wait"],
        "cwd": str(tmp_path),
        "env": {"RANK": rank},
        "log": str(tmp_path / "log"),
    }
    fleet.perform(Ask("start", args)).or_raise()
    rows: list[dict[str, Any]] = []
    while not rows:
        rows = ask("processes")["groups"]["g"]["descendants"]
    assert [row["rank"] for row in rows] == [None]
    ask("stop")


def test_ranks_are_found_and_only_those_that_listen_are_signalled(
    fleet: Fleet, ask: AskNode, until: Until, tmp_path: Path
) -> None:
    args = {
        "name": "ranks",
        "argv": [sys.executable, "-c", RANKS],
        "cwd": str(tmp_path),
        "env": {"SCRIPT": RANKS},
        "log": str(tmp_path / "log"),
        "follow": True,
    }
    fleet.perform(Ask("start", args)).or_raise()
    seen: list[str] = []

    def collected(words: str) -> Callable[[Event], bool]:
        def fits(event: Event) -> bool:
            if event.kind == "lines":
                seen.extend(event.data["lines"])
            return {f"{words} 0", f"{words} 1"} <= set(seen)

        return fits

    until(collected("ready"))
    rows = ask("processes")["groups"]["ranks"]["descendants"]
    assert sorted((row["rank"], row["local_rank"]) for row in rows) == [(0, 0), (1, 1)]
    assert all("python" in row["argv0"] and row["cpu_s"] >= 0 for row in rows)
    signalled = ask("signal", name="ranks", signal="USR1")["signalled"]
    assert sorted(entry["rank"] for entry in signalled) == [0, 1]
    until(collected("stacks of"))
    assert ask("processes")["groups"]["ranks"]["running"]  # the parent has no handler: USR1 would have ended it


FORKED = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, f"{os.getpid()} stands\\n".encode()))
print("helper" if os.fork() == 0 else "leader", os.getpid(), flush=True)
while True:
    time.sleep(0.1)
"""


def test_a_forked_helper_does_not_answer_for_the_process_that_nobody_gave_a_rank(
    fleet: Fleet, ask: AskNode, said: Said, tmp_path: Path
) -> None:
    log = str(tmp_path / "log")
    args = {"name": "g", "argv": [sys.executable, "-c", FORKED], "cwd": str(tmp_path), "log": log, "follow": True}
    leader = fleet.perform(Ask("start", args)).or_raise()[fleet.hosts[0]]["pid"]
    said("helper")
    assert ask("signal", name="g", signal="USR1")["signalled"] == [{"pid": leader, "rank": None}]
    assert said(str(leader)) == "stands"


def test_the_kernel_logs_threads_so_all_of_them_are_told(fleet: Fleet, ask: AskNode, start: Start) -> None:
    many = "import threading; [threading.Thread(target=threading.Event().wait).start() for _ in range(3)]"
    leader = start("g", f"exec {sys.executable} -c '{many}'")
    (host,) = fleet.hosts
    threads: list[int] = []
    while len(threads) < 4:
        threads = ask("marked", token=fleet.token(host))["threads"]
    assert sorted(threads) == sorted(int(task.name) for task in Path(f"/proc/{leader}/task").iterdir())


def test_a_signal_without_a_name_is_refused(fleet: Fleet) -> None:
    with pytest.raises(FleetError, match="'NOPE' is no signal"):
        fleet.perform(Ask("signal", {"name": "g", "signal": "NOPE"})).or_raise()


def test_the_record_outlives_the_node_program(
    start: Start, fleet: Fleet, said: Said, gone: Gone, until: Until, tmp_path: Path
) -> None:
    leader = start("g", f"setsid sh -c '{DEAF.replace(chr(39), chr(34))}' & wait")
    deaf = int(said("ready"))
    record = json.loads((tmp_path / "state" / "groups.json").read_text())
    entry = process(leader)
    assert entry is not None
    assert record["groups"] == [{"name": "g", "pid": leader, "start_ticks": entry.start_ticks}]
    os.kill(record["node"]["pid"], signal.SIGKILL)
    assert "ended" in until(lambda event: event.kind == "lost")[-1].data["message"]
    answer = reap(str(tmp_path / "state"), grace_s=0.2)
    assert answer["recorded"]
    assert answer["left"] == []
    assert {leader, deaf} <= set(answer["ended"])
    gone(deaf)
    assert not (tmp_path / "state").exists()


def test_a_stopped_shell_that_started_the_program_ends_too(tmp_path: Path) -> None:
    state = tmp_path / "state"
    serve = f"{sys.executable} -m pytest_aorta.node --state-dir {state}; exit $?"
    shell = subprocess.Popen(["sh", "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert shell.stdout is not None
        shell.stdout.readline()
        record = json.loads((state / "groups.json").read_text())
        assert record["above"]["pid"] == shell.pid
        os.killpg(shell.pid, signal.SIGSTOP)
        assert reap(str(state), grace_s=0.2)["ended"] == [record["node"]["pid"]]
        shell.wait(10)
    finally:
        shell.kill()
        shell.communicate()


def test_a_shell_that_was_stopped_ends_with_the_program_that_leaves(tmp_path: Path) -> None:
    serve = f"{sys.executable} -m pytest_aorta.node --state-dir {tmp_path / 'state'}; exit $?"
    shell = subprocess.Popen(["sh", "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert shell.stdout is not None
        shell.stdout.readline()
        os.kill(shell.pid, signal.SIGSTOP)
        shell.communicate(timeout=20)  # the program leaves when its controller has gone
    finally:
        shell.kill()
        shell.communicate()


def test_a_record_of_another_process_ends_nothing(start: Start, fleet: Fleet, said: Said, tmp_path: Path) -> None:
    foreign = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        entry = process(foreign.pid)
        assert entry is not None
        folder = tmp_path / "old"
        folder.mkdir()
        wrong = {"pid": foreign.pid, "start_ticks": entry.start_ticks - 1}
        document = {"token": "none of ours", **COUNTING, "node": wrong, "groups": [{"name": "g", **wrong}]}
        (folder / "groups.json").write_text(json.dumps(document))
        assert reap(str(folder)) == {
            "recorded": True,
            "ended": [],
            "left": [],
            "undone": [],
            "not_undone": {},
        }
        assert foreign.poll() is None
        right = {"pid": foreign.pid, "start_ticks": entry.start_ticks}
        for other in ({"boot_id": "another boot"}, {"pid_namespace": "another container"}):
            folder.mkdir(exist_ok=True)
            before = {**document, "node": right, "machine": MACHINE, **other}
            (folder / "groups.json").write_text(json.dumps(before))
            assert reap(str(folder))["ended"] == []
            assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


@pytest.mark.parametrize("machine", [None, {**MACHINE, "hostname": "node2"}, {**MACHINE, "identity": "other"}])
@pytest.mark.parametrize("other", [{"boot_id": "of node2"}, {"pid_namespace": "of node2"}], ids=["boot", "container"])
def test_a_record_of_another_machine_is_left_to_that(
    ask: AskNode, tmp_path: Path, machine: dict[str, str] | None, other: dict[str, str]
) -> None:
    """Hosts may share a home, and the boot of another one says nothing about what lives there."""
    undo = {"name": "u", "argv": ["touch", str(tmp_path / "undone")], "timeout_s": 9}
    node = {"pid": 1, "start_ticks": 1}
    document = {"token": "t", **COUNTING, **other, "node": node, "groups": [], "undo": [undo]}
    record = tmp_path / "shared" / "groups.json"
    prepare(str(record.parent))
    record.write_text(json.dumps({**document, "machine": machine} if machine else document))
    where = machine["hostname"] if machine else "a machine that it does not name"
    for do in ("alive", "reap"):
        with pytest.raises(FleetError, match=f"groups.json is of a program on {where}, expected "):
            ask(do, path=str(record.parent))
    assert not (tmp_path / "undone").exists()
    assert record.exists()


def test_a_reboot_of_this_machine_has_ended_what_was_recorded_before(ask: AskNode, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    node = {"pid": os.getpid(), "start_ticks": 1}
    document = {"token": "t", **COUNTING, "boot_id": "before", "machine": MACHINE, "node": node, "groups": []}
    (tmp_path / "old" / "groups.json").write_text(json.dumps(document))
    assert ask("alive", path=str(tmp_path / "old")) == {"recorded": True, "alive": False}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"token": "t", "boot_id": "b", "node": 1, "groups": []}'])
def test_a_damaged_record_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "groups.json").write_text(text)
    with pytest.raises(CommandError, match="no record of a node program"):
        reap(str(tmp_path))


def test_no_record_is_nothing_to_do(ask: AskNode, tmp_path: Path) -> None:
    assert ask("reap", path=str(tmp_path / "absent")) == {
        "recorded": False,
        "ended": [],
        "left": [],
        "undone": [],
        "not_undone": {},
    }
