"""Who is let in and whom we trust: keys, known hosts, jump hosts, and the sentences for all that can be wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.fleet.ask import Ask
from tests.lab import faults
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until
from tests.lab.ssh_fleet import STATE_DIR, home, host, opened, transport

pytestmark = pytest.mark.lab(2)

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
PASSWORD = "hush-hush"  # noqa: S105  # a key of the test's own


def refused(lab: Lab, address: str, **settings: Any) -> str:
    """The sentence for a host that cannot be reached."""
    with pytest.raises(OSError) as caught:  # noqa: PT011  # all of it is compared
        transport(lab, address, **settings).start(60, STATE_DIR)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fingerprint(host: Host) -> str:
    public = host.run(["ssh-keygen", "-y", "-f", HOST_KEY], check=True).stdout
    return host.run(["ssh-keygen", "-l", "-f", "-"], stdin=public, check=True).stdout.split()[1]


def is_known(name: str, known: Path) -> bool:
    """Whether OpenSSH finds a name, hashed or not."""
    return (
        subprocess.run(["ssh-keygen", "-F", name, "-f", str(known)], capture_output=True, check=False).returncode == 0
    )


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


def client_address(lab: Lab, address: str, **settings: Any) -> str:
    """Where a host sees us come from."""
    with opened(lab, address, **settings) as fleet:
        run = Ask("run", {"argv": ["sh", "-c", "echo $SSH_CONNECTION"]})
        return str(fleet.perform(run).or_raise()[address]["stdout"].split()[0])


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


def test_a_wrong_key_and_an_unknown_user(lab: Lab, host: Host, home: Path, tmp_path: Path) -> None:
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n")
    wrong = make_key(tmp_path / "wrong")
    assert refused(lab, "node1", key_file=str(wrong)) == (
        f"no SSH connection (node1 is {host.address} port 22 as root): user root was not let in (tried {wrong}), "
        f"expected one of them to open it; try `ssh -v -i {wrong} -l root node1 true`, and check username and "
        "priv_key_file of the cluster"
    )
    said = refused(lab, "node1", username="nobody-here", key_file=str(lab.key), password=PASSWORD)
    assert "user nobody-here was not let in (tried " in said
    assert "the password)" in said
    assert said.endswith("true`, and check username, password and priv_key_file of the cluster")
    assert PASSWORD not in said
    absent = refused(lab, "node1", key_file=str(tmp_path / "absent"))
    assert absent == f"the key file {tmp_path}/absent cannot be read: No such file or directory; correct priv_key_file"
    (tmp_path / "junk").write_text("junk")
    assert "holds no private key of a known kind" in refused(lab, "node1", key_file=str(tmp_path / "junk"))


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_key_with_a_passphrase(
    lab: Lab, host: Host, tmp_path: Path, kind: str, agent: Callable[[Path, str], None]
) -> None:
    locked = make_key(tmp_path / "locked", PASSWORD, kind)
    path = host.path("/home/lab/.ssh/authorized_keys")
    before = path.read_text()
    path.write_text(before + Path(f"{locked}.pub").read_text())
    try:
        settings = {"username": "lab", "key_file": str(locked)}
        (Path.home() / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n")
        assert refused(lab, "node1", **settings).endswith(
            f"; give {locked}, which needs a passphrase, to the agent by `ssh-add {locked}`"
        )
        assert client_address(lab, "node1", password=PASSWORD, **settings) == lab.plan.controller
        agent(locked, PASSWORD)
        assert client_address(lab, "node1", **settings) == lab.plan.controller
    finally:
        path.write_text(before)


@pytest.mark.parametrize("where", ["nowhere", "usual file", "configuration", "agent", "other agent"])
def test_without_a_key_file_those_keys_open_that_ssh_tries(
    lab: Lab,
    host: Host,
    home: Path,
    agent: Callable[[Path, str], None],
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n")
    key = home / ".ssh" / ("id_ed25519" if where == "usual file" else "ours")
    if where != "nowhere":
        shutil.copy(lab.key, key)
    if where == "configuration":
        with (home / ".ssh" / "config").open("a") as config:
            config.write("  IdentityFile ~/.ssh/ours\n")
    if "agent" in where:
        agent(key, "")
    if where == "other agent":
        with (home / ".ssh" / "config").open("a") as config:
            config.write(f"  IdentityAgent {os.environ['SSH_AUTH_SOCK']}\n")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(home / "another"))
    if where != "nowhere":
        assert client_address(lab, "node1", key_file=None) == lab.plan.controller
        return
    assert refused(lab, "node1", key_file=None).endswith(
        "): user root was not let in: seen no key in ~/.ssh, by IdentityFile or in an agent; name one by "
        "priv_key_file of the cluster or IdentityFile in ~/.ssh/config, or do `ssh-add`"
    )
    wrong = make_key(home / ".ssh" / "id_rsa", kind="rsa")
    assert refused(lab, "node1", key_file=None).endswith(
        f"): user root was not let in (tried {wrong}), expected one of them to open it; try `ssh -v -i {wrong} -l root "
        "node1 true`, and check username of the cluster, IdentityFile in ~/.ssh/config and `ssh-add -l`, or set "
        "priv_key_file"
    )


@pytest.mark.parametrize("named", ["ours.pub", "ours"], ids=["the public file", "a private one that is absent"])
def test_of_an_agent_with_many_keys_the_listed_one_opens(
    lab: Lab, host: Host, home: Path, agent: Callable[[Path, str], None], named: str
) -> None:
    """Its private half lies nowhere but in the agent, and without the list the host has hung up before its turn."""
    folder = home / ".ssh"
    for number in range(8):
        agent(make_key(folder / f"wrong{number}"), "")
    agent(Path(shutil.copy(lab.key, folder / "ours")), "")
    public = subprocess.run(["ssh-keygen", "-y", "-f", str(folder / "ours")], stdout=subprocess.PIPE, check=True)
    (folder / "ours.pub").write_bytes(public.stdout)
    (folder / "ours").unlink()
    config = f"Host node1\n  HostName {host.address}\n"
    (folder / "config").write_text(config)
    assert refused(lab, "node1", key_file=None).endswith(
        "): it hung up while keys were tried, expected one to be let in before MaxAuthTries of its sshd; name the key "
        "by priv_key_file, or by IdentityFile and IdentitiesOnly in ~/.ssh/config"
    )
    (folder / "config").write_text(f"{config}  IdentityFile ~/.ssh/{named}\n  IdentitiesOnly yes\n")
    assert client_address(lab, "node1", key_file=None) == lab.plan.controller


def test_variables_of_the_environment_stand_in_names_of_keys(
    lab: Lab, host: Host, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(lab.key, home / "ours")
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n  IdentityFile ${{OURS}}/ours\n")
    monkeypatch.setenv("OURS", str(home))
    assert client_address(lab, "node1", key_file=None) == lab.plan.controller
    monkeypatch.delenv("OURS")
    assert "OURS" in refused(lab, "node1", key_file=None)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, str], None]]:
    """Give a key to an agent of the test's own."""
    socket = tmp_path / "agent"
    child = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    wait_until(socket.exists, "the agent", 10)

    def add(key: Path, passphrase: str) -> None:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        ask = tmp_path / "ask"
        ask.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
        ask.chmod(0o755)
        for name, value in {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}.items():
            monkeypatch.setenv(name, value)
        subprocess.run(["ssh-add", "-q", str(key)], check=True)

    yield add
    child.kill()
    child.wait()


def test_nobody_is_asked_for_a_second_factor(lab: Lab, host: Host) -> None:
    with faults.stop_sshd(host):
        config = host.path("/etc/ssh/sshd_config.d/factors.conf")
        config.write_text(
            "AuthenticationMethods publickey,keyboard-interactive\nUsePAM yes\nKbdInteractiveAuthentication yes\n"
        )
    try:
        assert refused(lab, "node1").endswith(
            "a second factor is asked for, expected to be let in by a key or a password alone; there is nobody to ask"
        )
    finally:
        with faults.stop_sshd(host):
            config.unlink()


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
