from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_aorta.cli_config import config
from pytest_aorta.config.schema import schema_text
from pytest_aorta.config.shipped import shipped, shipped_configs
from tests.config.config_site import MINIMAL, TWO_NODES, Site

SAMPLE = "mi3xx_aorta_profile_overlap_2gpu_single"
THRESHOLDS = "mi3xx_aorta_profile_overlap_2gpu_threshold.json"


def aorta(*arguments: object) -> Result:
    return CliRunner().invoke(config, [str(argument) for argument in arguments])


def test_list_names_every_sample_with_its_purpose() -> None:
    result = aorta("list")
    assert result.exit_code == 0
    for path in shipped_configs():
        line = next(line for line in result.stdout.splitlines() if line.startswith(path.name))
        assert len(line.split()) > 3


def test_show_prints_the_file_with_or_without_its_suffix() -> None:
    text = shipped("configs/local_cpu.json").read_text()
    assert aorta("show", "local_cpu").stdout == aorta("show", "local_cpu.json").stdout == text
    assert "12000" in aorta("show", THRESHOLDS).stdout


def test_show_of_an_unknown_name_hints() -> None:
    result = aorta("show", "local_cpo")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "did you mean local_cpu.json?" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_copy_takes_the_thresholds_along(tmp_path: Path) -> None:
    result = aorta("copy", SAMPLE, tmp_path / "mine.json")
    assert result.exit_code == 0
    assert json.loads((tmp_path / "mine.json").read_text())["threshold_json"] == THRESHOLDS
    assert (tmp_path / THRESHOLDS).read_text() == shipped(f"thresholds/{THRESHOLDS}").read_text()


def test_copy_into_a_folder_and_of_a_second_sample(tmp_path: Path) -> None:
    assert aorta("copy", "local_cpu", tmp_path).exit_code == 0
    assert aorta("check", tmp_path / "local_cpu.json").exit_code == 0
    assert aorta("copy", SAMPLE, tmp_path).exit_code == 0
    assert aorta("copy", SAMPLE.replace("single", "distributed"), tmp_path).exit_code == 0


def test_copy_refuses_to_overwrite_without_force(tmp_path: Path) -> None:
    target = tmp_path / "mine.json"
    target.write_text("precious")
    result = aorta("copy", SAMPLE, target)
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert target.read_text() == "precious"
    assert not (tmp_path / THRESHOLDS).exists()
    assert aorta("copy", SAMPLE, target, "--force").exit_code == 0
    assert target.read_text() != "precious"
    assert aorta("copy", SAMPLE, target).exit_code == 1


def test_copy_keeps_calibrated_thresholds(tmp_path: Path) -> None:
    (tmp_path / THRESHOLDS).write_text("calibrated")
    assert aorta("copy", SAMPLE, tmp_path / "mine.json").exit_code == 1
    assert (tmp_path / THRESHOLDS).read_text() == "calibrated"
    assert not (tmp_path / "mine.json").exists()


def test_copy_to_places_that_cannot_be(tmp_path: Path) -> None:
    assert "no folder" in aorta("copy", "local_cpu", tmp_path / "a" / "b.json").stderr
    assert "choose another name" in aorta("copy", "local_cpu", tmp_path / "local_cpu_threshold.json").stderr
    (tmp_path / THRESHOLDS).mkdir()
    assert "is a folder" in aorta("copy", SAMPLE, tmp_path / "x.json").stderr


def test_check_of_a_good_file(site: Site) -> None:
    path = site.write(
        "x.json",
        {**MINIMAL, "gates": [{"metric": "step_time_ms_p95", "kind": "max", "value": 3}], "cluster": TWO_NODES},
    )
    result = aorta("check", path)
    assert result.exit_code == 0
    assert result.stderr == (
        "aorta config: warning: a run will be refused: cluster.transport: ssh is not in this version; "
        "run on the node itself, without `cluster`\n"
    )
    assert result.stdout.startswith("ok")
    for words in (
        "aorta_distributed",
        "n0 (10.0.0.1)",
        "by ssh",
        "4 (2 on each node)",
        "torchrun",
        "step_time_ms_p95 max 3",
        "recorded",
    ):
        assert words in result.stdout


def test_check_refuses_a_gate_on_a_metric_that_no_run_has(site: Site) -> None:
    path = site.write("x.json", {**MINIMAL, "gates": [{"metric": "step_time_median", "kind": "max", "value": 3}]})
    result = aorta("check", path)
    assert result.exit_code == 1
    assert "no metric is called 'step_time_median'; did you mean step_time_ms_median?" in result.stderr


def test_check_tells_each_fault_on_a_line_of_stderr(site: Site) -> None:
    path = site.write("x.json", {"gpus_per_nod": 1, "schema_version": 1})
    result = aorta("check", path)
    assert (result.exit_code, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert all(str(path) in line for line in lines)
    assert "Traceback" not in result.stderr


def test_check_takes_the_options_of_a_run(site: Site) -> None:
    path = site.write("x.json", {**MINIMAL, "enforce_thresholds": True})
    cluster = site.write("c.json", {**TWO_NODES, "racks": 1})
    limits = site.write("t.json", {"expected_results": {"min_compute_ratio": 0.5}})
    result = aorta(
        "check",
        path,
        "--cluster",
        cluster,
        "--thresholds",
        limits,
        "--set",
        "gpus_per_node=3",
        "--suite",
        "distributed",
    )
    assert result.exit_code == 0
    assert "6 (3 on each node)" in result.stdout
    assert "min_compute_ratio 0.5" in result.stdout
    assert "warning: cluster.racks is ignored" in result.stderr


@pytest.mark.parametrize("kind", ["config", "cluster", "thresholds"])
def test_schema_prints_what_the_docs_hold(kind: str) -> None:
    assert aorta("schema", "--kind", kind).stdout == schema_text(kind)  # type: ignore[arg-type]
    assert aorta("schema").stdout == schema_text("config")


@pytest.mark.parametrize("arguments", [["schema", "--kind", "x"], ["nope"], ["check"], ["copy", "local_cpu"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    assert aorta(*arguments).exit_code == 2


@pytest.mark.parametrize("command", ["list", "show", "copy", "check", "schema"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = aorta(command, "--help")
    assert result.exit_code == 0
    assert f"aorta config {command}" in result.stdout
