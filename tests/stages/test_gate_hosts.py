"""The threshold stage: which host a gate names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.metric import Metric, RankValue
from pytest_aorta.run.products import Result
from pytest_aorta.stages.thresholds import validate_thresholds
from tests.run.test_context import context


@pytest.mark.parametrize(("launcher", "host"), [("torchrun", "n2"), ("none", None)])
def test_a_gate_names_a_host_only_where_torchrun_placed_the_ranks(
    tmp_path: Path, launcher: str, host: str | None
) -> None:
    run = context(
        tmp_path,
        Fleet({}),
        cluster={"transport": "local", "node_dict": {name: {"vpc_ip": "127.0.0.1"} for name in ("n1", "n2")}},
        workload={"command": ["train.py"], "launcher": launcher, "traces": "out/*"},
        gates=[{"metric": "step_time_ms_median", "kind": "max", "value": 5, "over": "each"}],
        enforce_thresholds=True,
    )
    values = (RankValue(rank=0, value=1.0), RankValue(rank=1, value=9.0))
    run.folder.write_metrics({"step_time_ms_median": Metric(value=5.0, unit="ms", source="x", per_rank=values)})

    checks = validate_thresholds(run, Result(source="x", num_profiled_steps=3, ranks=())).checks

    assert [check.host for check in checks if check.failed] == [host]
