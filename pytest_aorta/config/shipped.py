"""Shipped files: the sample configurations, their thresholds and the workload tree that come with the package."""

from __future__ import annotations

from pathlib import Path

from pytest_aorta.config.validation import near
from pytest_aorta.errors import ConfigError, Fault

_PACKAGE = Path(__file__).resolve().parent.parent
_PLACES = (_PACKAGE, _PACKAGE.parent)
FOLDERS = ("configs", "thresholds", "workloads")


def shipped(name: str) -> Path:
    """Give the path of a shipped file or folder, such as `configs/local_cpu.json` or `workloads`.

    It lies in the package when that was installed from a wheel, beside it in a checkout, and nowhere else.

    Raises:
        ConfigError: Nothing of that name is shipped.
    """
    parts = Path(name).parts
    if parts and parts[0] in FOLDERS and ".." not in parts:
        for place in _PLACES:
            if (place / name).exists():
                return place / name
    hint = near(Path(name).name, [path.name for path in (*shipped_configs(), *shipped_thresholds())])
    raise ConfigError([Fault(name, f"is not shipped with this package{hint or '; see `aorta config list`'}")])


def shipped_configs() -> list[Path]:
    """Give the shipped configurations by name."""
    return _files("configs")


def shipped_thresholds() -> list[Path]:
    """Give the shipped threshold files by name."""
    return _files("thresholds")


def _files(folder: str) -> list[Path]:
    for place in _PLACES:
        if found := sorted((place / folder).glob("*.json")):
            return found
    return []
