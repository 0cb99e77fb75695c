"""Bytes of plain and gzip files, whole and damaged."""

import gzip
from pathlib import Path

import pytest

from pytest_aorta.trace.blocks import BLOCK_BYTES, blocks

TEXT = b"".join(b"%d," % number for number in range(400_000))
COMPRESSED = gzip.compress(TEXT)


def read(path: Path, content: bytes) -> tuple[bytes, list[str]]:
    path.write_bytes(content)
    warnings: list[str] = []
    pieces = list(blocks(path, warnings.append))
    assert all(0 < len(piece) <= BLOCK_BYTES for piece in pieces)
    return b"".join(pieces), warnings


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        COMPRESSED,
        gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
        COMPRESSED + bytes(5000),
        # A header with extra field, name, comment and checksum.
        b"\x1f\x8b\x08\x1e" + COMPRESSED[4:10] + b"\x03\x00abc" + b"name\0" + b"comment\0" + b"hh" + COMPRESSED[10:],
    ],
    ids=["plain", "gzip", "two members", "zero padding", "every header field"],
)
def test_whole_files_are_given_whole(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "file", content) == (TEXT, [])


def test_a_wrong_checksum_loses_nothing(tmp_path: Path) -> None:
    damaged = COMPRESSED[:-8] + b"\0\0\0\0" + COMPRESSED[-4:]
    assert read(tmp_path / "file", damaged) == (TEXT, ["gzip checksum does not match"])


@pytest.mark.parametrize("length", [0, len(TEXT) - 1, len(TEXT) ^ 1 << 31])
def test_a_wrong_length_is_told(tmp_path: Path, length: int) -> None:
    damaged = COMPRESSED[:-4] + length.to_bytes(4, "little")
    assert read(tmp_path / "file", damaged) == (TEXT, ["gzip length does not match"])


def test_a_cut_file_gives_what_came_before_the_cut(tmp_path: Path) -> None:
    text, warnings = read(tmp_path / "file", COMPRESSED[: len(COMPRESSED) * 7 // 10])
    assert TEXT.startswith(text)
    assert len(text) > len(TEXT) // 2
    assert warnings == ["gzip data is cut off"]


def test_damage_in_the_middle_keeps_what_lies_before_it(tmp_path: Path) -> None:
    damage = len(COMPRESSED) * 3 // 10
    text, warnings = read(tmp_path / "file", COMPRESSED[:damage] + b"\xff" * 64 + COMPRESSED[damage + 64 :])
    num_right = next((at for at in range(len(text)) if text[at] != TEXT[at]), len(text))
    assert num_right > len(TEXT) // 4
    assert len(warnings) == 1
    assert warnings[0].startswith("gzip data is damaged")


def test_what_follows_the_gzip_data_is_told(tmp_path: Path) -> None:
    assert read(tmp_path / "file", COMPRESSED + b"<html>") == (TEXT, ["bytes that are no gzip follow the gzip data"])
