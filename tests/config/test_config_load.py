from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_aorta.config.load import Settings, load
from pytest_aorta.config.model import RunConfig
from pytest_aorta.config.validation import field_places
from pytest_aorta.errors import ConfigError
from tests.config.config_site import CONTAINER, MINIMAL, TWO_NODES, Site


def test_defaults(site: Site) -> None:
    loaded = site.minimal()
    config = loaded.config
    assert config.enforce_thresholds is False
    assert (config.timeout_seconds, config.failure_grace_seconds, config.stall_seconds, config.lease_seconds) == (
        3600,
        30,
        120,
        120,
    )
    assert config.container is None
    assert config.aorta_path is None
    assert config.kernel_log.enabled
    assert config.kernel_log.required
    assert not config.analysis.enable_tracelens
    assert config.analysis.parser == "auto"
    assert loaded.nproc_per_node == loaded.world_size == 2
    assert loaded.output_dir == site.folder / "aorta_results"


def test_container_defaults_are_the_safe_ones(site: Site) -> None:
    container = site.minimal(container=CONTAINER).config.container
    assert container is not None
    arguments = container.runtime.args
    assert container.lifetime == "per_run"
    assert not arguments.privileged
    assert arguments.cap_add == ("SYS_PTRACE", "IPC_LOCK")
    assert (arguments.network, arguments.ipc) == ("host", "host")


def test_a_published_variant_loads_unchanged(site: Site) -> None:
    site.write("t_threshold.json", {"expected_results": {"max_avg_iteration_ms": 12000, "min_overlap_ratio": 0.0}})
    site.write("c.json", {**TWO_NODES, "orchestrator": "baremetal", "env_vars": {}})
    variant: dict[str, Any] = {
        "_comment": "x",
        "schema_version": 1,
        "enforce_thresholds": True,
        "paths": {"shared_fs": "/s/{user-id}", "models_dir": "{shared_fs}/m", "log_dir": "/l", "hf_token_file": ""},
        "model": {"id": "aorta", "remote": 0},
        "container": {
            "lifetime": "per_run",
            "name": "aorta",
            "image": "rocm/pytorch:x",
            "env": {"NCCL_DEBUG": "VERSION", "NCCL_MAX_NCHANNELS": 112},
            "runtime": {
                "name": "docker",
                "args": {
                    "network": "host",
                    "privileged": True,
                    "user": "root",
                    "devices": ["/dev/infiniband/rdma_cm"],
                    "volumes": ["{paths.shared_fs}/aorta:/mnt"],
                    "ulimit": ["memlock=-1"],
                    "group_add": ["video", 109],
                    "shm_size": "16g",
                    "tmpfs": [],
                },
                "tar": "x",
            },
        },
        "aorta_path": "{paths.shared_fs}/aorta",
        "gpus_per_node": 8,
        "training_overrides": {"training.max_steps": 15, "profiling.active": 6},
    }
    loaded = site.load(variant, cluster=Path("c.json"))
    assert loaded.suite == "distributed"
    assert loaded.world_size == 16
    container = loaded.config.container
    assert container is not None
    assert container.runtime.args.privileged
    assert container.runtime.args.group_add == ("video", 109)
    assert [warning.split()[0] for warning in loaded.warnings] == [
        "container.runtime.tar",
        "container.runtime.args.tmpfs",
        "cluster.orchestrator",
        "cluster.env_vars",
    ]


@pytest.mark.parametrize(
    ("fields", "where", "words"),
    [
        ({"schema_version": 2}, "schema_version", "seen 2, expected 1"),
        ({"schema_version": True}, "schema_version", "seen true, expected a whole number"),
        ({"gpus_per_node": 0}, "gpus_per_node", "a number above 0"),
        ({"gpus_per_node": "2"}, "gpus_per_node", 'seen "2", expected a whole number'),
        ({"gpus_per_node": 2.0}, "gpus_per_node", "seen 2.0, expected a whole number"),
        ({"gpus_per_node": True}, "gpus_per_node", "seen true, expected a whole number"),
        ({"gpus_per_node": None}, "gpus_per_node", "seen null, expected a whole number"),
        ({"gpus_per_node": 10**400}, "gpus_per_node", "expected a"),
        ({"timeout_seconds": -1}, "timeout_seconds", "a number above 0"),
        ({"stall_seconds": 0}, "stall_seconds", "a number above 0"),
        ({"enforce_thresholds": "yes"}, "enforce_thresholds", "true or false"),
        ({"accelerator": "tpu"}, "accelerator", "auto, rocm, cuda or cpu"),
        ({"aorta_path": "/"}, "aorta_path", "absolute directory"),
        ({"aorta_path": "a/b"}, "aorta_path", "absolute directory"),
        ({"aorta_path": "/a/../b"}, "aorta_path", "absolute directory"),
        ({"container_mount_path": ""}, "container_mount_path", "absolute directory"),
        ({"base_config": "/x"}, "base_config", "inside the repository"),
        ({"build_script": ""}, "build_script", "inside the repository"),
        ({"experiment_script": "a/../../b"}, "experiment_script", "inside the repository"),
        ({"training_overrides": {"a b": 1}}, "training_overrides.a b", "a key of letters"),
        ({"rccl": {"build_path": "x"}}, "rccl.build_path", "absolute directory"),
        ({"analysis": {"parser": "magic"}}, "analysis.parser", "timeline"),
        ({"analysis": {"gemm_script": ".."}}, "analysis.gemm_script", "inside the repository"),
        ({"multi_node": {"master_port": 80}}, "multi_node.master_port", "1024 to 65535"),
        ({"multi_node": {"master_port": 65536}}, "multi_node.master_port", "1024 to 65535"),
        ({"multi_node": {"nproc_per_node": -1}}, "multi_node.nproc_per_node", "at least 0"),
        ({"multi_node": {"extra_train_args": "x"}}, "multi_node.extra_train_args", "a list"),
        ({"multi_node": {"extra_env": {"1A": 1}}}, "multi_node.extra_env.1A", "variable's name"),
        ({"multi_node": {"extra_env": {"A": True}}}, "multi_node.extra_env.A", "seen true, expected text or a number"),
        ({"multi_node": {"extra_env": {"A": {"secre": "x"}}}}, "multi_node.extra_env.A.secret", "missing"),
        ({"model": {"id": "x"}}, "model.remote", "missing"),
        ({"paths": {"shared_fs": "", "models_dir": "", "log_dir": ""}}, "paths.hf_token_file", "missing"),
        ({"container": {**CONTAINER, "lifetime": "forever"}}, "container.lifetime", "no_launch, per_run or persistent"),
        ({"container": {**CONTAINER, "name": "a b"}}, "container.name", "container's name"),
        ({"container": {**CONTAINER, "_comment": "x"}}, "container._comment", "unknown field"),
        ({"container": []}, "container", "seen [], expected an object"),
        ({"workload": {"command": []}}, "workload.command", "at least this many entries: 1"),
        ({"workload": {"command": ["x"], "launcher": "mpi"}}, "workload.launcher", "torchrun or none"),
        ({"kernel_log": {"enabled": 1}}, "kernel_log.enabled", "true or false"),
        ({"gates": [{"metric": "m", "kind": "below", "value": 1}]}, "gates[0].kind", "max, min or within"),
        ({"output_dir": "a\0b"}, "output_dir", "NUL"),
        ({"output_dir": " "}, "output_dir", "not empty"),
    ],
)
def test_a_wrong_value_is_told_with_its_path(site: Site, fields: dict[str, Any], where: str, words: str) -> None:
    faults = site.minimal_faults(**fields)
    assert where in faults
    assert words in faults[where]


def test_a_value_that_fits_one_of_several_kinds_badly_is_told_once(site: Site) -> None:
    faults = site.minimal_faults(multi_node={"extra_env": {"A": {"secre": "x"}}})
    assert set(faults) == {"multi_node.extra_env.A.secret", "multi_node.extra_env.A.secre"}
    assert "did you mean secret?" in faults["multi_node.extra_env.A.secre"]


def test_a_missing_field_is_told(site: Site) -> None:
    assert set(site.faults({"enforce_thresholds": False})) == {"schema_version", "gpus_per_node"}


@pytest.mark.parametrize(
    ("fields", "where", "hint"),
    [
        ({"timeout_second": 1}, "timeout_second", "did you mean timeout_seconds?"),
        ({"nproc_per_node": 1}, "nproc_per_node", "did you mean multi_node.nproc_per_node?"),
        ({"multi_node": {"master_prt": 1}}, "multi_node.master_prt", "did you mean master_port?"),
        ({"rccl": {"zzz": 1}}, "rccl.zzz", "expected one of clone_url, branch, build_path"),
        ({"zzz": 1}, "zzz", "aorta config schema"),
        ({"container": {**CONTAINER, "imge": 1}}, "container.imge", "did you mean image?"),
        (
            {"gates": [{"metric": "m", "kind": "max", "value": 1, "limit": 2}]},
            "gates[0].limit",
            "expected one of metric",
        ),
    ],
)
def test_an_unknown_field_is_told_with_a_hint(site: Site, fields: dict[str, Any], where: str, hint: str) -> None:
    faults = site.minimal_faults(**fields)
    assert list(faults) == [where]
    assert hint in faults[where]


def test_repeated_keys_nan_and_halves_of_surrogates_are_told_with_their_paths(site: Site) -> None:
    faults = site.faults(
        '{"schema_version": 1, "gpus_per_node": 1, "gpus_per_node": 2, "enforce_thresholds": false,'
        '"rccl": {"branch": "a", "branch": "b"}, "stall_seconds": NaN, "output_dir": "\\ud800",'
        '"training_overrides": {"x": [-Infinity]}}'
    )
    assert set(faults) == {"gpus_per_node", "rccl.branch", "stall_seconds", "output_dir", "training_overrides.x[0]"}
    assert "more than once" in faults["gpus_per_node"]
    assert "seen NaN" in faults["stall_seconds"]
    assert "seen -Infinity" in faults["training_overrides.x[0]"]


def test_yaml_is_read_too(site: Site) -> None:
    site.write("run.yaml", "schema_version: 1\ngpus_per_node: 2\nenforce_thresholds: false\nstall_seconds: 2e1\n")
    assert site.load_at("run.yaml").config.stall_seconds == 20
    site.write("run.yaml", "schema_version: 1\ngpus_per_node: 2\nenforce_thresholds: no\n")
    with pytest.raises(ConfigError, match='enforce_thresholds: seen "no", expected true or false'):
        site.load_at("run.yaml")


@pytest.mark.parametrize(("suite", "other"), [("single", "distributed"), ("distributed", "single")])
def test_a_suite_that_does_not_fit_names_the_other(site: Site, suite: str, other: str) -> None:
    nodes: dict[str, Any] = {"cluster": TWO_NODES} if suite == "single" else {}
    faults = site.faults({**MINIMAL, **nodes}, suite=suite)
    assert f"--aorta-suite {other}" in faults["--aorta-suite"]
    assert site.load({**MINIMAL, **nodes}, suite=other).suite == other
    assert "expected single or distributed" in site.faults(MINIMAL, suite="both")["--aorta-suite"]


def test_output_folders_are_relative_to_where_pytest_started(site: Site) -> None:
    assert site.load(MINIMAL, output=Path("there")).output_dir == site.folder / "there"
    assert site.minimal(output_dir="/abs").output_dir == Path("/abs")


def test_a_document_can_stand_in_for_the_file(tmp_path: Path) -> None:
    loaded = load(Path("stored.json"), cwd=tmp_path, config_text=MINIMAL)
    assert loaded.config.gpus_per_node == 2
    with pytest.raises(ConfigError, match=r"stored\.json: the document given is not JSON"):
        load(Path("stored.json"), cwd=tmp_path, config_text={"x": object()})


def test_a_file_that_cannot_be_read_does_not_hide_faults_of_options(site: Site) -> None:
    with pytest.raises(ConfigError) as caught:
        site.load_at("absent.json", cluster=Path("no.json"), thresholds=Path("none.json"), sets=["x"], suite="y")
    assert {fault.where for fault in caught.value.faults} == {
        "absent.json",
        "no.json",
        "none.json",
        "--aorta-set x",
        "--aorta-suite",
    }


def test_every_field_has_a_sentence(site: Site) -> None:
    places = set(field_places(RunConfig))
    assert ("container", "runtime", "args", "registry", "username") in places
    schema = json.dumps(RunConfig.model_json_schema())
    assert schema.count('"description"') >= len(places)


_NAMES = st.sampled_from(sorted({str(place[-1]) for place in field_places(RunConfig)} | {"NCCL_MAX_NCHANNELS"}))
_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["<changeme>", "{user-id}", "{paths.log_dir}", "/a/b", "x.json", "~x/y", "\ud800", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | _NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(document=st.dictionaries(_NAMES, _ANY, max_size=5) | _ANY, complete=st.booleans())
def test_any_document_is_settings_or_a_config_error(site: Site, document: Any, complete: bool) -> None:
    if complete and isinstance(document, dict):
        document = {**MINIMAL, **document}
    site.write("run.json", json.dumps(document))
    with contextlib.suppress(ConfigError):
        loaded = site.load_at("run.json")
        assert isinstance(loaded, Settings)
        json.dumps(loaded.document(), allow_nan=False)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_is_settings_or_a_config_error(site: Site, text: str) -> None:
    (site.folder / "run.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError):
        site.load_at("run.json")


@pytest.mark.parametrize("work_dir", ["work", "./work", "~", "~me/work", "/", "/a/../b", "~/../x", ""])
def test_a_work_folder_that_depends_on_where_one_stands_is_refused(site: Site, work_dir: str) -> None:
    assert "expected an absolute directory" in site.minimal_faults(work_dir=work_dir)["work_dir"]


def test_a_work_directory_holds_no_control_characters(site: Site) -> None:
    assert "without control characters" in site.minimal_faults(work_dir="/data/a\nb")["work_dir"]


@pytest.mark.parametrize(
    "python", ["-c", "python3 -I", "/usr/bin/python3 -I", "my python", "", " ", "python3\n", "/a\nb"]
)
def test_what_is_no_python(site: Site, python: str) -> None:
    assert "one word without arguments" in site.minimal_faults(python=python)["python"]


@pytest.mark.parametrize("python", ["python3", "/opt/venv/bin/python3.12", "/opt/my env/bin/python"])
def test_pythons(site: Site, python: str) -> None:
    assert site.minimal(python=python).config.python == python


@pytest.mark.parametrize("work_dir", ["/data/work", "~/work", "~/"])
def test_a_work_folder(site: Site, work_dir: str) -> None:
    assert site.minimal(work_dir=work_dir).config.work_dir == work_dir


@pytest.mark.parametrize("field", ["traces", "log"])
@pytest.mark.parametrize("value", ["/etc/*", "../x", "a/../../x", ""])
def test_a_workloads_outputs_lie_below_its_folder(site: Site, field: str, value: str) -> None:
    faults = site.minimal_faults(workload={"command": ["x"], field: value})
    assert "expected a path below the workload's folder" in faults[f"workload.{field}"]


@pytest.mark.parametrize("command", [[""], [" ", "x"], []])
def test_a_workload_begins_with_a_program(site: Site, command: list[str]) -> None:
    assert "expected" in site.minimal_faults(workload={"command": command})["workload.command"]
    site.minimal(workload={"command": ["x", ""]})


@pytest.mark.parametrize(
    "fields",
    [
        {f"timeout_second{index}": 1 for index in range(100_000)},
        {"gates": [{"metric": "m", "kind": "max", "value": "x"}] * 20_000},
        {"gates": [{"metric": "m", "kind": "within", "value": 1}] * 20_000},
        {"multi_node": {"extra_env": {f"A{index}": {"secret": f"s{index}", "z": 1} for index in range(10_000)}}},
        {"training_overrides": {f"a{index}": "<changeme>" for index in range(20_000)}},
    ],
    ids=["unknown", "types", "rules", "secrets", "placeholders"],
)
def test_of_very_many_faults_the_first_are_told(site: Site, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        site.minimal(**fields)
    *first, last = caught.value.faults
    assert len(first) == 50
    assert re.fullmatch(r"run\.json: and \d+ more; mend these first", str(last))
    assert sum("did you mean" in fault.message for fault in first) in {0, 20}


def test_very_many_repeated_keys(site: Site) -> None:
    pairs = ",".join(f'"k{index}": 1' for index in [*range(50_000), *range(50_000)])
    with pytest.raises(ConfigError, match="given more than once"):
        site.load(f"{{{pairs}}}")


def test_ignored_fields_are_told_within_bounds(site: Site) -> None:
    node = {f"vpc_i{index}": 1 for index in range(10_000)}
    warnings = site.minimal(cluster={"transport": "local", "node_dict": {"a": node}}).warnings
    assert len(warnings) == 51
    assert "9950 more fields are ignored" in warnings[-1]
    assert "did you mean vpc_ip?" in warnings[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"k" * 1_000_000: 1},
        {"accelerator": "k" * 1_000_000},
        {"threshold_json": "k" * 1_000_000},
        {"cluster": "k" * 1_000_000},
        {"python": "{" + "k" * 1_000_000 + "}"},
        {"evidence": {"k" * 1_000_000: True}},
        {"training_overrides": {"k" * 1_000_000 + "<changeme>": 1}},
        {"multi_node": {"extra_env": {"1" * 1_000_000: 1}}},
        {"cluster": {"transport": "local", "node_dict": {"-" * 1_000_000: {}}}},
    ],
    ids=lambda fields: next(iter(fields))[:20],
)
def test_long_keys_and_values_are_cut_in_messages(site: Site, fields: dict[str, Any]) -> None:
    for name, message in site.minimal_faults(**fields).items():
        assert "..." in name + message
        assert len(name) < 300
        assert len(message) < 1000


@pytest.mark.parametrize("place", ["name", "env", "cluster"])
def test_the_redacted_copy_of_a_configuration_is_not_taken_for_one(site: Site, place: str) -> None:
    container = {**CONTAINER, "name": "<redacted>"} if place == "name" else CONTAINER
    env = {"HF_TOKEN": "<redacted>"} if place == "env" else {}
    cluster = {**TWO_NODES, "password": "<redacted>"} if place == "cluster" else TWO_NODES
    faults = site.minimal_faults(container=container, multi_node={"extra_env": env}, cluster=cluster)
    assert ["stands where a secret was" in message for message in faults.values()] == [True]


def test_a_workload_without_a_glob_for_its_traces_is_warned_of(site: Site) -> None:
    assert site.minimal(workload={"command": ["train"], "traces": "out/*.json"}).warnings == ()
    (warning,) = site.minimal(workload={"command": ["train"]}).warnings
    assert warning.startswith("workload.traces is absent")
