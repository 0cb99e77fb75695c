"""Bundle: a run's reports in one archive that can be sent by mail; links between them work after extraction."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

LISTS = ("verdict.json", "failing_nodes.txt", "good_nodes.txt")


def bundle_name(stem: str, moment: datetime) -> str:
    """Give the archive's name: `<suite>_<YYYY-mm-ddTHHMMSS>.zip`."""
    return f"{stem}_{moment:%Y-%m-%dT%H%M%S}.zip"


def write_bundle(
    target: Path, folder: Path, stem: str, run_record: Path | None = None, *, evidence: Sequence[Path] = ()
) -> tuple[str, ...]:
    """Pack the reports of a suite from the report folder, and the run's record; gives what was packed.

    The page stands at the root, what it links to in `<stem>_html/`, which is flat, and each folder of `evidence` in
    `evidence/`. Traces are not among it. The archive appears whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    partial = target.with_name(f".{target.name}.part")
    packed = []
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for name, path in (*_members(folder, stem, run_record), *_flat(evidence, "evidence")):
                archive.write(path, name)
                packed.append(name)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return tuple(packed)


def _members(folder: Path, stem: str, run_record: Path | None) -> Iterator[tuple[str, Path]]:
    """Give (name in the archive, file) of everything that is there; links are not followed."""
    for name in (f"{stem}.html", f"{stem}.xml", f"{stem}-gates.xml", f"{stem}.log", *LISTS):
        if _is_file(folder / name):
            yield name, folder / name
    yield from _flat([folder / f"{stem}_html"], "")
    if run_record is not None and _is_file(run_record):
        yield "run.json", run_record


def _flat(folders: Iterable[Path], below: str) -> Iterator[tuple[str, Path]]:
    """Give the files of folders, each under its folder's name."""
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            for path in sorted(folder.iterdir()):
                if _is_file(path):
                    yield str(PurePosixPath(below, folder.name, path.name)), path


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
