from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_aorta.reporting.bundle import bundle_name, write_bundle


def test_the_name_tells_the_suite_and_the_second() -> None:
    assert (
        bundle_name("aorta_single", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "aorta_single_2026-01-02T030405.zip"
    )


def test_reports_of_the_suite_are_packed_and_nothing_else(tmp_path: Path) -> None:
    pages = tmp_path / "s_html"
    (pages / "deeper").mkdir(parents=True)
    for name in ("s.html", "s.xml", "s-gates.xml", "s.log", "verdict.json", "other.html", "s_2020-01-01T000000.zip"):
        (tmp_path / name).write_text(name)
    (pages / "test_a.html").write_text("page")
    (pages / "deeper" / "x").write_text("x")
    (pages / "link").symlink_to("/etc/passwd")
    record = tmp_path / "run.json"
    record.write_text("{}")

    (tmp_path / "failing_nodes.txt").write_text("node2\n")
    host = tmp_path / "elsewhere" / "node2"
    host.mkdir(parents=True)
    (host / "kernel.log").write_text("Xid")
    (host / "link").symlink_to("/etc/passwd")

    packed = write_bundle(tmp_path / "b.zip", tmp_path, "s", record, evidence=[host])

    assert packed == (
        "s.html", "s.xml", "s-gates.xml", "s.log", "verdict.json", "failing_nodes.txt", "s_html/test_a.html",
        "run.json", "evidence/node2/kernel.log",
    )  # fmt: skip
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert archive.testzip() is None
        assert tuple(archive.namelist()) == packed
        assert archive.read("s_html/test_a.html") == b"page"


def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    assert write_bundle(tmp_path / "b.zip", tmp_path, "s", tmp_path / "absent.json") == ()


def test_an_archive_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.html").write_text("x")
    with pytest.raises(OSError, match="No such file"):
        write_bundle(tmp_path / "absent" / "b.zip", tmp_path, "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.html"]
