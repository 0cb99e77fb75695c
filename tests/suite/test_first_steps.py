"""What somebody meets who uses the plugin for the first time: each message says what to do, in the words he typed."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

AFTER_LAUNCH = "a prior lifecycle stage failed: test_launch_container"


def test_metrics_versions_and_fields_are_told_at_once_with_the_file(rig: Any) -> None:
    gates = [{"metric": "nothing", "kind": "max", "value": 1}]
    rig.configure(gates=gates, gpus_per_node="two", cluster={"transport": "slurm", "node_dict": {"n": {}}})

    output = rig.run(code=4)

    for told in ("gates[0].metric: no metric", "gpus_per_node: seen", "cluster.transport: slurm is not in"):
        assert f"config.json: {told}" in output


def test_a_run_that_was_killed_is_named_once_when_it_is_taken_up(rig: Any) -> None:
    rig.configure("--no-traces")
    rig.run(code=1)
    record = rig.record()
    kept = {name: stage for name, stage in record["stages"].items() if name == "test_launch_container"}
    killed = {**record, "stages": kept, "finished": None, "verdict": None, "products": {}}
    (rig.folder / "run.json").write_text(json.dumps(killed), "utf-8")

    output = rig.pytest("--aorta-run=last", code=1)

    assert "COULD NOT MEASURE: test_parse_results: it needs what test_collect_traces gives, which run" in output
    assert "(its pytest was ended before it got there)" in output


def test_the_header_says_whose_limits_hold_where_none_are_named(rig: Any) -> None:
    rig.configure()
    said = "aorta: limits of limits_threshold.json, which lies beside the configuration"
    assert said not in rig.run("-k", "test_launch_container")
    rig.configure(threshold_json="")
    assert said in rig.run("-k", "test_launch_container")


def test_the_header_says_that_a_stored_run_is_judged_and_by_what(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    run_id = rig.folder.name

    assert f"aorta: judging run {run_id} by its own limits (from -k)" in rig.pytest("-k", "test_validate_thresholds")
    by_config = rig.run("-k", "test_validate_thresholds", code=0)
    assert f"aorta: judging run {run_id} by {rig.path / 'config.json'} (from --aorta-config)" in by_config


def test_a_stage_that_is_named_where_no_run_is_gets_one_line(rig: Any) -> None:
    output = rig.pytest("-k", "test_validate_thresholds", code=5)
    assert (
        "aorta: no aorta_reports/last_run.json here; give --aorta-config FILE or start in the folder of the run"
        in output
    )

    assert "last_run.json" not in rig.pytest("-k", "test_mine", code=5)
    assert "last_run.json" not in rig.pytest(code=5)


def test_a_cause_stands_once_among_the_stages_and_names_what_to_do(rig: Any) -> None:
    rig.configure(work_dir=str(rig.path / "config.json" / "below-a-file"))

    output = rig.run(code=1)

    lines = output.splitlines()
    skipped = [line for line in lines if line.startswith("[aorta") and "SKIPPED" in line]
    assert len(skipped) == 8
    assert all(line.endswith(AFTER_LAUNCH) for line in skipped)
    assert f"not judged: thresholds ({AFTER_LAUNCH})" in lines
    assert any(line.startswith("next: ") and line.endswith(", or set another work_dir") for line in lines), output
    # The record keeps the whole reason.
    assert "cannot be written" in rig.reason("test_clone_aorta")


def test_no_node_is_good_in_a_run_that_measured_nothing(rig: Any) -> None:
    rig.configure(workload={"command": ["sh", "absent.sh"], "traces": "out/*"})

    output = rig.run(code=1)

    assert (rig.reports / "good_nodes.txt").read_text("utf-8") == ""
    assert f"next: read {rig.folder / 'benchmark-node-0.log'} (of {socket.gethostname()})\n" in output


@pytest.mark.parametrize(
    ("fields", "test", "told", "step"),
    [
        (
            {"workload": {"command": ["python", "-u", "my_trainin.py", "--steps", "6"], "traces": "out/*"}},
            "test_clone_aorta",
            "/my_trainin.py; correct workload.command, or put the file there on each host",
            "workload.command",
        ),
        (
            {
                "workload": {"command": ["a.py"], "launcher": "torchrun", "traces": "o/*"},
                "python": "/opt/venv/bin/pythn",
            },
            "test_launch_container",
            "cannot run '/opt/venv/bin/pythn': No such file or directory",
            "set `python` to the full path of one that has torch there",
        ),
    ],
    ids=["script", "python"],
)
def test_a_name_that_is_misspelt_goes_on_the_configurations_account(
    rig: Any, fields: dict[str, Any], test: str, told: str, step: str
) -> None:
    rig.configure(**fields)

    output = rig.run(code=1)

    assert told in rig.reason(test)
    assert json.loads((rig.reports / "verdict.json").read_text("utf-8"))["fault"] == "config"
    (following,) = [line for line in output.splitlines() if line.startswith("next: ")]
    assert step in following
