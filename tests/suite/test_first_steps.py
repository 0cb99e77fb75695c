"""What somebody meets who uses the plugin for the first time: each message says what to do, in the words he typed."""

from __future__ import annotations

import json
from typing import Any


def test_metrics_versions_and_fields_are_told_at_once_with_the_file(rig: Any) -> None:
    gates = [{"metric": "nothing", "kind": "max", "value": 1}]
    rig.configure(gates=gates, gpus_per_node="two", container={"name": "box", "image": "image:1"})

    output = rig.run(code=4)

    for told in ("gates[0].metric: no metric", "gpus_per_node: seen", "container.runtime.name: docker is not in"):
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
