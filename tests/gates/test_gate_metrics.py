from __future__ import annotations

import math

import pytest

from pytest_aorta.gates.metrics import range_of, unit_of, write_limit, write_value


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("avg_iteration_time_ms", "ms"),
        ("step_time_ms_p95", "ms"),
        ("total_time_us", "us"),
        ("memory_peak_bytes", "bytes"),
        ("avg_compute_ratio", ""),
        ("num_comm_kernels", ""),
        ("kernel_log_notes", ""),
        ("tokens_per_second_per_gpu", ""),
    ],
)
def test_units_end_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_shares_lie_between_zero_and_one_and_spreads_do_not() -> None:
    assert range_of("gpu_idle_ratio") == (0.0, 1.0)
    assert range_of("time_variance_ratio") == (0.0, math.inf)
    assert range_of("loss")[0] == -math.inf


def test_values_and_limits_are_written_for_people() -> None:
    assert write_value("time_variance_ratio", 0.01234, "") == "1.23%"
    assert write_value("samples_per_second", 12.345, "") == "12.35"
    assert write_value("num_comm_kernels", 12.0, "") == "12"
    assert write_limit("avg_iteration_time_ms", 12000.0, "ms") == "12000 ms"
