"""Bundle: a run's reports in one archive that can be sent by mail; links between them work after extraction."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

LISTS = ("verdict.json", "failing_nodes.txt", "good_nodes.txt")


def bundle_name(stem: str, moment: datetime) -> str:
    """Give the archive's name: `<suite>_<YYYY-mm-ddTHHMMSS>.zip`."""
    return f"{stem}_{moment:%Y-%m-%dT%H%M%S}.zip"


def write_bundle(
    target: Path, files: Mapping[str, Path], *, pages: Path | None = None, evidence: Sequence[Path] = ()
) -> tuple[str, ...]:
    """Pack a run's files, by their names in the archive, as far as they are there; gives what was packed.

    The page stands at the root, what it links to in the folder `pages`, which is flat, and each folder of `evidence`
    in `evidence/`. Traces are not among it. The archive appears whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    partial = target.with_name(f".{target.name}.part")
    packed = []
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for name, path in _members(files, pages, evidence):
                archive.write(path, name)
                packed.append(name)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return tuple(packed)


def _members(files: Mapping[str, Path], pages: Path | None, evidence: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Give (name in the archive, file) of everything that is there; links are not followed."""
    yield from ((name, path) for name, path in files.items() if _is_file(path))
    yield from _flat([pages] if pages is not None else [], "")
    yield from _flat(evidence, "evidence")


def _flat(folders: Iterable[Path], below: str) -> Iterator[tuple[str, Path]]:
    """Give the files of folders, each under its folder's name."""
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            for path in sorted(folder.iterdir()):
                if _is_file(path):
                    yield str(PurePosixPath(below, folder.name, path.name)), path


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
