"""Choice: which source other than our timeline summarizes a file, and whether it can be used on this machine."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pytest_aorta.errors import TraceError
from pytest_aorta.trace.summary import RankSummary

Other = Literal["tracelens", "excel", "basic"]
Parser = Literal["timeline"] | Other
Summarize = Callable[[Path, str], tuple[RankSummary, ...]]

_NEEDED = {"excel": "openpyxl is not installed here; pip install 'pytest-aorta[excel]'"}


def summarizer(parser: Other) -> Summarize:
    """Give the function that summarizes one file: `summarize_file(path, name)`, which may raise TraceError.

    Raises:
        TraceError: what the source needs is not installed here.
    """
    try:
        module = importlib.import_module(f"pytest_aorta.trace.sources.{parser}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pytest_aorta"):
            raise
        raise TraceError(f"{parser}: {_NEEDED.get(parser, f'{error.name} is not installed here')}") from error
    summarize: Summarize = module.summarize_file
    return summarize


def why_unusable(parser: Other) -> str:
    """Say why a source cannot be used on this machine; empty when it can."""
    try:
        summarizer(parser)
        if parser == "tracelens":
            importlib.import_module("pytest_aorta.trace.sources.tracelens").find()
    except TraceError as error:
        return str(error)
    return ""
