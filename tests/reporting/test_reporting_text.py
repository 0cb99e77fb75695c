from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.reporting.text import clean, cut_middle, one_line, show_seconds


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("a\x00b\x07c\x7fd\x9be", "a\ufffdb\ufffdc\ufffdd\ufffde"),
        ("50%\r100%\r\ndone", "50%\n100%\ndone"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("user\u202egnp.exe", "user\ufffdgnp.exe"),
        ("tab\tand\nline, ä, 漢, 🙂", "tab\tand\nline, ä, 漢, 🙂"),
    ],
)
def test_clean_leaves_nothing_a_page_must_not_hold(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_text_survives_xml_and_utf8(raw: str) -> None:
    element = ET.Element("t", value=clean(raw))
    element.text = clean(raw)
    back = ET.fromstring(ET.tostring(element, encoding="utf-8"))  # noqa: S314 made here
    assert (back.text or "") == clean(raw)
    assert clean(clean(raw)) == clean(raw)


def test_one_line_is_one_line_of_bounded_length() -> None:
    assert one_line("  two\n  lines\tand more ") == "two lines and more"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"


def test_cut_middle_keeps_both_ends_whole_lines_and_says_how_much_is_gone() -> None:
    text = "".join(f"line {number:03d}\n" for number in range(100))
    cut, omitted = cut_middle(text, 200)
    lines = cut.splitlines()
    assert lines[0] == "line 000"
    assert lines[-1] == "line 099"
    assert f"… {omitted} characters left out …" in lines
    kept = [line for line in lines if line.startswith("line")]
    assert all(len(line) == len("line 000") for line in kept)
    assert len(kept) * 9 + omitted == len(text)
    assert cut_middle(text, len(text)) == (text, 0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 s"), (0.42, "0.42 s"), (41.27, "41.3 s"), (725, "12 min 05 s"), (7440, "2 h 04 min")],
)
def test_show_seconds(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text
