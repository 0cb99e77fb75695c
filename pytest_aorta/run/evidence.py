"""Evidence: how much each check counts, as the configuration says in `evidence`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pytest_aorta.checks import Check

# Every check that can be set to fail, warn or off, with the stage that makes it.
CHECKS: Mapping[str, str] = {
    "gpus": "test_launch_container",
    "free_space": "test_launch_container",
    "rccl_build": "test_build_rccl",
    "ranks": "test_run_benchmark",
    "kernel_log": "test_run_benchmark",
    "trace": "test_parse_results",
    "missing_ranks": "test_parse_results",
    "communication": "test_parse_results",
    "gpu_events": "test_parse_results",
    "weights_checksum": "test_parse_results",
    "step_log": "test_parse_results",
}
KERNEL_LOG, WARNINGS = "kernel_log", "kernel_log_warnings"
_NAME = re.compile(r"^\[evidence\] \(.*?check=(?P<name>\w+)")


def check_name(check: Check) -> str:
    """Give the name of an evidence check; empty for any other."""
    found = _NAME.match(check.label)
    return found["name"] if found is not None else ""


def weigh(checks: Sequence[Check], evidence: Mapping[str, object]) -> Iterator[Check]:
    """Give the checks as they count: `off` leaves a check out as not judged, `warn` takes its failure away."""
    for check in checks:
        name = check_name(check)
        how = evidence.get(name) if name else None
        if how == "off":
            reason = f"evidence.{name} is off"
            yield check.model_copy(update={"state": "not_judged", "reason": reason, "subtest": False})
        elif how == "warn" and check.failed:
            yield check.model_copy(update={"state": "warned", "subtest": False})
        else:
            yield check
