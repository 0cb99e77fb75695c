"""The kernel log: raw lines, the window, and why it could not be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_aorta.fleet.ask import Answer
from pytest_aorta.node.kernel import attempts, parse, read, refused

AskNode = Callable[..., Answer]

RAW = """<6>[    0.000000] Linux version 6.1
<4>[   10.500000] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!
<3>[   11.000000] first line of two
second line of two
<14>[   12.250000] systemd[1]: started
<189>[  13.000000] odd facility
"""


def test_lines_have_stamp_facility_and_level() -> None:
    entries = parse(RAW)
    assert entries[0] == {"stamp_s": 0.0, "facility": "kern", "level": "info", "text": "Linux version 6.1"}
    assert [(entry["facility"], entry["level"]) for entry in entries[1:]] == [
        ("kern", "warn"),
        ("kern", "err"),
        ("kern", "err"),
        ("user", "info"),
        ("23", "notice"),
    ]
    assert entries[3] == {**entries[2], "text": "second line of two"}


def test_decoded_lines_tell_the_kernel_from_programs() -> None:
    entries = parse(
        "kern  :info  : [    0.000000] Linux version 6.1\n"
        "kern  :err   : [   11.000000] first line of two\n"
        "                              second line of two\n"
        "user  :err   : [   12.250000] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n"
        "daemon:notice: [   13.000000] systemd[1]: started\n"
        "[   14.000000] a facility without a name\n"
    )
    assert [(entry["stamp_s"], entry["facility"], entry["level"]) for entry in entries] == [
        (0.0, "kern", "info"),
        (11.0, "kern", "err"),
        (11.0, "kern", "err"),
        (12.25, "user", "err"),
        (13.0, "daemon", "notice"),
        (14.0, "user", ""),
    ]
    assert [entry["text"] for entry in entries[1:4]] == [
        "first line of two",
        "second line of two",
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
    ]


def test_only_the_window_is_given() -> None:
    answer = read(RAW, 11.0, 100)
    assert (answer["status"], answer["dropped"]) == ("read", 0)
    assert [line["stamp_s"] for line in answer["lines"]] == [11.0, 11.0, 12.25, 13.0]


def test_of_too_many_lines_the_first_and_the_last_are_given() -> None:
    raw = "".join(f"<6>[{second:5d}.000000] line {second}\n" for second in range(100))
    answer = read(raw, 0.0, 4)
    assert [line["text"] for line in answer["lines"]] == ["line 0", "line 1", "line 98", "line 99"]
    assert answer["dropped"] == 96


def test_a_log_that_no_longer_reaches_back_says_so() -> None:
    raw = "<6>[  500.000000] oldest that is left\n"
    answer = read(raw, 400.0, 100)
    assert answer["status"] == "overwritten"
    assert answer["why"] == "the kernel log begins at 500.000 s, the window at 400.000 s after boot"
    assert len(answer["lines"]) == 1
    assert read(raw, 500.0, 100)["status"] == "read"


def test_a_log_without_a_line_was_cleared() -> None:
    answer = read("", 400.0, 100)
    assert (answer["status"], answer["lines"]) == ("cleared", [])


def test_lines_without_stamps_are_not_taken_for_a_quiet_log() -> None:
    answer = read("<6>Linux version 6.1\n<4>amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n", 400.0, 100)
    assert answer["status"] == "failed"
    assert "printk.time=1" in answer["why"]


@pytest.mark.parametrize("caller", ["[ T1234] ", " [ T1234] ", "[    C3] ", " [T1] "])
@pytest.mark.parametrize("level", ["<4>", "kern  :warn  : "])
def test_who_called_is_no_part_of_the_text(level: str, caller: str) -> None:
    (entry,) = parse(f"{level}[   12.500000]{caller}NVRM: The NVIDIA GPU 0000:4a:00.0\n")
    assert (entry["stamp_s"], entry["text"]) == (12.5, "NVRM: The NVIDIA GPU 0000:4a:00.0")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("dmesg: read kernel buffer failed: Operation not permitted", "not_permitted"),
        ("sudo: a password is required", "not_permitted"),
        ("Sorry, user ci is not allowed to execute '/bin/dmesg' as root on n1.", "not_permitted"),
        ("dmesg: unknown option -r", "failed"),
    ],
)
def test_why_it_could_not_be_read(text: str, status: str) -> None:
    answer = refused(text)
    assert (answer["status"], answer["why"], answer["lines"]) == (status, text, [])


def test_root_needs_no_sudo() -> None:
    assert attempts(is_root=True) == [["dmesg", "-x"], ["dmesg", "-r"]]
    by_sudo = ["sudo", "-n"]
    assert attempts(is_root=False) == [
        [*by_sudo, "dmesg", "-x"],
        ["dmesg", "-x"],
        [*by_sudo, "dmesg", "-r"],
        ["dmesg", "-r"],
    ]


def test_this_machine_answers_one_way_or_the_other(ask: AskNode) -> None:
    answer = ask("kernel_log", since_uptime_s=0.0, max_lines=10)
    assert answer["status"] in {"read", "not_permitted", "command_missing"}
    assert answer["boot_id"] == ask("clock")["boot_id"]
    assert answer["status"] != "read" or all(line["stamp_s"] >= 0 for line in answer["lines"])


def test_what_sudo_says_of_the_name_of_its_machine_is_no_cause() -> None:
    noise = "sudo: unable to resolve host n1: Temporary failure in name resolution\n"
    answer = refused(f"{noise}sudo: a password is required")
    assert (answer["status"], answer["why"]) == ("not_permitted", "sudo: a password is required")
