from __future__ import annotations

from typing import Any

import pytest

from tests.config.config_site import CONTAINER, MINIMAL, TWO_NODES, Site


def with_volumes(*volumes: str, runtime: str = "docker") -> dict[str, Any]:
    return {**CONTAINER, "runtime": {"name": runtime, "args": {"volumes": list(volumes)}}}


@pytest.mark.parametrize(
    "volume",
    [
        "/data/aorta:/mnt",
        "/data/aorta/:/mnt/",
        "/data//aorta:/mnt:rw",
        "/data/./aorta:/mnt:z,rw",
        "/data/aorta:/mnt:rslave",
    ],
)
def test_a_writable_mount_of_the_checkout_is_enough(site: Site, volume: str) -> None:
    site.minimal(aorta_path="/data/aorta", container=with_volumes("/x:/y", volume))


@pytest.mark.parametrize(
    ("volumes", "seen"),
    [
        ((), "missing; add it"),
        (("/data/aorta:/other",), "missing; add it"),
        (("/x:/y", "/data:/mnt/"), '/data is mounted there; replace "/data:/mnt/" by it'),
        (("/data/aorta",), "missing; add it"),
        (("/data/aorta:/mnt:ro",), 'read-only; replace "/data/aorta:/mnt:ro" by it'),
        (("/data/aorta:/mnt:z,ro",), 'read-only; replace "/data/aorta:/mnt:z,ro" by it'),
    ],
)
def test_without_a_writable_mount_the_wanted_one_is_named(site: Site, volumes: tuple[str, ...], seen: str) -> None:
    faults = site.minimal_faults(aorta_path="/data/aorta", container=with_volumes(*volumes))
    message = faults["container.runtime.args.volumes"]
    assert "/data/aorta:/mnt" in message
    assert seen in message


def test_the_mount_matters_only_with_a_container_and_a_checkout(site: Site) -> None:
    site.minimal(aorta_path="/data/aorta")
    site.minimal(container=with_volumes())
    site.minimal(aorta_path="/data/aorta", container=with_volumes(runtime="none"))


def test_a_container_needs_a_name_and_an_image(site: Site) -> None:
    assert set(site.minimal_faults(container={})) == {"container.name", "container.image"}
    site.minimal(container={"runtime": {"name": "none"}})


@pytest.mark.parametrize("value", [0, 257, "257", "many", 1.5, "", "-1", {"secret": "9"}, "\u0663"])
def test_channel_counts_out_of_range(site: Site, value: object) -> None:
    container = {**CONTAINER, "env": {"NCCL_MAX_NCHANNELS": value}}
    faults = site.minimal_faults(container=container, multi_node={"extra_env": {"NCCL_MAX_P2P_NCHANNELS": value}})
    assert set(faults) == {"container.env.NCCL_MAX_NCHANNELS", "multi_node.extra_env.NCCL_MAX_P2P_NCHANNELS"}
    assert all("1 to 256" in message for message in faults.values())


@pytest.mark.parametrize("value", [1, 256, "112"])
def test_channel_counts_in_range(site: Site, value: object) -> None:
    assert site.minimal(multi_node={"extra_env": {"NCCL_MAX_NCHANNELS": value}}).environment == {
        "NCCL_MAX_NCHANNELS": str(value)
    }


def test_script_mode_runs_on_one_node_only(site: Site) -> None:
    faults = site.minimal_faults(cluster=TWO_NODES, multi_node={"master_launch_mode": "script"})
    assert "2 nodes" in faults["multi_node.master_launch_mode"]
    assert site.minimal(multi_node={"master_launch_mode": "script"}).launch_mode == "script"


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        ({}, "script"),
        ({"cluster": TWO_NODES}, "torchrun"),
        ({"multi_node": {"master_launch_mode": "torchrun"}}, "torchrun"),
        ({"workload": {"command": ["x"]}}, "script"),
        ({"workload": {"command": ["x"], "launcher": "torchrun"}}, "torchrun"),
    ],
)
def test_launch_modes(site: Site, fields: dict[str, Any], mode: str) -> None:
    assert site.minimal(**fields).launch_mode == mode


def test_cloning_needs_an_address_and_a_place(site: Site) -> None:
    assert set(site.minimal_faults(aorta_auto_clone=True)) == {"aorta_clone_url", "aorta_path"}
    site.minimal(aorta_auto_clone=True, aorta_clone_url="https://git.example/a", aorta_path="/a")


@pytest.mark.parametrize("secret", ['p"w', "p w", "p/w"])
def test_an_address_whose_secret_could_not_be_told_is_refused(site: Site, secret: str) -> None:
    url = f"https://u:{secret}@git.example/a"
    faults = site.minimal_faults(aorta_clone_url=url, rccl={"clone_url": url})
    assert set(faults) == {"aorta_clone_url", "rccl.clone_url"}


def test_remote_models_are_not_supported(site: Site) -> None:
    assert list(site.minimal_faults(model={"id": "m", "remote": 1})) == ["model.remote"]


def test_a_tolerance_belongs_to_within(site: Site) -> None:
    def gate(kind: str, **fields: float) -> dict[str, Any]:
        return {"metric": "m", "kind": kind, "value": 1, **fields}

    site.minimal(gates=[gate("max"), gate("within", tolerance=0.1)])
    faults = site.minimal_faults(gates=[gate("within"), gate("max", tolerance=1)])
    assert set(faults) == {"gates[0].tolerance", "gates[1].tolerance"}


def test_evidence_is_fail_warn_or_off(site: Site) -> None:
    site.minimal(evidence={"clock_offset": "off", "compute_check": True})
    faults = site.minimal_faults(evidence={"clock_offset": True, "compute_check": "fail"})
    assert set(faults) == {"evidence.clock_offset", "evidence.compute_check"}
    assert "expected fail or warn or off" in site.minimal_faults(evidence={"x": "no"})["evidence.x"].replace(
        ", ", " or "
    )


def test_enforcing_nothing_is_refused(site: Site) -> None:
    site.write("a_threshold.json", {"expected_results": {"max_avg_iteration_ms": None}})
    config = {**MINIMAL, "enforce_thresholds": True}
    assert "no threshold and no gate" in site.faults(config)["enforce_thresholds"]
    site.load({**config, "gates": [{"metric": "m", "kind": "max", "value": 1}]})
    site.load(MINIMAL)


def test_faults_of_fields_and_of_rules_are_told_together(site: Site) -> None:
    faults = site.minimal_faults(
        unknwon=1,
        gpus_per_node="two",
        aorta_path="/data/aorta",
        container={**with_volumes("/data/aorta:/mnt:ro"), "lifetme": "per_run", "env": {"A B": 1, "C": True}},
        cluster=TWO_NODES,
        multi_node={"master_launch_mode": "script", "master_port": 80},
        gates=[{"metric": "m", "kind": "max"}],
        model={"id": "m"},
    )
    assert set(faults) == {
        "unknwon",
        "gpus_per_node",
        "container.runtime.args.volumes",
        "container.lifetme",
        "container.env.A B",
        "container.env.C",
        "multi_node.master_launch_mode",
        "multi_node.master_port",
        "gates[0].value",
        "model.remote",
    }


def test_a_rule_is_silent_where_its_field_is_faulty_by_itself(site: Site) -> None:
    faults = site.minimal_faults(aorta_path="relative", container=with_volumes())
    assert list(faults) == ["aorta_path"]


@pytest.mark.parametrize("env", ["container", "multi_node"])
def test_a_variable_that_no_program_could_be_given(site: Site, env: str) -> None:
    def of(num_bytes: int) -> dict[str, Any]:
        values = {"LONG": "é" * ((num_bytes - len("LONG=") - 1) // 2)}
        return (
            {"container": {**CONTAINER, "env": values}} if env == "container" else {"multi_node": {"extra_env": values}}
        )

    site.minimal(**of(128 * 1024))
    (where, told), *others = site.minimal_faults(**of(128 * 1024 + 2)).items()
    assert where in {"container.env.LONG", "multi_node.extra_env.LONG"}
    assert told.startswith("seen a variable of 131074 bytes with its name, expected at most 131072, ")
    assert "é" not in told
    assert others == []


@pytest.mark.parametrize("path", ["/opt/bin:$PATH", ""])
def test_a_path_that_hides_the_images_programs_is_warned_about(site: Site, path: str) -> None:
    told = site.minimal(container={**CONTAINER, "env": {"PATH": path}}).warnings
    assert [warning.partition(" ")[0] for warning in told] == ["container.env.PATH"]
    assert "replaces the PATH of the image" in told[0]
    assert site.minimal(container={**CONTAINER, "env": {"PATH": "/opt/bin:/usr/bin"}}).warnings == ()
    assert site.minimal(multi_node={"extra_env": {"PATH": path}}).warnings == ()


def test_two_mounts_on_one_folder(site: Site) -> None:
    told = site.minimal_faults(container=with_volumes("/a:/mnt", "/b:/data", "/c:/mnt/../mnt/:ro"))
    assert list(told) == ["container.runtime.args.volumes[2]"]
    assert 'like "/a:/mnt", expected one mount on each folder' in told["container.runtime.args.volumes[2]"]


@pytest.mark.parametrize("missing", ["username", "password_file"])
def test_half_a_registry_login(site: Site, missing: str) -> None:
    registry = {"username": "ci", "password_file": "/etc/password"}
    del registry[missing]
    container = {**CONTAINER, "runtime": {"args": {"registry": registry}}}
    assert list(site.minimal_faults(container=container)) == [f"container.runtime.args.registry.{missing}"]


@pytest.mark.parametrize("address", ["-x", "a b", "10.0.0.1:29500", "u@h"])
def test_what_is_no_rendezvous_address(site: Site, address: str) -> None:
    assert list(site.minimal_faults(multi_node={"master_addr": address})) == ["multi_node.master_addr"]
    site.minimal(multi_node={"master_addr": ""})
