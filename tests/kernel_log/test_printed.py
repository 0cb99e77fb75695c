from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.kernel_log.line import Line
from tests.kernel_log.printed import parse

TEXT = "amdgpu 0000:4a:00.0: amdgpu: GPU reset begin!"


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (TEXT, Line(0.0, "kern", "", TEXT)),
        (f"[   12.500000] {TEXT}", Line(12.5, "kern", "", TEXT)),
        (f"[ 1200.250000][ T9955] {TEXT}", Line(1200.25, "kern", "", TEXT)),
        (f"[  +0.000844] {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"[Sun Dec  1 14:54:40 2024] {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"[Sun Dec  1 14:54:40 2024] node-7 kernel: {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"kern  :err   : 2026-01-07T10:00:20,567890-06:00 {TEXT}", Line(0.0, "kern", "err", TEXT)),
        (f"kern  :warn  : [    3.500000] {TEXT}", Line(3.5, "kern", "warn", TEXT)),
        (f"daemon:info  : [    3.500000] {TEXT}", Line(3.5, "daemon", "info", TEXT)),
        (f"3,2212,4500000,-;{TEXT}", Line(4.5, "kern", "err", TEXT)),
        (f"30,2212,4500000,-;{TEXT}", Line(4.5, "daemon", "info", TEXT)),
        (f"<4>[    9.500000] {TEXT}", Line(9.5, "kern", "warn", TEXT)),
        (f"Nov 26 01:10:31 node-7 kernel: {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"Nov  6 01:10:31 node-7 kernel: [  681.250000] {TEXT}", Line(681.25, "kern", "", TEXT)),
        (f"Nov 26 01:10:31 node-7 train.py[812]: {TEXT}", Line(0.0, "user", "", TEXT)),
        (f"Nov 26 01:10:31 node-7 dockerd: {TEXT}", Line(0.0, "user", "", TEXT)),
        (f"2026-01-20T11:28:14 {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"2024-06-06T10:26:53.959180+08:00 node-7 kernel: {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"2024-06-06T10:26:53.959180+08:00 node-7 train[4]: {TEXT}", Line(0.0, "user", "", TEXT)),
        (f"08:22:19 kernel: {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"  kernel: {TEXT}", Line(0.0, "kern", "", TEXT)),
        (f"hypervisor [  764.250000] {TEXT}", Line(764.25, "kern", "", TEXT)),
        ("[    1.000000] a:b: [x] c", Line(1.0, "kern", "", "a:b: [x] c")),
        ("", Line(0.0, "kern", "", "")),
    ],
)
def test_every_printed_form_gives_the_same_message(printed: str, line: Line) -> None:
    assert parse(printed) == line


def test_the_kernels_own_words_about_a_process_stay() -> None:
    line = parse(
        "Oct 15 14:05:41 node-7 kernel: [  681.250000] demo[30] general protection ip:7f sp:7f error:0 in x[7f+1]"
    )

    assert line.facility == "kern"
    assert line.text.startswith("demo[30] general protection")


def test_records_of_programs_are_told_apart() -> None:
    assert parse(f"[    1.0] {TEXT}").from_kernel
    assert not parse(f"Nov 26 01:10:31 node-7 train[8]: {TEXT}").from_kernel


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    assert parse(text).text in text
