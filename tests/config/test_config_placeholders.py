from __future__ import annotations

import getpass
from typing import Any

import pytest

from tests.config.config_site import CONTAINER, MINIMAL, TWO_NODES, Site

PATHS = {"shared_fs": "/s", "models_dir": "{shared_fs}/m", "log_dir": "{models_dir}/l", "hf_token_file": ""}

NESTED: dict[str, dict[str, Any]] = {
    "gpus_per_node": {"gpus_per_node": "<changeme>"},
    "paths.shared_fs": {"paths": {**PATHS, "shared_fs": "<ChangeMe>"}},
    "model.id": {"model": {"id": "x <CHANGEME>", "remote": 0}},
    "container.image": {"container": {**CONTAINER, "image": "<changeme>"}},
    "container.env.X": {"container": {**CONTAINER, "env": {"X": "<ChangeMe>"}}},
    "container.runtime.args.volumes[1]": {
        "container": {**CONTAINER, "runtime": {"args": {"volumes": ["/a:/b", "<changeme>:/mnt"]}}}
    },
    "multi_node.extra_env.IF": {"multi_node": {"extra_env": {"IF": "<changeme>"}}},
    "multi_node.extra_train_args[0]": {"multi_node": {"extra_train_args": ["--x=<changeme>"]}},
    "training_overrides.a.b": {"training_overrides": {"a.b": "<changeme>"}},
    "rccl.branch": {"rccl": {"branch": "<changeme>"}},
    "gates[0].metric": {"gates": [{"metric": "<changeme>", "kind": "max", "value": 1}]},
    "cluster.node_dict.n1.vpc_ip": {"cluster": {**TWO_NODES, "node_dict": {"n1": {"vpc_ip": "<changeme>"}}}},
    "cluster": {"cluster": "<changeme>.json"},
}


@pytest.mark.parametrize("where", NESTED)
def test_changeme_is_refused_with_its_path_and_no_other_fault(site: Site, where: str) -> None:
    faults = site.minimal_faults(**NESTED[where])
    assert list(faults) == [where]
    assert "<changeme>" in faults[where]


def test_changeme_is_refused_in_keys_and_in_threshold_files(site: Site) -> None:
    assert "this key" in site.minimal_faults(training_overrides={"<changeme>": 1})["training_overrides.<changeme>"]
    site.write("a_threshold.json", {"expected_results": {"max_avg_iteration_ms": "<changeme>"}})
    faults = site.minimal_faults()
    assert "<changeme>" in faults["a_threshold.json: expected_results.max_avg_iteration_ms"]


def test_a_placeholder_that_others_refer_to_is_told_once(site: Site) -> None:
    faults = site.minimal_faults(paths={**PATHS, "shared_fs": "/<changeme>"}, aorta_path="{paths.log_dir}/aorta")
    assert list(faults) == ["paths.shared_fs"]


def test_a_comment_may_speak_of_changeme(site: Site) -> None:
    site.minimal(_comment="Replace every <changeme>.")


def test_references_between_paths_are_followed(site: Site) -> None:
    settings = site.minimal(paths=PATHS, aorta_path="{paths.log_dir}/aorta", output_dir="{paths.shared_fs}/{user-id}")
    assert settings.config.aorta_path == "/s/m/l/aorta"
    assert str(settings.output_dir) == f"/s/{getpass.getuser()}"


def test_user_id_is_the_clusters_user_name_everywhere(site: Site) -> None:
    cluster = {**TWO_NODES, "username": "alice", "priv_key_file": "/home/{user-id}/.ssh/id"}
    settings = site.minimal(cluster=cluster, aorta_path="/data/{user-id}")
    assert settings.config.aorta_path == "/data/alice"
    assert settings.cluster.priv_key_file == "/home/alice/.ssh/id"


def test_a_cluster_whose_user_is_user_id_means_the_login_user(site: Site) -> None:
    settings = site.minimal(cluster={**TWO_NODES, "username": "{user-id}"}, aorta_path="/data/{user-id}")
    assert settings.cluster.username == getpass.getuser()
    assert settings.config.aorta_path == f"/data/{getpass.getuser()}"


def test_references_that_turn_in_a_circle_are_refused(site: Site) -> None:
    paths = {**PATHS, "shared_fs": "{models_dir}{models_dir}", "models_dir": "{shared_fs}{shared_fs}"}
    assert {"paths.shared_fs", "paths.models_dir"} <= set(site.minimal_faults(paths=paths))


@pytest.mark.parametrize("token", ["{paths.nothing}", "{home}", "{node-dir-name}", "{temp_dir}"])
def test_known_tokens_left_over_are_refused_even_in_opaque_fields(site: Site, token: str) -> None:
    assert list(site.minimal_faults(multi_node={"extra_env": {"X": token}})) == ["multi_node.extra_env.X"]


def test_other_tokens_are_refused_except_in_opaque_fields(site: Site) -> None:
    assert "{foo}" in site.minimal_faults(output_dir="{foo}")["output_dir"]
    site.minimal(
        multi_node={"extra_env": {"X": "{foo}"}, "extra_train_args": ["{foo}"], "extra_torchrun_args": ["{foo}"]},
        container={**CONTAINER, "env": {"X": "{foo}"}},
        training_overrides={"a": "{foo}"},
        workload={"command": ["sh", "-c", "echo ${HOME_OF}"]},
    )


def test_placeholder_faults_hide_secrets(site: Site) -> None:
    faults = site.faults({**MINIMAL, "multi_node": {"extra_env": {"HF_TOKEN": "hunter2 <changeme>"}}})
    assert "hunter2" not in str(faults)
