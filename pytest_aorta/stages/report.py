"""test_generate_report: write the run's JSON documents."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_aorta.config.settings import Settings
from pytest_aorta.run.conclusion import write_documents
from pytest_aorta.run.context import RunContext
from pytest_aorta.run.gating import Step
from pytest_aorta.run.products import Report, Result

ABSENT = "No parsed benchmark result available"


def generate_report(run: RunContext, result: Result) -> Report:
    """Write aorta_benchmark_report.json and verdict.json; both are written again when the run is closed."""
    return Report(files=write_documents(run))


def plan(settings: Settings) -> Iterator[Step]:
    """Say what would be written."""
    yield Step("here", f"write aorta_benchmark_report.json and verdict.json below {settings.output_dir}/<run-id>")
