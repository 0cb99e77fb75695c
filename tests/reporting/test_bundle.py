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


def test_a_runs_files_are_packed_by_their_names_and_nothing_else(tmp_path: Path) -> None:
    pages = tmp_path / "s_html"
    (pages / "deeper").mkdir(parents=True)
    for name in ("s.html", "j.xml", "verdict.json", "other.html", "s_2020-01-01T000000.zip"):
        (tmp_path / name).write_text(name)
    (pages / "test_a.html").write_text("page")
    (pages / "deeper" / "x").write_text("x")
    (pages / "link").symlink_to("/etc/passwd")
    (tmp_path / "link.html").symlink_to("/etc/passwd")
    host = tmp_path / "elsewhere" / "node2"
    host.mkdir(parents=True)
    (host / "kernel.log").write_text("Xid")
    (host / "link").symlink_to("/etc/passwd")
    files = {name: tmp_path / name for name in ("s.html", "absent.xml", "link.html", "verdict.json")}

    packed = write_bundle(tmp_path / "b.zip", {**files, "s.xml": tmp_path / "j.xml"}, pages=pages, evidence=[host])

    assert packed == ("s.html", "verdict.json", "s.xml", "s_html/test_a.html", "evidence/node2/kernel.log")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert archive.testzip() is None
        assert tuple(archive.namelist()) == packed
        assert archive.read("s_html/test_a.html") == b"page"
        assert archive.read("s.xml") == b"j.xml"


def test_an_archive_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.html").write_text("x")
    with pytest.raises(OSError, match="No such file"):
        write_bundle(tmp_path / "absent" / "b.zip", {"s.html": tmp_path / "s.html"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.html"]
