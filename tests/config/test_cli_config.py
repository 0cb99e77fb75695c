from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_aorta.cli_config import config
from pytest_aorta.config.schema import schema_text
from pytest_aorta.config.shipped import shipped, shipped_configs
from pytest_aorta.trace.sources.choice import why_unusable
from tests.config.config_site import MINIMAL, TWO_NODES, Site

SAMPLE = "mi3xx_aorta_profile_overlap_2gpu_single"
HERE = {"transport": "local", "node_dict": {"n0": {"vpc_ip": "10.0.0.1"}}}
THRESHOLDS = "mi3xx_aorta_profile_overlap_2gpu_threshold.json"


def aorta(*arguments: object) -> Result:
    return CliRunner().invoke(config, [str(argument) for argument in arguments])


def test_list_names_every_sample_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = aorta("list")
    assert result.exit_code == 0
    for path in shipped_configs():
        line = next(line for line in result.stdout.splitlines() if line.startswith(f"  {path.name}"))
        assert len(line.split()) > 3


def test_a_sample_that_this_version_cannot_run_is_marked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    marked = [line.split()[0] for line in aorta("list").stdout.splitlines() if "not in this version" in line]
    copied = aorta("copy", "slurm_distributed", tmp_path)
    assert marked == ["slurm_distributed.json"]
    assert copied.exit_code == 0
    assert "the transport slurm is not in this version; a run with it is refused" in copied.stderr
    assert aorta("copy", "local_cpu", tmp_path).stderr == ""


def test_show_prints_the_file_with_or_without_its_suffix() -> None:
    text = shipped("configs/local_cpu.json").read_text()
    assert aorta("show", "local_cpu").stdout == aorta("show", "local_cpu.json").stdout == text
    assert "12000" in aorta("show", THRESHOLDS).stdout


def test_show_of_an_unknown_name_hints() -> None:
    result = aorta("show", "local_cpo")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("aorta config: local_cpo: no file of this name")
    assert "did you mean local_cpu.json?" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_is_named_and_not_there_is_exit_2(tmp_path: Path) -> None:
    assert aorta("copy", "nope", tmp_path).exit_code == 2
    assert aorta("check", tmp_path / "absent.json").exit_code == 2
    assert aorta("copy", "local_cpu", tmp_path).exit_code == 0
    assert aorta("check", tmp_path / "local_cpu.json", "--thresholds", tmp_path / "absent.json").exit_code == 2


def test_list_parts_configurations_from_threshold_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = aorta("list").stdout.splitlines()
    second = lines.index("threshold files, each named by a configuration:")
    assert lines[0] == "configurations:"
    assert lines.index("  local_cpu.json") < second < lines.index("  local_cpu_threshold.json")
    assert max(map(len, lines)) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    assert any(line.startswith("  local_cpu.json  ") for line in aorta("list").stdout.splitlines())


def test_copy_to_a_name_with_a_slash_makes_the_folder(tmp_path: Path) -> None:
    result = aorta("copy", "local_cpu", f"{tmp_path}/new/folder/")
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "local_cpu.json",
        "local_cpu_threshold.json",
    ]


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
        "x.json", {**MINIMAL, "gates": [{"metric": "step_time_ms_p95", "kind": "max", "value": 3}], "cluster": HERE}
    )
    result = aorta("check", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("ok")
    for words in (
        "aorta_single",
        "n0 (10.0.0.1)",
        "by local",
        "2 (2 on each node)",
        "none: enforce_thresholds is false",
    ):
        assert words in result.stdout


def test_check_names_the_limits_that_count_and_where_they_come_from(site: Site) -> None:
    site.write("other_threshold.json", {"expected_results": {"max_avg_iteration_ms": 7}})
    gates = [{"metric": "step_time_ms_p95", "kind": "max", "value": 3}]
    path = site.write("x.json", {**MINIMAL, "gates": gates})
    assert "iteration" not in aorta("check", path).stdout
    named = "thresholds   max_avg_iteration_ms 7 (of other_threshold.json), step_time_ms_p95 max 3\n"
    assert named in aorta("check", path, "--set", "enforce_thresholds=true").stdout
    assert named in aorta("check", path, "--aorta-thresholds", site.folder / "other_threshold.json").stdout


def test_check_takes_the_options_as_pytest_spells_them(site: Site) -> None:
    cluster = site.write("c.json", {"node_dict": {"localhost": {}}})
    result = aorta("check", site.write("x.json", MINIMAL), "--aorta-cluster", cluster, "--aorta-set", "gpus_per_node=5")
    assert result.exit_code == 0
    assert "5 (5 on each node)" in result.stdout


def test_check_warns_of_files_that_this_machine_lacks(site: Site) -> None:
    result = aorta("check", site.write("x.json", {**MINIMAL, "cluster": {**TWO_NODES, "transport": "ssh"}}))
    assert result.exit_code == 0
    assert (
        "a run on this machine will be refused: cluster.priv_key_file: seen /home/me/.ssh/id, no such" in result.stderr
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cluster": {**TWO_NODES, "transport": "slurm"}}, "cluster.transport: slurm is not in this version"),
        ({"evidence": {"foo": "off"}}, "evidence.foo: no check of this name"),
        (
            {"base_config": "config/tiny.yaml"},
            "base_config: the bundled workload has no file config/tiny.yaml, did you mean config/tiny_cpu.yaml?",
        ),
    ],
)
def test_what_this_version_cannot_do_is_not_ok(site: Site, fields: dict[str, object], told: str) -> None:
    gates = [{"metric": "nothing", "kind": "max", "value": 3}]
    result = aorta("check", site.write("x.json", {**MINIMAL, **fields, "gates": gates}))
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert "no metric is called 'nothing'" in result.stderr


def test_what_only_this_machine_lacks_is_a_warning(site: Site) -> None:
    if why_unusable("tracelens") == "":
        pytest.skip("TraceLens is installed here")
    result = aorta("check", site.write("x.json", {**MINIMAL, "analysis": {"parser": "tracelens"}}))
    assert result.exit_code == 0
    assert "warning: a run on this machine will be refused: analysis.parser" in result.stderr


@pytest.mark.parametrize(
    ("fields", "started"),
    [
        ({}, "torchrun: train.py --config config/distributed.yaml"),
        ({"multi_node": {"master_launch_mode": "script"}}, "script: bash scripts/rccl_exp.sh config/distributed.yaml"),
        ({"workload": {"command": ["sh", "a b.sh"]}}, "sh 'a b.sh' (once a node, as it is)"),
        ({"workload": {"command": ["my.py"], "launcher": "torchrun"}}, "torchrun: my.py"),
    ],
)
def test_check_says_what_starts_the_workload(site: Site, fields: dict[str, object], started: str) -> None:
    result = aorta("check", site.write("x.json", {**MINIMAL, **fields}))
    assert f"  started by   {started}\n" in result.stdout, result.stderr


def test_check_of_a_file_of_another_kind_says_where_it_belongs(site: Site) -> None:
    limits = site.write("strict.json", {"expected_results": {"min_compute_ratio": 0.5}})
    result = aorta("check", limits)
    assert result.exit_code == 1
    assert result.stderr == (
        f"aorta config: {limits}: is a threshold file, not a configuration; give it by --aorta-thresholds (of `aorta "
        "config check`: --thresholds) beside a configuration\n"
    )
    assert "is a cluster file" in aorta("check", site.write("c.json", TWO_NODES)).stderr


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
    cluster = site.write("c.json", {**HERE, "racks": 1})
    limits = site.write("t.json", {"expected_results": {"min_compute_ratio": 0.5}})
    options = ("--cluster", cluster, "--thresholds", limits, "--set", "gpus_per_node=3")
    result = aorta("check", path, *options, "--suite", "single")
    assert result.exit_code == 0
    assert "3 (3 on each node)" in result.stdout
    assert "min_compute_ratio 0.5" in result.stdout
    assert "warning: cluster.racks is ignored" in result.stderr
    assert "--aorta-suite" in aorta("check", path, *options, "--suite", "distributed").stderr


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
