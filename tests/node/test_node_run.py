"""Commands run to their end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.errors import FleetError
from pytest_aorta.fleet.ask import Answer, Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.node.captures import OUTPUT_LIMIT_BYTES, Output

AskNode = Callable[..., Answer]


def test_exit_code_output_and_input(ask: AskNode) -> None:
    answer = ask("run", argv=["sh", "-c", "cat; echo problem >&2; exit 3"], input="given\n")
    assert (answer["exit_code"], answer["signal"], answer["timed_out"]) == (3, None, False)
    assert (answer["stdout"], answer["stderr"]) == ("given\n", "problem\n")


def test_a_signal_is_no_exit_code(ask: AskNode) -> None:
    answer = ask("run", argv=["sh", "-c", "kill -9 $$"])
    assert (answer["exit_code"], answer["signal"]) == (None, 9)


def test_much_input_to_a_command_that_does_not_read(ask: AskNode) -> None:
    assert ask("run", argv=["true"], input="x" * 1_000_000)["exit_code"] == 0


def test_much_input_comes_through(ask: AskNode) -> None:
    assert ask("run", argv=["wc", "-c"], input="x" * 1_000_000)["stdout"].strip() == "1000000"


def test_the_environment_lies_over_ours(ask: AskNode) -> None:
    answer = ask("run", argv=["env"], env={"AORTA_TEST_SET": "a b", "PATH": None})
    lines = answer["stdout"].splitlines()
    assert "AORTA_TEST_SET=a b" in lines
    assert not any(line.startswith("PATH=") for line in lines)


def test_a_deadline_ends_the_command(ask: AskNode) -> None:
    answer = ask("run", argv=["sh", "-c", "echo begun; exec sleep 1000"], timeout_s=0.2)
    assert (answer["timed_out"], answer["signal"], answer["stdout"]) == (True, 15, "begun\n")


def test_a_deadline_ends_what_ignores_it(ask: AskNode) -> None:
    answer = ask("run", argv=["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], timeout_s=0.2)
    assert (answer["timed_out"], answer["signal"]) == (True, 9)


def test_a_daemon_left_behind_does_not_hold_the_answer(ask: AskNode) -> None:
    answer = ask("run", argv=["sh", "-c", "sleep 1000 & echo started"])
    assert (answer["exit_code"], answer["stdout"]) == (0, "started\n")


def test_long_output_is_cut_in_the_middle(ask: AskNode) -> None:
    answer = ask("run", argv=["seq", "200000"])
    text = answer["stdout"]
    assert text.startswith("1\n2\n")
    assert text.endswith("\n200000\n")
    assert "bytes cut ...]" in text
    assert len(text) < OUTPUT_LIMIT_BYTES + 100


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_output_keeps_both_ends(chunk: int) -> None:
    data = bytes(range(32, 127)) * 10
    output = Output(100)
    for start in range(0, len(data), chunk):
        output.take(data[start : start + chunk])
    text = output.text().encode()
    assert text.startswith(data[:50])
    assert text.endswith(data[-50:])
    assert f"[... {len(data) - 100} bytes cut ...]".encode() in text


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"argv": ["/no/such/program"]}, "cannot run '/no/such/program': No such file or directory"),
        ({"argv": ["true"], "cwd": "/no/such/folder"}, "in '/no/such/folder': no such directory"),
        ({"argv": []}, "argv is empty"),
        ({"argv": "true"}, "argv is 'true', expected a list of strings"),
        ({"argv": ["true"], "env": {"A": 1}}, "env.A is 1, expected a string or null"),
        ({"argv": ["true"], "timeout_s": True}, "timeout_s is True, expected a number"),
        ({"argv": ["true"], "timeout_s": -1}, "timeout_s is -1, expected 0 or more"),
        ({"argv": ["true"], "cwd": "somewhere"}, "the path 'somewhere' is relative"),
        ({"argv": ["true", "a\0b"]}, "cannot run 'true'"),
        ({}, "run needs argv"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(fleet: Fleet, args: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FleetError, match="here: ") as caught:
        fleet.perform(Ask("run", args)).or_raise()
    assert sentence in str(caught.value)
    assert fleet.perform(Ask("run", {"argv": ["true"]})).or_raise()["here"]["exit_code"] == 0


def test_many_at_once(ask: AskNode, fleet: Fleet, tmp_path: Path) -> None:
    script = "\n".join(f"sh -c 'echo {n} >> {tmp_path}/seen' &" for n in range(50)) + "\nwait"
    assert ask("run", argv=["sh", "-c", script])["exit_code"] == 0
    assert len((tmp_path / "seen").read_text().split()) == 50
