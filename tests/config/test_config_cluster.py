from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.config.document import PathFault
from tests.config.config_site import MINIMAL, TWO_NODES, Site

LOCAL_NODE: dict[str, Any] = {"node_dict": {"localhost": {}}}


def test_without_a_cluster_it_is_this_machine(site: Site) -> None:
    settings = site.minimal()
    assert not settings.cluster.given
    assert settings.cluster.transport == "local"
    assert [host.name for host in settings.hosts] == [socket.gethostname()]
    assert settings.suite == "single"


def test_without_a_cluster_a_schedulers_job_changes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert site.minimal().cluster.transport == "local"


def test_hosts_keep_the_order_of_the_file(site: Site) -> None:
    nodes: dict[str, Any] = {"z": {"vpc_ip": "10.0.0.9"}, "a": {}, "m": {"vpc_ip": "10.0.0.1"}}
    settings = site.minimal(cluster={**TWO_NODES, "node_dict": nodes})
    assert [(host.rank, host.name, host.address) for host in settings.hosts] == [
        (0, "z", "10.0.0.9"),
        (1, "a", "a"),
        (2, "m", "10.0.0.1"),
    ]
    assert settings.head.name == "z"
    assert settings.suite == "distributed"


@pytest.mark.parametrize(
    ("node", "transport"),
    [
        ({"localhost": {}}, "local"),
        ({"some-name": {"vpc_ip": "127.0.0.1"}}, "local"),
        ({"some-name": {"vpc_ip": "127.9.9.9"}}, "local"),
        ({socket.gethostname(): {}}, "local"),
        ({"elsewhere": {"vpc_ip": "192.0.2.7"}}, "ssh"),
        ({"localhost": {}, "elsewhere": {}}, "ssh"),
    ],
)
def test_auto_is_local_only_for_the_single_node_that_is_this_machine(
    site: Site, node: dict[str, Any], transport: str
) -> None:
    assert site.minimal(cluster={**TWO_NODES, "node_dict": node}).cluster.transport == transport


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "SPUR_NODES"])
def test_auto_is_slurm_inside_a_job(site: Site, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "7")
    assert site.minimal(cluster={"node_dict": {"n0": {}, "n1": {}}}).cluster.transport == "slurm"
    assert site.minimal(cluster={**TWO_NODES, "transport": "ssh"}).cluster.transport == "ssh"


def test_the_option_replaces_the_configurations_cluster(site: Site) -> None:
    site.write("c.json", TWO_NODES)
    assert len(site.load({**MINIMAL, "cluster": LOCAL_NODE}, cluster=Path("c.json")).hosts) == 2


def test_a_cluster_path_is_relative_to_the_configuration(site: Site) -> None:
    site.write("sub/c.yaml", "username: me\npriv_key_file: ~/.ssh/id\nnode_dict: {n0: {}, n1: {}}\n")
    site.write("sub/run.json", {})
    settings = site.load({**MINIMAL, "cluster": "sub/c.yaml"})
    assert [file.kind for file in settings.inputs] == ["config", "cluster"]
    assert "no such file" in site.minimal_faults(cluster="c.yaml")["cluster: c.yaml"]


def test_upstream_keys_are_ignored_with_one_warning_each(site: Site) -> None:
    nodes = {name: {"vpc_ip": f"10.0.0.{rank}", "bmc_ip": "NA", "agent_port": 1} for rank, name in enumerate("ab")}
    cluster = {**TWO_NODES, "_c": 1, "node_dict": nodes, "env_vars": {"A": "{x}"}, "racks": [], "user_name": "x"}
    warnings = site.minimal(cluster=cluster).warnings
    assert sorted(warning.split()[0] for warning in warnings if "is ignored" in warning) == [
        "cluster.env_vars",
        "cluster.node_dict.*.agent_port",
        "cluster.node_dict.*.bmc_ip",
        "cluster.racks",
        "cluster.user_name",
    ]
    assert any("did you mean username?" in warning for warning in warnings)


def test_a_head_node_that_is_not_the_first_is_warned_about(site: Site) -> None:
    assert site.minimal(cluster={**TWO_NODES, "head_node_dict": {"mgmt_ip": "n0"}}).warnings == ()
    assert "rank 0" in site.minimal(cluster={**TWO_NODES, "head_node_dict": {"mgmt_ip": "n1"}}).warnings[0]


def test_several_local_nodes_are_warned_about(site: Site) -> None:
    settings = site.minimal(cluster={"transport": "local", "node_dict": {"a": {}, "b": {"vpc_ip": "a"}}})
    assert "all of them are this machine" in settings.warnings[0]
    assert settings.cluster.username == getpass.getuser()


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"node_dict": {}}, "cluster.node_dict"),
        ({"node_dict": {"-oProxyCommand=x": {}}}, "cluster.node_dict.-oProxyCommand=x"),
        ({"node_dict": {"n0": {"vpc_ip": "a b"}}}, "cluster.node_dict.n0.vpc_ip"),
        ({"node_dict": {"{xx.xx.xx.xx|hostname-1}": {}}}, "cluster.node_dict.{xx.xx.xx.xx|hostname-1}"),
        ({"node_dict": {"n0": {"vpc_ip": "{xx.xx.xx.xx|hostname-1}"}}}, "cluster.node_dict.n0.vpc_ip"),
        ({"node_dict": {"n0": {}, "n1": {"vpc_ip": "n0"}}}, "cluster.node_dict.n1.vpc_ip"),
        ({"username": None}, "cluster.username"),
        ({"priv_key_file": "id_rsa"}, "cluster.priv_key_file"),
        ({"transport": "tcp"}, "cluster.transport"),
        ({"known_hosts": "known_hosts"}, "cluster.known_hosts"),
        ({"node_dict": None}, "cluster.node_dict"),
        ({"node_dict": []}, "cluster.node_dict"),
        ({"node_dict": "n0"}, "cluster.node_dict"),
        *(
            ({"node_dict": {name: {}}}, f"cluster.node_dict.{name}")
            for name in ("a b", "u@n0", "n0:22", "fe80::x", "$(id)", "n0..example", ".n0", ".", "n" * 64)
        ),
        *(
            ({"node_dict": {"n0": {"vpc_ip": text}}}, "cluster.node_dict.n0.vpc_ip")
            for text in ("", "10.0.0.1:22", "10.0.0.999")
        ),
        *(({"username": name}, "cluster.username") for name in ("-oX", "a b", "a\nb", "$(id)", "a\x1b[31m")),
        ({"host_key_policy": "accept"}, "cluster.host_key_policy"),
    ],
)
def test_what_a_cluster_must_not_say(site: Site, changes: dict[str, Any], where: str) -> None:
    assert list(site.minimal_faults(cluster={**TWO_NODES, **changes})) == [where]


def test_a_cluster_that_is_no_object(site: Site) -> None:
    assert list(site.minimal_faults(cluster=5)) == ["cluster"]
    site.write("c.json", "[]")
    assert "seen a list" in site.minimal_faults(cluster="c.json")["cluster: c.json"]
    assert "no such file" in site.faults(MINIMAL, cluster=Path("absent.json"))["absent.json"]


def test_faults_of_both_files_are_told_together(site: Site) -> None:
    site.write("c.json", {**TWO_NODES, "transport": "tcp"})
    faults = site.faults({**MINIMAL, "gpus_per_node": 0}, cluster=Path("c.json"))
    assert set(faults) == {"gpus_per_node", "c.json: transport"}


def test_a_password_is_never_shown(site: Site) -> None:
    cluster = {**TWO_NODES, "priv_key_file": None, "password": "pa{x}ss w0rd"}
    settings = site.minimal(cluster=cluster)
    assert settings.cluster.password is not None
    assert settings.cluster.password.get_secret_value() == "pa{x}ss w0rd"
    assert "w0rd" not in repr(settings)
    assert "w0rd" not in str(settings.document())
    assert "w0rd" in settings.secrets()[0]
    assert "4711" not in str(site.minimal_faults(cluster={**cluster, "password": 4711}))


@pytest.mark.parametrize("name", ["n" * 63, "n0.example.", "a_b.example", "10.0.0.1", "::1"])
def test_names_of_hosts(site: Site, name: str) -> None:
    cluster = {**TWO_NODES, "node_dict": {name: {}}}
    assert [host.name for host in site.minimal(cluster=cluster).cluster.hosts] == [name]


@pytest.mark.parametrize("name", ["ops", "first.last", "ops@site.example", "DOMAIN\\\\ops", "machine$"])
def test_login_names(site: Site, name: str) -> None:
    assert site.minimal(cluster={**TWO_NODES, "username": name}).cluster.username == name


@pytest.mark.parametrize(
    ("nodes", "where"),
    [
        ({"Node1": {"vpc_ip": "10.0.0.1"}, "node1.": {"vpc_ip": "10.0.0.2"}}, "node1."),
        ({"::1": {}, "0:0:0:0:0:0:0:1": {}}, "0:0:0:0:0:0:0:1"),
        ({"a": {"vpc_ip": "fd00::A"}, "b": {"vpc_ip": "[fd00:0::a]"}}, "b.vpc_ip"),
        ({"a": {"vpc_ip": "127.1"}, "b": {"vpc_ip": "127.0.0.1"}}, "b.vpc_ip"),
        ({"a": {"vpc_ip": "10.0.0.1"}, "b": {"vpc_ip": "::ffff:10.0.0.1"}}, "b.vpc_ip"),
        ({"a": {"vpc_ip": "GPU7.site"}, "b": {"vpc_ip": "gpu7.site."}}, "b.vpc_ip"),
    ],
)
def test_one_machine_in_two_spellings(site: Site, nodes: dict[str, Any], where: str) -> None:
    assert list(site.minimal_faults(cluster={**TWO_NODES, "node_dict": nodes})) == [f"cluster.node_dict.{where}"]


def test_a_misspelt_field_of_the_cluster_is_named_where_one_is_missing(site: Site) -> None:
    cluster = {name: value for name, value in TWO_NODES.items() if name != "username"}
    told = site.minimal_faults(cluster={**cluster, "usernam": "me"})["cluster.username"]
    assert told.endswith("; seen usernam, did you mean username?")


def test_a_key_need_not_be_named(site: Site) -> None:
    cluster = {name: value for name, value in TWO_NODES.items() if name != "priv_key_file"}
    found = site.minimal(cluster=cluster).cluster
    assert (found.transport, found.priv_key_file, found.password) == ("ssh", None, None)
    [warning] = site.minimal(cluster={**cluster, "priv_keyfile": "/k"}).warnings
    assert "priv_keyfile is ignored" in warning
    assert "did you mean priv_key_file?" in warning


def test_a_misspelt_node_dict_hides_no_other_fault(site: Site) -> None:
    nodes = {"n0": {"vpc_ip": "a b"}, "n1": {}}
    faults = site.minimal_faults(cluster={"node_dct": nodes, "user": "me", "priv_key_file": "/k"})
    assert set(faults) == {"cluster.node_dict", "cluster.node_dct.n0.vpc_ip", "cluster.username"}
    assert faults["cluster.node_dict"].endswith("; seen node_dct, did you mean node_dict?")
    assert faults["cluster.username"].endswith("; seen user, did you mean username?")


def test_a_fault_in_one_field_of_the_cluster_hides_none_of_another(site: Site) -> None:
    faults = site.minimal_faults(cluster={"node_dict": {"n0": {}, "n1": {"vpc_ip": 5}}, "host_key_policy": "accept"})
    assert set(faults) == {"cluster.node_dict.n1.vpc_ip", "cluster.host_key_policy", "cluster.username"}


@pytest.mark.parametrize(
    ("owners", "told"), [((2,), ["n2"]), ((1, 3), ["n1", "n3"]), (range(5), ["*"]), (range(4), ["*"])]
)
def test_an_ignored_field_of_a_few_nodes_names_them(site: Site, owners: Sequence[int], told: list[str]) -> None:
    nodes = {f"n{rank}": {"vpc_pi": "10.0.0.9"} if rank in owners else {} for rank in range(5)}
    warnings = site.minimal(cluster={**TWO_NODES, "node_dict": nodes}).warnings
    assert [warning.split()[0] for warning in warnings] == [f"cluster.node_dict.{name}.vpc_pi" for name in told]
    assert all("did you mean vpc_ip?" in warning for warning in warnings)


def test_a_cluster_without_nodes_is_told_what_they_are(site: Site) -> None:
    told = site.minimal_faults(cluster={"username": "me"})["cluster.node_dict"]
    assert told.startswith("is missing, expected because it is required (Nodes by name")


def test_what_the_caller_finds_in_the_cluster_is_told_of_its_own_file(site: Site) -> None:
    def also(_config: object, _cluster: object) -> list[PathFault]:
        return [PathFault(("cluster", "transport"), "no")]

    site.write("c.json", TWO_NODES)
    assert site.faults(MINIMAL, cluster=Path("c.json"), also=also) == {"c.json: transport": "no"}
    assert site.faults({**MINIMAL, "cluster": "c.json"}, also=also) == {"cluster: c.json: transport": "no"}
    assert site.faults({**MINIMAL, "cluster": TWO_NODES}, also=also) == {"cluster.transport": "no"}


def test_names_reach_no_terminal_raw(site: Site) -> None:
    told = site.minimal_faults(cluster={**TWO_NODES, "node_dict": {"a\n\x1b[31mb\u202e": {}}}, **{"x\ry": 1})
    assert all(f"{where}{message}".isprintable() for where, message in told.items())
    assert r"cluster.node_dict.a\n\x1b[31mb\u202e" in told


def test_a_misspelt_field_is_not_called_one_of_other_tools(site: Site) -> None:
    cluster = {**TWO_NODES, "host_key_polisy": "reject", "mgmt_net": "10.0.0.0/8"}
    told = site.minimal(cluster=cluster).warnings
    assert "cluster.host_key_polisy is ignored: there is no such field, did you mean host_key_policy?" in told
    assert "cluster.mgmt_net is ignored: it is a field of other tools" in told
