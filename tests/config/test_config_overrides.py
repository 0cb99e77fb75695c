from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.config_site import CONTAINER, MINIMAL, TWO_NODES, Site


def test_values_are_typed_and_objects_are_made_on_the_way(site: Site) -> None:
    settings = site.load(
        MINIMAL,
        sets=[
            "timeout_seconds=60",
            "multi_node.master_port=29500",
            "kernel_log.required=false",
            "base_config=a=b.yaml",
        ],
    )
    assert settings.config.timeout_seconds == 60
    assert settings.config.multi_node.master_port == 29500
    assert settings.config.kernel_log.required is False
    assert settings.config.base_config == "a=b.yaml"


def test_lists_and_objects_replace_what_is_there(site: Site) -> None:
    settings = site.load(MINIMAL, sets=['gates=[{"metric": "x", "kind": "max", "value": 2e-4}]'])
    assert settings.config.gates[0].value == 2e-4
    settings = site.load(MINIMAL, sets=['cluster={"transport": "local", "node_dict": {"a": {}}}'])
    assert settings.head.name == "a"


def test_below_free_maps_the_rest_of_the_path_is_one_key(site: Site) -> None:
    settings = site.load(
        {**MINIMAL, "container": CONTAINER},
        sets=["training_overrides.training.max_steps=5", "container.env.A=x", "multi_node.extra_env.B=1"],
    )
    assert settings.config.training_overrides == {"training.max_steps": 5}
    assert settings.environment == {"A": "x", "B": "1"}


def test_the_cluster_is_overridden_wherever_it_came_from(site: Site) -> None:
    site.write("c.json", TWO_NODES)
    assert site.load(MINIMAL, cluster=Path("c.json"), sets=["cluster.transport=slurm"]).cluster.transport == "slurm"
    assert site.load({**MINIMAL, "cluster": TWO_NODES}, sets=["cluster.username=bob"]).cluster.username == "bob"
    assert site.load(MINIMAL, sets=["cluster=c.json"]).hosts[1].name == "n1"
    made = site.load(MINIMAL, sets=["cluster.node_dict.x.vpc_ip=10.9.9.9", "cluster.transport=local"])
    assert made.head.address == "10.9.9.9"


def test_a_fault_in_an_override_names_the_option(site: Site) -> None:
    faults = site.faults(MINIMAL, sets=["gpus_per_node=two", "timeout_second=5", "cluster.transport=tcp"])
    assert 'seen "two"' in faults["gpus_per_node (set by --aorta-set gpus_per_node=two)"]
    assert "did you mean timeout_seconds?" in faults["timeout_second (set by --aorta-set timeout_second=5)"]
    assert "cluster.transport (set by --aorta-set cluster.transport=tcp)" in faults
    assert "cluster.node_dict" in faults


def test_an_option_with_a_secret_hides_it(site: Site) -> None:
    faults = site.faults(MINIMAL, sets=["multi_node.extra_env.HF_TOKEN=[77123]", "cluster.password=[1234567]"])
    assert any("extra_env.HF_TOKEN=<redacted>" in where for where in faults)
    assert "77123" not in str(faults)
    assert "1234567" not in str(faults)


@pytest.mark.parametrize(
    "text",
    [
        'multi_node={"extra_env":{"API_TOKEN":["S3cr3tZ"]}}',
        'multi_node.extra_env={"A":{"secret":"S3cr3tZ","z":1}}',
        'multi_node.extra_env={"A":{"secret":["S3cr3tZ"]}}',
        "multi_node.extra_env.API_TOKEN.x=S3cr3tZ",
        'multi_node={"extra_env":{"API_TOKEN":"S3cr3tZ"',
        'cluster={"password":"S3cr3tZ","node_dict":7}',
        'cluster.password={"x":"S3cr3tZ"}',
        "cluster.password.x=S3cr3tZ",
        'container={"runtime":{"args":{"registry":{"password":"S3cr3tZ"}}}}',
        'multi_node.extra_env={"A":{"secret":"S3cr3tZ"},"B C":"S3cr3tZ"}',
        'multi_node={"extra_env":{"A":{"secret":"S3cr3tZ"}},"master_port":"S3cr3tZ"}',
    ],
)
def test_no_secret_of_an_override_is_told(site: Site, text: str) -> None:
    faults = site.faults(MINIMAL, sets=[text])
    assert "S3cr3tZ" not in str(faults)
    assert faults


def test_a_secret_of_a_file_is_not_told_elsewhere(site: Site) -> None:
    env = {"A": {"secret": "S3cr3tZ"}, "B C": "x"}
    faults = site.faults({**MINIMAL, "multi_node": {"extra_env": env, "train_script": "/S3cr3tZ"}})
    assert 'seen the key "B C"' in faults["multi_node.extra_env.B C"]
    assert "<redacted>" in faults["multi_node.train_script"]
    assert "S3cr3tZ" not in str(faults)


@pytest.mark.parametrize("text", ["gpus_per_node", "=1", "a..b=1", ".a=1"])
def test_what_is_no_key_and_value_is_refused(site: Site, text: str) -> None:
    assert any("expected KEY=VALUE" in message for message in site.faults(MINIMAL, sets=[text]).values())


def test_a_value_cannot_be_set_inside_a_number(site: Site) -> None:
    faults = site.faults(MINIMAL, sets=["gpus_per_node.x=1"])
    assert "gpus_per_node is a number" in faults["--aorta-set gpus_per_node.x=1"]


def test_deep_values_and_repeated_keys_are_refused(site: Site) -> None:
    deep = "[" * 200 + "]" * 200
    assert "too deeply" in str(site.faults(MINIMAL, sets=[f"training_overrides.x={deep}"]))
    assert "more than once" in str(site.faults(MINIMAL, sets=['multi_node={"master_port": 0, "master_port": 0}']))


def test_an_override_fills_a_placeholder_and_settles_a_repeated_key(site: Site) -> None:
    settings = site.load(
        '{"schema_version": 1, "gpus_per_node": "<changeme>", "gpus_per_node": 1}',
        sets=["gpus_per_node=4", "enforce_thresholds=false"],
    )
    assert settings.config.gpus_per_node == 4


def test_a_number_names_an_entry_of_a_list(site: Site) -> None:
    gates = [{"metric": "a", "kind": "max", "value": 1}, {"metric": "b", "kind": "min", "value": 2}]
    settings = site.load({**MINIMAL, "gates": gates}, sets=["gates.0.value=0.1", "gates.1.metric=c"])
    assert [(gate.metric, gate.value) for gate in settings.config.gates] == [("a", 0.1), ("c", 2)]


@pytest.mark.parametrize("entry", ["2", "-1", "x", "9" * 5000])
def test_an_entry_that_is_not_there_says_how_lists_are_set(site: Site, entry: str) -> None:
    gates = [{"metric": "a", "kind": "max", "value": 1}] * 2
    (fault,) = site.faults({**MINIMAL, "gates": gates}, sets=[f"gates.{entry}.value=0.1"]).values()
    assert fault == "gates is a list, its entries are 0 to 1; a new entry comes with the whole list as JSON, KEY=[...]"
    (fault,) = site.faults(MINIMAL, sets=["gates=[]", f"gates.{entry}=1"]).values()
    assert "it is empty" in fault


def test_a_wrong_value_in_an_entry_names_the_option(site: Site) -> None:
    gates = [{"metric": "a", "kind": "max", "value": 1}]
    faults = site.faults({**MINIMAL, "gates": gates}, sets=["gates.0.value=big"])
    assert list(faults) == ["gates[0].value (set by --aorta-set gates.0.value=big)"]
