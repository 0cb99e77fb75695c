"""Whom we trust and how we get there: known hosts, jump hosts, and the sentences for all that can be wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.errors import FleetError
from pytest_aorta.fleet.ask import Ask
from tests.lab import faults
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until
from tests.lab.ssh_fleet import client_address, home, host, opened, refused

pytestmark = pytest.mark.lab(2)

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
PASSWORD = "hush-hush"  # noqa: S105  # a key of the test's own


def fingerprint(host: Host) -> str:
    public = host.run(["ssh-keygen", "-y", "-f", HOST_KEY], check=True).stdout
    return host.run(["ssh-keygen", "-l", "-f", "-"], stdin=public, check=True).stdout.split()[1]


def is_known(name: str, known: Path) -> bool:
    """Whether OpenSSH finds a name, hashed or not."""
    return (
        subprocess.run(["ssh-keygen", "-F", name, "-f", str(known)], capture_output=True, check=False).returncode == 0
    )


def test_an_unknown_host_is_refused_with_its_fingerprint(lab: Lab, host: Host, tmp_path: Path) -> None:
    known = tmp_path / "known"
    key = fingerprint(host)
    assert refused(lab, host.address, known_hosts=str(known)) == (
        f"no SSH connection ({host.address} port 22 as root): its host key is not known: seen {key} (ssh-ed25519), "
        f"expected a known one; add it by `ssh-keyscan -t ed25519 {host.address} >> {known}` when "
        f"`ssh-keygen -lf {HOST_KEY}.pub` on the machine shows the same, or set cluster.host_key_policy to accept-new"
    )
    assert not known.exists()
    with known.open("wb") as file:
        subprocess.run(
            ["ssh-keyscan", "-t", "ed25519", host.address], stdout=file, stderr=subprocess.DEVNULL, check=True
        )
    assert client_address(lab, host.address, known_hosts=str(known)) == lab.plan.controller


def test_accept_new_accepts_once_and_never_a_changed_key(lab: Lab, host: Host, tmp_path: Path) -> None:
    known = tmp_path / "folder" / "known"
    settings = {"known_hosts": str(known), "policy": "accept-new"}
    old = fingerprint(host)
    for _ in range(2):
        assert client_address(lab, "node1", **settings) == lab.plan.controller
    [line] = known.read_text().splitlines()
    assert is_known(host.address, known)
    assert known.stat().st_mode & 0o777 == 0o600
    with faults.change_host_key(host):
        new = fingerprint(host)
        assert refused(lab, "node1", **settings) == (
            f"no SSH connection (node1 is {host.address} port 22 as root): its host key has changed: seen {new} "
            f"(ssh-ed25519), expected {old} (ssh-ed25519, {known} line 1); the machine was installed anew, or somebody "
            f"stands in between; remove the old key by `ssh-keygen -R '{host.address}' -f {known}` only when its "
            "administrator has confirmed the new one"
        )
        assert known.read_text() == line + "\n"
        subprocess.run(["ssh-keygen", "-R", host.address, "-f", str(known)], capture_output=True, check=True)
        assert client_address(lab, "node1", **settings) == lab.plan.controller


def test_hashed_names_and_ports_are_known(lab: Lab, host: Host, home: Path, second_port: int) -> None:
    known = home / ".ssh" / "known_hosts"
    config = f"Host other\n  HostName {host.address}\n  Port {second_port}\n  HashKnownHosts yes\n"
    (home / ".ssh" / "config").write_text(config)
    known.unlink()
    assert f"add it by `ssh-keyscan -t ed25519 -p {second_port} {host.address} >> " in refused(lab, "other")
    assert client_address(lab, "other", policy="accept-new") == lab.plan.controller
    assert known.read_text().startswith("|1|")
    assert client_address(lab, "other") == lab.plan.controller
    assert is_known(f"[{host.address}]:{second_port}", known)


def test_hosts_with_addresses_of_version_6(lab: Lab, tmp_path: Path) -> None:
    prefix = f"fd12:3456:{lab.plan.number + 1}"  # never a zero, which would be left out where it is printed
    addresses = [f"{prefix}::{number}" for number in (11, 12)]
    ours = ["ip", "-6", "address", "add", f"{prefix}::1/64", "dev", lab.plan.link, "nodad"]
    subprocess.run(ours, check=True)
    try:
        for host, address in zip(lab.hosts, addresses, strict=True):
            host.run(["ip", "-6", "address", "add", f"{address}/64", "dev", "eth0", "nodad"], check=True)
        source = tmp_path / "source"
        source.write_text("over six")
        with opened(lab, *addresses, known_hosts=str(tmp_path / "known"), policy="accept-new") as fleet:
            connection = fleet.perform(Ask("run", {"argv": ["sh", "-c", "echo $SSH_CONNECTION"]})).or_raise()
            assert [answer["stdout"].split()[0] for answer in connection.values()] == [f"{prefix}::1"] * 2
            fleet.send(source, "/tmp/six")
            assert all(host.path("/tmp/six").read_text() == "over six" for host in lab.hosts)
            port = fleet.perform({addresses[0]: Ask("offer")}).or_raise()[addresses[0]]["port"]
            reach = Ask("reach", {"address": addresses[0], "port": port})
            answer = fleet.perform({addresses[1]: reach}).or_raise()[addresses[1]]
            assert (answer["why"], answer["peer"]) == ("", addresses[0])
    finally:
        subprocess.run([word.replace("add", "del") if word == "add" else word for word in ours[:-1]], check=True)
        for host, address in zip(lab.hosts, addresses, strict=True):
            host.run(["ip", "-6", "address", "del", f"{address}/64", "dev", "eth0"])


@pytest.fixture
def second_port(host: Host) -> Iterator[int]:
    port, pid_file = 2200, "/run/sshd-second.pid"
    host.start("/usr/sbin/sshd", "-p", str(port), "-o", f"PidFile={pid_file}")
    wait_until(host.path(pid_file).exists, "a second sshd", 10)
    yield port
    host.run(["sh", "-c", f"kill $(cat {pid_file})"], check=True)


def jump_config(lab: Lab, home: Path, how: str) -> None:
    first, second = lab.hosts
    (home / ".ssh" / "config.d").mkdir()
    (home / ".ssh" / "config.d" / "far").write_text(f"Host far\n  HostName {second.address}\n  {how}\n")
    (home / ".ssh" / "config").write_text(
        f"Include config.d/*\nHost gate\n  HostName {first.address}\n  User lab\n  IdentityFile {lab.key}\n"
    )


def test_a_jump_host_of_the_ssh_configuration(lab: Lab, home: Path) -> None:
    jump_config(lab, home, "ProxyJump gate")
    first = lab.hosts[0]
    assert client_address(lab, "far") == first.address
    with faults.stop_sshd(first):
        assert refused(lab, "far") == (
            f"no SSH connection through its jump host gate ({first.address} port 22 as lab): connection refused, "
            "expected sshd; is it running, and is the port right?"
        )
    config = home / ".ssh" / "config"
    config.write_text(config.read_text().replace("User lab", "User nobody-here"))
    said = refused(lab, "far")
    assert said.startswith(
        f"no SSH connection through its jump host gate ({first.address} port 22 as nobody-here): user "
    )
    assert said.endswith("check User and IdentityFile of that host in ~/.ssh/config")
    config.write_text(config.read_text().replace("User nobody-here", "User lab"))
    with faults.stop_sshd(lab.hosts[1]):
        assert "the jump host gate does not get there (connect failed), expected sshd" in refused(lab, "far")


def test_a_jump_host_that_forwards_nothing_says_so(lab: Lab, home: Path) -> None:
    jump_config(lab, home, "ProxyJump gate")
    with faults.set_in_sshd(lab.hosts[0], "AllowTcpForwarding no"):
        assert refused(lab, "far").endswith("; does sshd of gate permit it (AllowTcpForwarding)?")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "Ciphers chacha20-poly1305@openssh.com",
            "it speaks SSH, and we have no algorithm in common (incompatible ssh",
        ),
        (
            "PubkeyAuthentication no",
            "it lets nobody in by a key (by nothing), expected publickey; set PubkeyAuthentication yes",
        ),
    ],
    ids=["algorithms", "no keys"],
)
def test_what_sshd_does_not_offer_is_told(lab: Lab, host: Host, line: str, said: str) -> None:
    with faults.set_in_sshd(host, line):
        assert said in refused(lab, "node1")


def test_a_jump_host_is_trusted_no_more_than_any(lab: Lab, home: Path) -> None:
    jump_config(lab, home, "ProxyJump gate")
    first, second = lab.hosts
    known = home / ".ssh" / "known_hosts"
    lines = known.read_text().splitlines(keepends=True)
    known.write_text("".join(line for line in lines if first.address not in line))
    assert f"{first.address} port 22 as lab): its host key is not known" in refused(lab, "far")
    assert client_address(lab, "far", policy="accept-new") == first.address
    assert is_known(first.address, known)
    known.write_text("".join(line for line in lines if second.address not in line))
    said = refused(lab, "far")
    assert f"{second.address} port 22 as root): its host key is not known" in said
    assert f"add it by `ssh -o UserKnownHostsFile={known} far true`" in said


def test_a_proxy_command_of_the_ssh_configuration(lab: Lab, home: Path) -> None:
    first = lab.hosts[0]
    command = f"ssh -F {lab.ssh_config} -W %h:%p node1"
    jump_config(lab, home, f"ProxyCommand {command}")
    assert client_address(lab, "far") == first.address
    shutil.rmtree(home / ".ssh" / "config.d")
    jump_config(lab, home, "ProxyCommand false")
    assert "expected" in refused(lab, "far")


def test_nobody_there(lab: Lab, host: Host) -> None:
    where = re.escape(f"no SSH connection (node1 is {host.address} port 22 as root): ")
    with faults.stop_sshd(host):
        assert re.fullmatch(where + "connection refused, expected sshd; is it running, .*", refused(lab, "node1"))
    with faults.drop_packets(host):
        assert re.fullmatch(where + "no answer within [25] s, expected sshd; is the host up.*", refused(lab, "node1"))
    assert refused(lab, "no-such-host.invalid").startswith(
        "no SSH connection (no-such-host.invalid port 22 as root): the name no-such-host.invalid does not resolve ("
    )


def test_somebody_else_there(lab: Lab, host: Host, home: Path) -> None:
    server = (
        "import socket; s = socket.create_server(('', 2300)); open('/run/other', 'w')\nwhile 1: s.accept()[0].close()"
    )
    host.start("python3", "-c", server)
    wait_until(host.path("/run/other").exists, "another server", 10)
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n  Port 2300\n")
    assert refused(lab, "node1").endswith(
        "it hung up during the greeting, expected sshd; is it overloaded (MaxStartups), or no sshd at all?"
    )
    host.run(["sh", "-c", "rm /run/other; kill $(pgrep -f 'create_server')"])
