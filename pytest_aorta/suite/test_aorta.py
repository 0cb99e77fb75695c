"""The validation, as pytest sees it: one test a stage, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Perform = Callable[[str], None]


@pytest.mark.dependency(name="test_launch_container")
def test_launch_container(aorta: Perform) -> None:
    """Reach every host and start what the workload runs in."""
    aorta("test_launch_container")


@pytest.mark.dependency(name="test_clone_aorta")
def test_clone_aorta(aorta: Perform) -> None:
    """Put the workload's files on every host, or verify those that are there."""
    aorta("test_clone_aorta")


@pytest.mark.dependency(name="test_setup_rdma")
def test_setup_rdma(aorta: Perform) -> None:
    """Verify torchrun and the configured RDMA devices."""
    aorta("test_setup_rdma")


@pytest.mark.dependency(name="test_build_rccl")
def test_build_rccl(aorta: Perform) -> None:
    """Build the communication library, unless the configuration does without."""
    aorta("test_build_rccl")


@pytest.mark.dependency(name="test_run_benchmark")
def test_run_benchmark(aorta: Perform) -> None:
    """Run the workload on every host and scan the kernel logs of its window."""
    aorta("test_run_benchmark")


@pytest.mark.dependency(name="test_collect_traces")
def test_collect_traces(aorta: Perform) -> None:
    """Bring fresh traces and logs back."""
    aorta("test_collect_traces")


@pytest.mark.dependency(name="test_analyze")
def test_analyze(aorta: Perform) -> None:
    """Write optional kernel tables."""
    aorta("test_analyze")


@pytest.mark.dependency(name="test_parse_results")
def test_parse_results(aorta: Perform) -> None:
    """Turn traces and step logs into metrics."""
    aorta("test_parse_results")


@pytest.mark.dependency(name="test_validate_thresholds")
def test_validate_thresholds(aorta: Perform) -> None:
    """Hold the metrics against thresholds and gates."""
    aorta("test_validate_thresholds")


@pytest.mark.dependency(name="test_generate_report")
def test_generate_report(aorta: Perform) -> None:
    """Write the JSON report."""
    aorta("test_generate_report")


@pytest.mark.dependency(name="test_teardown")
def test_teardown(aorta: Perform) -> None:
    """Take away whatever the run made."""
    aorta("test_teardown")
