"""The threshold file: found beside the configuration, read, checked."""

from __future__ import annotations

from pathlib import Path

from pytest_aorta.config.document import (
    PathFault,
    Source,
    Table,
    first_faults,
    is_file,
    located,
    path_text,
    read,
    shortened,
)
from pytest_aorta.config.model import ThresholdFile, Thresholds
from pytest_aorta.config.validation import examine
from pytest_aorta.errors import ConfigError, Fault

PATTERN = "*threshold.json"


def find(
    reference: str, config_path: Path, cwd: Path, *, label: str, needed: bool, enforced: bool = True
) -> Path | None:
    """Find the file that `threshold_json` names, or the single one beside the configuration.

    A reference is looked up in the configuration's folder first, then as a path by itself. Without a reference and
    without a file the answer is None, unless one is `needed`; so it is with several where none is `enforced`.

    Raises:
        ConfigError: It is nowhere, or several lie beside the configuration.
    """
    folder = config_path.parent
    if reference:
        tried = dict.fromkeys((located(reference, folder), located(reference, cwd)))
        for path in tried:
            if is_file(path):
                return path
        places = " and ".join(shortened(str(path)) for path in tried)
        raise _wrong(
            f"{label}: threshold_json", f"seen {shortened(reference)!r}, but there is no such file; tried {places}"
        )
    beside = sorted(path for path in folder.glob(PATTERN) if is_file(path) and path != config_path)
    if len(beside) > 1 and not enforced:
        return None
    if len(beside) > 1:
        names = ", ".join(path.name for path in beside)
        raise _wrong(
            f"{label}: threshold_json",
            f"ambiguous: {len(beside)} files {PATTERN} in {folder} ({names}), expected one; "
            "name it in threshold_json or by --aorta-thresholds",
        )
    if not beside and needed:
        raise _wrong(
            f"{label}: threshold_json",
            f"is empty, and no file {PATTERN} was found in {folder}; add one, set gates, or set enforce_thresholds "
            "to false",
        )
    return beside[0] if beside else None


def check(source: Source) -> Thresholds:
    """Read the limits of a threshold file.

    Raises:
        ConfigError: Every fault of the file.
    """
    return from_document(source.document, source.label)


def from_document(document: Table, label: str) -> Thresholds:
    """Read the limits of a threshold document; `label` names it in messages.

    Raises:
        ConfigError: Every fault of the document.
    """
    file, faults = examine(ThresholdFile, document, noun="threshold")
    if file is None:
        raise ConfigError(first_faults((_told(fault, label) for fault in faults), label))
    return file.expected_results


def load_thresholds(path: Path, label: str | None = None) -> Thresholds:
    """Read a threshold file by its path, as for judging a stored run again.

    Raises:
        ConfigError: The file cannot be read, or every fault in it.
    """
    return check(read(path, label or str(path)))


def _told(fault: PathFault, label: str) -> Fault:
    return Fault(f"{label}: {path_text(fault.path)}", fault.message)


def _wrong(where: str, message: str) -> ConfigError:
    return ConfigError([Fault(where, message)])
