"""Blocks: the bytes of a file in pieces of bounded size, gzip undone, nothing that could be decoded thrown away."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 1 << 19
_COMPRESSED_BYTES = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b\x08"
_HAS_CHECKSUM, _HAS_EXTRA, _HAS_NAME, _HAS_COMMENT = 2, 4, 8, 16
_MAX_HEADER_BYTES = 64 << 10

Warn = Callable[[str], None]


def blocks(path: Path, warn: Warn) -> Iterator[bytes]:
    """Give the decoded bytes of a plain or gzip file (told by its first bytes) in blocks of at most BLOCK_BYTES.

    Damage ends the blocks early and is told to `warn`; everything decoded before it is given.

    Raises:
        OSError: the file cannot be opened or read.
    """
    with path.open("rb", buffering=0) as file:
        start = file.read(len(_GZIP_MAGIC))
        file.seek(0)
        if start == _GZIP_MAGIC:
            yield from _Gzip(file, warn).blocks()
        else:
            while block := file.read(BLOCK_BYTES):
                yield block


class _Gzip:
    """A gzip file, read as raw deflate: zlib's own gzip mode drops its last output when the checksum is wrong."""

    def __init__(self, file: BinaryIO, warn: Warn) -> None:
        self._file = file
        self._warn = warn
        self._input = b""

    def blocks(self) -> Iterator[bytes]:
        while self._enter_member():
            inflater = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
            checksum = num_bytes = 0
            while not inflater.eof:
                if not self._input and not self._fill():
                    self._warn("gzip data is cut off")
                    return
                before = inflater.copy()
                try:
                    block = inflater.decompress(self._input, BLOCK_BYTES)
                except zlib.error as error:
                    if rest := _decoded_before_error(before, self._input):
                        yield rest
                    self._warn(f"gzip data is damaged ({error})")
                    return
                self._input = inflater.unconsumed_tail
                checksum = zlib.crc32(block, checksum)
                num_bytes += len(block)
                if block:
                    yield block
            self._input = inflater.unused_data
            if not self._leave_member(checksum, num_bytes):
                return

    def _fill(self, size_bytes: int = 1) -> bool:
        """Read on until `size_bytes` of input are there; False at the end of the file."""
        while len(self._input) < size_bytes:
            more = self._file.read(_COMPRESSED_BYTES)
            if not more:
                return False
            self._input += more
        return True

    def _enter_member(self) -> bool:
        """Step over a member's header (RFC 1952); False when the file ends, also in zeros used as padding."""
        while self._fill() and self._input[:1] == b"\0":
            self._input = self._input.lstrip(b"\0")
        if not self._input:
            return False
        self._fill(_MAX_HEADER_BYTES)
        if self._input[:3] != _GZIP_MAGIC or len(self._input) < 10:
            self._warn("bytes that are no gzip follow the gzip data")
            return False
        flags, position = self._input[3], 10
        if flags & _HAS_EXTRA:
            position += 2 + int.from_bytes(self._input[position : position + 2], "little")
        for flag in (_HAS_NAME, _HAS_COMMENT):
            if flags & flag:
                position = self._input.find(b"\0", position) + 1 or len(self._input)
        self._input = self._input[position + (2 if flags & _HAS_CHECKSUM else 0) :]
        return True

    def _leave_member(self, checksum: int, num_bytes: int) -> bool:
        """Compare checksum and length (modulo 2^32) of a member's trailer; False when nothing follows it."""
        if not self._fill(8):
            self._warn("gzip data is cut off")
            return False
        if int.from_bytes(self._input[:4], "little") != checksum:
            self._warn("gzip checksum does not match")
        if int.from_bytes(self._input[4:8], "little") != num_bytes % (1 << 32):
            self._warn("gzip length does not match")
        self._input = self._input[8:]
        return True


def _decoded_before_error(inflater: zlib._Decompress, compressed: bytes) -> bytes:
    """Decode once more in small steps, to keep what lies before the damage."""
    decoded = b""
    for position in range(len(compressed)):
        try:
            decoded += inflater.decompress(compressed[position : position + 1])
        except zlib.error:
            break
    return decoded
