from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_aorta.config.load import Settings, restore
from pytest_aorta.errors import ConfigError
from tests.config.config_site import CONTAINER, MINIMAL, TWO_NODES, Site

SECRETS: dict[str, Any] = {
    **MINIMAL,
    "container": {**CONTAINER, "env": {"HF_TOKEN": "tok-123", "N_KEY": 98765, "PLAIN": "p", "S": {"secret": 'q"uote'}}},
    "multi_node": {"extra_env": {"PLAIN2": "has tok-123 inside"}},
    "cluster": {**TWO_NODES, "password": "s3cret!"},
}


@pytest.fixture
def secretive(site: Site) -> Settings:
    return site.load(SECRETS)


def test_the_workload_gets_its_secrets(secretive: Settings) -> None:
    assert secretive.environment == {
        "HF_TOKEN": "tok-123",
        "N_KEY": "98765",
        "PLAIN": "p",
        "S": 'q"uote',
        "PLAIN2": "has tok-123 inside",
    }


def test_secrets_are_all_named_also_as_json_shows_them(secretive: Settings) -> None:
    as_written = {'q\\"uote', "q%22uote", "s3cret%21"}
    assert set(secretive.secrets()) == {"tok-123", "98765", 'q"uote', "s3cret!", *as_written}


def test_each_line_of_a_secret_is_one(site: Site) -> None:
    text = "-----BEGIN KEY-----\r\nMIIabcdef\n  short\n\tMIIghijkl \n"
    found = site.minimal(multi_node={"extra_env": {"MY_KEY": text}}).secrets()
    assert {text, "-----BEGIN KEY-----", "MIIabcdef", "MIIghijkl"} <= set(found)
    assert not {"short", ""} & set(found)


@pytest.mark.parametrize("password", ["docker", "aorta", "none", "mnt", "cpu", "10.0.0.1", "single", "/data"])
def test_a_record_can_be_restored_whatever_word_is_secret(site: Site, password: str) -> None:
    loaded = site.load({**SECRETS, "cluster": {**TWO_NODES, "password": password}})
    again = restore(json.loads(json.dumps(loaded.document())))
    assert (again.suite, again.config.container is None) == ("distributed", False)


def test_nothing_that_is_written_holds_a_secret(secretive: Settings) -> None:
    written = [repr(secretive), repr(secretive.config.container), json.dumps(secretive.document())]
    written += [file.text for file in secretive.inputs]
    for secret in secretive.secrets():
        assert not any(secret in text for text in written)
    assert json.loads(secretive.inputs[0].text)["gpus_per_node"] == 2


def test_input_files_without_secrets_are_kept_as_they_are(site: Site) -> None:
    text = '{ "schema_version": 1, "gpus_per_node": 1,\n "enforce_thresholds": false }'
    assert site.load(text).inputs[0].text == text


def test_a_yaml_cluster_file_loses_its_password_and_stays_yaml(site: Site) -> None:
    site.write("c.yaml", "username: me\npassword: s3cret!\nnode_dict: {n0: {}, n1: {}}\n")
    text = site.minimal(cluster="c.yaml").inputs[1].text
    assert "password: <redacted>" in text
    assert "n1: {}" in text


def test_stored_settings_come_back_the_same(site: Site) -> None:
    site.write("x_threshold.json", {"expected_results": {"max_avg_iteration_ms": 10}})
    loaded = site.load(
        {
            **MINIMAL,
            "container": {**CONTAINER, "env": {"A": 1, "B": 1.5}},
            "cluster": {**TWO_NODES, "known_hosts": "/k"},
            "gates": [{"metric": "m", "kind": "within", "value": 1, "tolerance": 0.5, "over": "each"}],
            "training_overrides": {"a.b": [1, {"c": None}]},
            "workload": {"command": ["x"], "traces": "*.json"},
        }
    )
    stored = json.loads(json.dumps(loaded.document()))
    again = restore(stored)
    assert again.document() == stored
    assert again.config == loaded.config.model_copy(update={"output_dir": str(loaded.output_dir)})
    assert again.cluster == loaded.cluster
    assert again.thresholds == loaded.thresholds
    assert (again.suite, again.output_dir, again.warnings) == (loaded.suite, loaded.output_dir, loaded.warnings)
    assert [file.path for file in again.inputs] == [file.path for file in loaded.inputs]


def test_this_machine_and_redacted_settings_come_back_too(site: Site, secretive: Settings) -> None:
    assert restore(site.minimal().document()).cluster == site.minimal().cluster
    assert restore(secretive.document()).secrets() == ()


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"suite": "both"}, "config.suite"),
        ({"cluster": None}, "config.cluster.node_dict"),
        ({"thresholds": {"x": 1}}, "config.thresholds.x"),
        ({"gpus_per_node": 0}, "config.gpus_per_node"),
        ({"unknown": 0}, "config.unknown"),
    ],
)
def test_a_damaged_record_is_told(site: Site, changes: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        restore({**site.minimal().document(), **changes})
    assert [fault.where for fault in caught.value.faults] == [f"run.json: {where}"]


@pytest.mark.parametrize(
    ("fields", "skipped"),
    [
        ({}, True),
        ({"accelerator": "rocm"}, False),
        ({"accelerator": "cuda"}, True),
        ({"skip_rccl_build": False}, False),
    ],
)
def test_rccl_is_built_for_rocm_unless_said_otherwise(site: Site, fields: dict[str, Any], skipped: bool) -> None:
    assert site.minimal(**fields).skip_rccl_build is skipped


def test_work_folders(site: Site) -> None:
    assert site.minimal().work_dir("ab") == "~/.cache/pytest-aorta/ab"
    assert site.minimal(work_dir="/w").work_dir("ab") == "/w"
    slurm = {"transport": "slurm", "node_dict": {"n0": {}}}
    assert site.minimal(cluster=slurm, output_dir="/o").work_dir("ab") == "/o/ab/work"


def test_ranks_are_processes_times_hosts(site: Site) -> None:
    loaded = site.minimal(cluster=TWO_NODES, multi_node={"nproc_per_node": 3})
    assert (loaded.nproc_per_node, loaded.world_size) == (3, 6)
