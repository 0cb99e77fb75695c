"""The node program as a process: lines in, lines out, and what happens when they stop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet.local import LocalPipes
from pytest_aorta.node.processes import process
from pytest_aorta.node.protocol import Assembler, encode

PATIENCE_S = 60.0
HELLO = b'{"hello":"aorta-controller","version":1}\n'


class Program:
    """A node program that is fed bytes."""

    def __init__(self, state_dir: Path, lease_s: float = 120) -> None:
        argv = [sys.executable, "-m", "pytest_aorta.node", "--lease", f"{lease_s:g}", "--state-dir", str(state_dir)]
        self.pipes = LocalPipes(argv, str(state_dir))
        self.state_dir = state_dir
        self._assembler = Assembler()
        self._messages: list[dict[str, Any]] = []
        self._watchdog = threading.Timer(PATIENCE_S, self.pipes.kill)  # so that a reader cannot wait for ever
        self._watchdog.start()

    def end(self) -> None:
        self._watchdog.cancel()
        self._watchdog.join()
        self.pipes.kill()
        self.pipes.close()

    def say(self, data: bytes) -> None:
        self.pipes.write(data)

    def hear(self) -> dict[str, Any]:
        """Give the next message."""
        while not self._messages:
            data = self.pipes.read()
            assert data, f"the program ended: {self.pipes.last_words()}"
            self._messages = self._assembler.feed(data)
        return self._messages.pop(0)

    def ask(self, number: int, do: str, **args: Any) -> dict[str, Any]:
        """Ask and give what comes under the same number."""
        self.say(encode({"id": number, "do": do, "args": args}, number))
        while (message := self.hear()).get("id") != number:
            pass
        return message

    def record(self) -> dict[str, Any]:
        """Wait for the end of the program and give what it wrote."""
        while self.pipes.read():
            pass
        assert self.pipes.wait(PATIENCE_S)
        document: dict[str, Any] = json.loads((self.state_dir / "node-state.json").read_text())
        return document


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(lease_s: float = 120) -> Program:
        programs.append(Program(tmp_path / f"state{len(programs)}", lease_s))
        assert programs[-1].hear()["hello"] == "aorta-node"
        return programs[-1]

    yield start
    for program in programs:
        program.end()


@pytest.fixture
def program(launch: Callable[..., Program]) -> Program:
    started = launch()
    started.say(HELLO)
    return started


def test_a_million_lines_of_garbage(program: Program) -> None:
    shapes = (b"\n", b"hello\n", b"{\n", b'{"id":1}\n', b"\xff\xff\n", b'{"part":1}\n', b'{"id":"x","do":1}\n', b"[]\n")
    block = b"".join(shapes) * 1000
    for _ in range(125):
        program.say(block)
    counts = program.ask(1, "ping")["ok"]
    assert counts["garbage"] == 1_000_000
    assert program.ask(2, "clock")["ok"]["boot_id"]


def test_a_flood_of_requests_while_nobody_reads(program: Program) -> None:
    num_requests = 50_000
    writer = _in_thread(lambda: program.say(b'{"id":5,"do":"nonsense"}\n' * num_requests))
    for _ in range(num_requests):
        assert program.hear()["error"]["kind"] == "unknown"
    writer()


def test_a_request_cut_into_single_bytes(program: Program) -> None:
    for byte in b'{"id":7,"do":"ping"}\n':
        program.say(bytes([byte]))
    assert program.hear()["id"] == 7


def test_long_requests_and_answers_come_in_parts(program: Program) -> None:
    text = "".join(chr(32 + number % 90) for number in range(200_000))
    assert program.ask(3, "run", argv=["cat"], input=text)["ok"]["stdout"] == text


@pytest.mark.parametrize("greeting", [b"", b'{"hello":"aorta-controller","version":2}\n', b'{"hello":1}\n'])
def test_another_version_is_refused_and_the_right_one_then_heard(
    launch: Callable[..., Program], greeting: bytes
) -> None:
    program = launch()
    program.say(greeting)
    error = program.ask(1, "facts")["error"]
    assert error["kind"] == "bad_request"
    assert error["message"].endswith("this program speaks version 1")
    program.say(HELLO)
    assert "ok" in program.ask(2, "facts")


def test_an_unknown_command_names_the_known_ones(program: Program) -> None:
    error = program.ask(1, "fly")["error"]
    assert error["kind"] == "unknown"
    assert "there is no command 'fly'; known: ping, facts" in error["message"]


def test_a_long_command_holds_up_nothing(program: Program) -> None:
    program.say(encode({"id": 1, "do": "run", "args": {"argv": ["cat"], "input": "x"}}, 1))
    program.say(encode({"id": 2, "do": "run", "args": {"argv": ["sleep", "1000"]}}, 2))
    heard = {program.ask(number, "ping")["id"] for number in range(3, 30)}
    assert heard == set(range(3, 30))


def test_a_deadline_is_enforced_here_too(program: Program, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "groups.json")
    request = {"id": 1, "do": "reap", "args": {"path": str(tmp_path)}, "deadline_s": 0.2}
    program.say(encode(request, 1))
    assert program.hear()["error"] == {"kind": "timeout", "message": "reap: no answer within 0.2 s"}
    assert "ok" in program.ask(2, "ping")


def test_the_end_of_input_ends_everything(program: Program, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    args = {"name": "g", "argv": ["sleep", "1000"], "cwd": "/", "log": log}
    pid = program.ask(1, "start", **args)["ok"]["pid"]
    program.pipes.end_input()
    record = program.record()
    assert record["why"] == "the controller closed the channel"
    assert record["left"] == []
    assert record["groups"]["g"] == {**record["groups"]["g"], "pid": pid, "running": False, "signal": 15}


def test_silence_ends_the_lease(launch: Callable[..., Program], tmp_path: Path) -> None:
    program = launch(lease_s=0.5)
    program.say(HELLO)
    program.ask(1, "start", name="g", argv=["sleep", "1000"], cwd="/", log=str(tmp_path / "log"))
    record = program.record()
    assert record["why"] == "the controller was silent for 0.5 s"
    assert not record["groups"]["g"]["running"]


@pytest.mark.parametrize("number", [1, 2, 15])
def test_a_signal_ends_everything(program: Program, tmp_path: Path, number: int) -> None:
    program.ask(1, "start", name="g", argv=["sleep", "1000"], cwd="/", log=str(tmp_path / "log"))
    pid = json.loads((program.state_dir / "groups.json").read_text())["node"]["pid"]
    subprocess.run(["kill", f"-{number}", str(pid)], check=True)
    assert program.record()["left"] == []


def test_leaving_answers_what_is_still_asked(program: Program) -> None:
    program.say(encode({"id": 1, "do": "run", "args": {"argv": ["sleep", "1000"]}}, 1))
    program.say(encode({"id": 2, "do": "leave"}, 2))
    answers = {message["id"]: message for message in (program.hear(), program.hear())}
    assert set(answers[1]) & {"ok", "error"}  # whichever came first: the end of the command or that of the program
    assert answers[2] == {"id": 2, "ok": {"left": [], "not_undone": {}}}
    assert program.record()["why"] == "the controller left"


def test_a_program_that_can_write_nothing_any_more_ends_and_undoes_everything(tmp_path: Path) -> None:
    """When pytest is killed, sshd closes all three pipes; the state folder may be gone, or its disk full."""
    state, log = tmp_path / "state", str(tmp_path / "log")
    argv = [sys.executable, "-m", "pytest_aorta.node", "--state-dir", str(state)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stderr is not None
        node.stdin.write(HELLO)
        for number, (do, args) in enumerate(
            (
                ("undo", {"name": "u", "argv": ["touch", str(tmp_path / "undone")]}),
                ("start", {"name": "g", "argv": ["sleep", "1000"], "cwd": "/", "log": log}),
            )
        ):
            node.stdin.write(encode({"id": number, "do": do, "args": args}, number))
        said = b""
        while b'"pid"' not in said.partition(b'"id":1')[2]:
            said += node.stdout.read(1)
        pid = json.loads((state / "groups.json").read_text())["groups"][0]["pid"]
        shutil.rmtree(state)
        for end in (node.stderr, node.stdout, node.stdin):
            end.close()
        assert node.wait(PATIENCE_S) == 0
    assert not is_running(pid)
    assert (tmp_path / "undone").exists()


BROKEN = """
import sys
from pytest_aorta.node.commands import COMMANDS
from pytest_aorta.node.service import Service
from pytest_aorta.node.state import StateFolder

commands = {**COMMANDS, "break": lambda node, request: 1 / 0}
Service(commands, 0, 1, 60, StateFolder(sys.argv[1], "token")).serve()
"""


def test_an_error_of_the_program_itself_ends_and_undoes_everything_first(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    start = {"name": "g", "argv": ["sh", "-c", "echo $$; exec sleep 1000"], "cwd": "/", "log": log}
    asks = (
        ("undo", {"name": "u", "argv": ["touch", str(tmp_path / "undone")]}),
        ("undo", {"name": "bad", "argv": ["sh", "-c", "echo no daemon >&2; exit 1"]}),
        ("start", start),
        ("run", {"argv": ["sh", "-c", f"until [ -s {log} ]; do sleep 0.1; done"]}),
    )
    lines = b"".join(encode({"id": number, "do": do, "args": args}, number) for number, (do, args) in enumerate(asks))
    with subprocess.Popen(
        [sys.executable, "-c", BROKEN, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        node.stdin.write(HELLO + lines)
        said = b""
        while b'"id":3' not in said:
            said += node.stdout.read(1)
        node.stdin.write(encode({"id": 9, "do": "break"}, 9))
        _, errors = node.communicate(timeout=PATIENCE_S)
    assert b"ZeroDivisionError" in errors
    assert node.returncode == 1
    assert not is_running(int((tmp_path / "log").read_text()))
    assert (tmp_path / "undone").exists()
    record = json.loads((tmp_path / "groups.json").read_text())
    assert [entry["name"] for entry in record["undo"]] == ["bad"]
    ending = json.loads((tmp_path / "node-state.json").read_text())
    assert (ending["left"], ending["not_undone"]) == ([], {"bad": "no daemon"})


def is_running(pid: int) -> bool:
    entry = process(pid)
    return entry is not None and entry.alive


def test_what_is_printed_by_accident_stays_off_the_wire(program: Program) -> None:
    answer = program.ask(1, "run", argv=["sh", "-c", "ls -l /proc/$PPID/fd/1 /proc/$PPID/fd/2"])
    first, second = (line.rpartition("-> ")[2] for line in answer["ok"]["stdout"].splitlines())
    assert first == second


def test_a_state_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    argv = [sys.executable, "-m", "pytest_aorta.node", "--state-dir", str(tmp_path / "file" / "state")]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("aorta-node: the folder ")
    assert "Traceback" not in done.stderr


def test_reaping_from_the_command_line(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest_aorta.node", "--reap", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"recorded": False, "ended": [], "left": [], "undone": [], "not_undone": {}}


def _in_thread(work: Callable[[], None]) -> Callable[[], None]:
    thread = threading.Thread(target=work)
    thread.start()
    return thread.join


def test_a_folder_is_held_by_one_program_until_it_ends(launch: Callable[..., Program], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    first, second = launch(), launch()
    for program in (first, second):
        program.say(HELLO)
    assert first.ask(1, "hold", path=str(folder))["ok"] == {"held": True}
    assert first.ask(2, "hold", path=str(folder))["ok"] == {"held": True}
    refused = second.ask(1, "hold", path=str(folder))["error"]
    said = f"another run that is going on works in {folder}, or below it; wait for it, or name another folder"
    assert refused == {"kind": "failed", "message": said}
    inside, above = folder / "inside", tmp_path
    inside.mkdir()
    for other in (inside, above):
        assert "works in" in second.ask(4, "hold", path=str(other))["error"]["message"]
    beside = tmp_path / "beside"
    beside.mkdir()
    assert second.ask(5, "hold", path=str(beside))["ok"] == {"held": True}
    first.end()
    assert second.ask(2, "hold", path=str(folder))["ok"] == {"held": True}
    assert second.ask(3, "hold", path=str(folder / "absent"))["error"]["kind"] == "failed"
