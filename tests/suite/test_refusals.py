"""Bad input: exit 4, every fault named, nothing started."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest


def refused(rig: Any, *arguments: str) -> str:
    output = str(rig.run(*arguments, code=4))
    assert "Traceback" not in output, output
    assert not (rig.path / "aorta_results").exists()
    assert not (rig.path / "work").exists()
    return output


BROKEN = {
    "no JSON": ("{", ["config.json"]),
    "repeated key": ('{"schema_version": 1, "gpus_per_node": 2, "gpus_per_node": 4}', ["gpus_per_node"]),
    "wrong type": ('{"schema_version": 1, "gpus_per_node": "two"}', ["gpus_per_node", "two"]),
    "unknown field": ('{"schema_version": 1, "gpus_per_node": 2, "gpu_per_node": 1}', ["gpu_per_node", "did you mean"]),
    "placeholder": (
        '{"schema_version": 1, "gpus_per_node": 2, "container": {"runtime": {"args": {"volumes": ["<changeme>"]}}}}',
        ["container.runtime.args.volumes[0]", "changeme"],
    ),
    "NaN": ('{"schema_version": 1, "gpus_per_node": NaN}', ["gpus_per_node"]),
    "missing threshold file": (
        '{"schema_version": 1, "gpus_per_node": 2, "threshold_json": "nowhere.json"}', ["nowhere.json"],
    ),
    "several at once": (
        '{"schema_version": 2, "gpus_per_node": 0, "timeout_secs": 5, "gates": [{"metric": 1}]}',
        ["schema_version", "gpus_per_node", "timeout_secs", "gates[0]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_configuration(rig: Any, case: str) -> None:
    text, named = BROKEN[case]
    (rig.path / "config.json").write_text(text, "utf-8")

    output = refused(rig)

    assert all(part in output for part in named), output


def test_two_threshold_files_are_ambiguous(rig: Any) -> None:
    rig.configure(threshold_json="")
    (rig.path / "second_threshold.json").write_text("{}", "utf-8")

    output = refused(rig)

    assert "limits_threshold.json" in output
    assert "second_threshold.json" in output


def test_missing_configuration(rig: Any) -> None:
    output = rig.pytest("--aorta-config=absent.json", code=4)

    assert "absent.json" in output
    assert "Traceback" not in output


def test_bad_override(rig: Any) -> None:
    rig.configure()

    assert "--aorta-set gpus_per_nod=2" in refused(rig, "--aorta-set", "gpus_per_nod=2")


def test_gate_on_a_metric_that_no_run_has(rig: Any) -> None:
    rig.configure(gates=[{"metric": "step_time_median", "kind": "max", "value": 1}])

    assert "gates[0].metric: no metric is called 'step_time_median'; did you mean step_time_ms_median?" in refused(rig)


def test_unknown_evidence_and_parser(rig: Any) -> None:
    rig.configure(evidence={"kernel_logs": "off"}, analysis={"parser": "excel"})

    output = refused(rig)

    assert "evidence.kernel_logs: no check of this name in this version; did you mean kernel_log?" in output
    assert "analysis.parser: excel reads what the analysis script of a checkout writes" in output


def test_refusal_leaves_the_last_runs_reports_alone(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    before = files_of(rig)
    rig.configure(cluster={"transport": "slurm", "node_dict": {"n1": {}}})

    rig.run(code=4)

    assert files_of(rig) == before


def files_of(rig: Any) -> dict[Any, bytes]:
    return {path: path.read_bytes() for path in rig.reports.rglob("*") if path.is_file()}


def test_selecting_no_stage_leaves_the_last_runs_reports_alone(rig: Any) -> None:
    rig.configure()
    rig.run(code=0)
    before = files_of(rig)

    output = rig.run("-k", "no_such_stage", code=5)

    assert "no stage is selected; there are test_launch_container," in output
    assert files_of(rig) == before


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only"])
def test_showing_fixtures_of_stages_starts_no_run(rig: Any, option: str) -> None:
    rig.configure()
    rig.reports.mkdir()
    (rig.reports / "aorta_single.xml").write_text("of the run before", "utf-8")

    output = rig.run(option, code=0)

    assert "aorta_single::test_launch_container" in output
    assert "no stage is selected" not in output
    assert [path.read_text("utf-8") for path in rig.reports.iterdir()] == ["of the run before"]
    assert not (rig.path / "aorta_results").exists()


def test_two_runs_do_not_share_a_report_folder(rig: Any, waiter: Any) -> None:
    rig.configure("--hang-at", "5")
    first = rig.start()
    waiter.until("the first run has begun", (rig.reports / "last_run.json").exists)
    before = files_of(rig)

    output = rig.run(code=4)
    assert "--aorta-report-dir" in output
    assert "another run that is going on writes its reports there" in output
    after = files_of(rig)
    assert {path.name: after[path] for path in before if path.suffix == ".json"} == {
        path.name: before[path] for path in before if path.suffix == ".json"
    }
    assert not (rig.reports / "aorta_single.html").exists()

    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    rig.configure()
    rig.run(code=0)


def test_output_folder_that_cannot_be_written(rig: Any) -> None:
    rig.configure(output_dir=str(rig.path / "config.json" / "below-a-file"))

    output = rig.run(code=4)

    assert "output_dir" in output
    assert not (rig.path / "work").exists()


def test_work_folder_that_is_the_output_folder(rig: Any) -> None:
    rig.configure(work_dir=str(rig.path / "aorta_results" / ".." / "aorta_results"))
    assert "work_dir" in refused(rig)

    rig.configure(work_dir=str(rig.path / "aorta_results"))
    assert "which is output_dir, expected another folder" in refused(rig)


def test_report_folder_that_cannot_be_written(rig: Any) -> None:
    rig.configure()

    assert "--aorta-report-dir" in refused(rig, "--aorta-report-dir=config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            {"cluster": {"transport": "slurm", "node_dict": {"n1": {}, "n2": {}}}},
            "cluster.transport: slurm is not in this version",
        ),
        (
            {"cluster": {"username": "me", "priv_key_file": "/absent", "node_dict": {"n1": {}, "n2": {}}}},
            "cluster.priv_key_file: seen /absent, no such file, expected a private key",
        ),
    ],
)
def test_what_this_version_cannot_do_is_refused_before_anything_starts(
    rig: Any, fields: dict[str, Any], named: str
) -> None:
    rig.configure(**fields)

    assert refused(rig).count(named) == 1


def test_work_folder_that_cannot_be_made_fails_the_launch(rig: Any) -> None:
    rig.configure(work_dir=str(rig.path / "config.json" / "below-a-file"))

    rig.run(code=1)

    assert rig.letters() == "FSSSSSSSSP"
    assert rig.reason("test_launch_container").startswith("could not measure: ")
    assert json.loads((rig.folder / "verdict.json").read_text("utf-8"))["fault"] == "rig"


SECRETS = {"HF_TOKEN": "tok-9f8e7d6c5b", "MY_API_KEY": "key-1a2b3c4d5e"}


def test_secrets_reach_no_file_and_no_output(rig: Any) -> None:
    shown = {"plain": {"secret": "hidden-value-31337"}}
    rig.configure(
        multi_node={"extra_env": {**SECRETS, **shown}},
        workload={"command": ["sh", "-c", 'echo "token is $HF_TOKEN and $plain"; exit 3'], "traces": "out/*"},
    )

    output = rig.run("-v", "-s", code=1)

    files = [path for path in rig.path.rglob("*") if path.is_file() and path.name != "config.json"]
    texts = [output, *(path.read_bytes().decode("utf-8", "replace") for path in files)]
    for secret in (*SECRETS.values(), "hidden-value-31337"):
        holders = [text[:80] for text in texts if secret in text]
        assert holders == []
