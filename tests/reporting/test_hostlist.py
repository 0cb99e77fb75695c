from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_aorta.hostlist import advised, drain_command, host_list, told


@pytest.mark.parametrize(
    ("hosts", "written"),
    [
        ([], ""),
        (["a"], "a"),
        (["node1"], "node1"),
        (["node1", "node2", "node3"], "node[1-3]"),
        (["node1", "node3"], "node[1,3]"),
        (["node1", "node2", "node4", "login"], "node[1-2,4],login"),
        (["node08", "node09", "node10"], "node[08-10]"),
        (["n08", "n09", "n100"], "n[08-09],n100"),
        (["n001", "n002", "n010"], "n[001-002,010]"),
        (["b1", "a1", "b2"], "b1,a1,b2"),
        (["node2", "node1"], "node[2,1]"),
        (["node1", "node1"], "node1"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1,10.0.0.2"),
        (["fe80::1", "we$ird1"], "fe80::1,we$ird1"),
        (["gpu-a-1.rack", "gpu-a-2.rack"], "gpu-a-1.rack,gpu-a-2.rack"),
    ],
)
def test_names_are_folded(hosts: list[str], written: str) -> None:
    assert host_list(hosts) == written


def expanded(text: str) -> list[str]:
    """Read a host list by the rules of the manual, written anew."""
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        prefix, _, inside = part.partition("[")
        if not inside:
            found.append(prefix)
        for piece in inside.rstrip("]").split(",") if inside else ():
            first, _, last = piece.partition("-")
            found += [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
    return found


@given(st.lists(st.from_regex(r"[a-z]{1,3}-?[0-9]{1,4}", fullmatch=True), unique=True, max_size=30))
def test_what_is_written_reads_back_in_order(hosts: list[str]) -> None:
    assert expanded(host_list(hosts)) == hosts


def test_the_drain_command_is_one_that_a_shell_reads_as_meant() -> None:
    command = drain_command(["node1", "node2"], "run 7: node1: GPU reset `rm -rf ~` $(id) 'x' \x1b[1m\n\"; reboot\"")
    assert shlex.split(command) == [
        "scontrol", "update", "nodename=node[1-2]", "state=drain",
        "reason=run 7: node1: GPU reset rm -rf (id) x 1m ; reboot",
    ]  # fmt: skip
    assert command.startswith("scontrol update 'nodename=node[1-2]' state=drain 'reason=run 7")
    assert len(drain_command(["a"], "x" * 1000)) < 200


def test_no_name_drains_every_node() -> None:
    assert drain_command(["ALL", "all"], "bad") == ""
    assert shlex.split(drain_command(["All", "b"], "bad"))[2] == "nodename=b"


def test_what_is_no_node_name_is_not_drained() -> None:
    assert drain_command([], "why") == ""
    assert drain_command(["10.0.0.1", "fe80::1", "-a", "a;reboot", "all nodes"], "why") == ""
    assert shlex.split(drain_command(["a;reboot", "b"], "why"))[2] == "nodename=b"


def test_the_same_is_said_once_for_all_its_hosts() -> None:
    hosts = [f"gpu{number:02d}" for number in range(1, 13)]
    assert told((host, f"{host}: the name {host} does not resolve") for host in hosts) == (
        "gpu01 (likewise gpu[02-12]): the name gpu01 does not resolve"
    )
    assert told([("a1", "a1: no torch"), ("b", "b: no torch"), ("a2", "a2 has nothing in /x-a2/tree")]) == (
        "a1, b: no torch; a2 has nothing in /x-a2/tree"
    )
    assert told([("n1", "n1 has nothing in /x-n1"), ("n2", "n2 has nothing in /x-n2")]) == (
        "n1 (likewise n2) has nothing in /x-n1"
    )
    assert told((host, "pytest itself stood still") for host in ("n1", "n2")) == "pytest itself stood still"
    assert told([("n1", "n1: one"), ("n2", "n2: other"), ("n11", "n11: one"), (None, "2 of 3")]) == (
        "n1, n11: one; n2: other; 2 of 3"
    )
    assert told([("n1", "n1: one"), ("n1", "n1: one")]) == "n1: one"


def test_how_long_hosts_were_silent_tells_no_two_apart() -> None:
    said = [(f"gpu{n}", f"gpu{n}: nothing was heard from it for {5 + n} s: it is down or cut off") for n in (1, 2)]
    assert told(said) == "gpu1, gpu2: nothing was heard from it for 6 s: it is down or cut off"
    lost = [(f"gpu{n}", f"gpu{n}: the connection to 198.18.2.{n} port 22 as root was lost") for n in (1, 2)]
    assert told(lost) == "gpu1 (likewise gpu2): the connection to 198.18.2.1 port 22 as root was lost"
    other = ("gpu3", "gpu3: nothing was heard from it for 6 s, yet the host answers over a new connection")
    assert told([*said, other]) == f"{told(said)}; {other[1]}"


def test_the_next_step_is_for_all_hosts_of_which_the_same_is_to_be_done() -> None:
    look = [(f"gpu{n}", f"look at the power, the console and the link of gpu{n}") for n in range(1, 10)]
    assert advised(look[:1]) == look[0][1]
    assert advised([look[0], ("gpu2", "who ended it? Look for the OOM killer on gpu2")]) == look[0][1]
    assert advised(look) == "look at the power, the console and the link of gpu[1-9]"
    assert advised([(None, "look at the way from here"), *look]) == "look at the way from here"
    for alone in ("read logs/{0}.log", "try `ssh -v {0} true`", "look at {0}:/var/log", "look at {0}'s log"):
        assert advised([(f"gpu{n}", alone.format(f"gpu{n}")) for n in (1, 2)]) == alone.format("gpu1")


def test_the_own_address_of_a_host_tells_no_two_apart_another_does() -> None:
    refused = "{0}: no SSH connection ({0} is 10.0.0.{1} port 22 as ops): connection refused"
    assert told((f"n{n}", refused.format(f"n{n}", n)) for n in (1, 2)) == (
        "n1 (likewise n2): no SSH connection (n1 is 10.0.0.1 port 22 as ops): connection refused"
    )
    assert told((f"n{n}", f"n{n}: 10.0.0.{n + 7} does not answer") for n in (1, 2)).count("does not answer") == 2
