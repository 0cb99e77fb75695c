"""The way to a host, from the cluster file and the ssh configuration; nothing is connected."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import paramiko
import pytest

from pytest_aorta.errors import FleetError
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.ssh import SshTransport
from pytest_aorta.fleet.ssh_keys import HostKeyRefused
from pytest_aorta.fleet.ssh_refusals import refusal
from pytest_aorta.fleet.ssh_settings import Access, way_to
from tests.fleet.ssh_home import configure, home, key, keys, make_key, places
from tests.fleet.ssh_keys_of_devices import make_security_key


def test_what_the_cluster_file_says_comes_first(home: Path, key: Path) -> None:
    configure(home, "Host n1\n  HostName 192.0.2.1\n  Port 2200\n  User else\n  ForwardAgent yes\n")
    [hop] = way_to("n1", Access("me", str(key)), 7)
    assert hop.place == "192.0.2.1 port 2200 as me"
    assert hop.connection.connect_timeout == 7
    assert hop.connection.forward_agent is False
    assert (keys(hop), hop.login.given, hop.login.password) == ([str(key)], str(key), None)


@pytest.mark.parametrize("text", ["", "Port 22\n"])
def test_without_a_key_file_the_usual_ones_are_tried(home: Path, text: str) -> None:
    if text:
        configure(home, text)
    usual = [make_key(home / ".ssh" / f"id_{kind}", kind=kind) for kind in ("rsa", "ecdsa", "ed25519")]
    [hop] = way_to("n1", Access("me"), 7)
    assert keys(hop) == [str(key) for key in usual]
    assert (hop.login.given, hop.login.agent, hop.login.is_only_listed) == ("", str(home / "agent"), False)


def test_a_key_file_may_have_a_per_cent_in_its_name(home: Path) -> None:
    key = make_key(home / "100%y")
    configure(home, "IdentityFile none\n")
    [hop] = way_to("n1", Access("me", str(key)), 7)
    assert keys(hop) == [str(key)]


def test_keys_of_the_configuration_that_are_absent_or_no_keys_are_passed_over(home: Path, key: Path) -> None:
    listed = make_key(home / "listed")
    (home / "junk").write_text("junk")
    configure(
        home, "Host *\n  IdentityFile ~/absent\n  IdentityFile ~/junk\n  IdentityFile ~/listed\n  IdentitiesOnly yes\n"
    )
    [hop] = way_to("n1", Access("me", str(key)), 7)
    assert keys(hop) == [str(key), str(listed)]
    assert hop.login.is_only_listed


def test_a_security_key_is_passed_over_or_refused_and_left_to_the_agent(home: Path, key: Path) -> None:
    device = make_security_key(home / "device")
    configure(home, f"Host *\n  IdentityFile {device}\n  IdentityFile {key}\n  IdentitiesOnly yes\n")
    [hop] = way_to("n1", Access("me"), 7)
    assert (keys(hop), hop.login.with_flaw("a device's")) == ([str(key)], [str(device)])
    with pytest.raises(OSError, match=f"the key file {device} is that of a security key.*; do `ssh-add {device}`"):
        way_to("n1", Access("me", str(device)), 7)


@pytest.mark.parametrize("name", ["node1..example", ".node1", "n" * 64])
def test_a_name_that_cannot_be_looked_up_is_told_with_its_host(home: Path, name: str) -> None:
    fleet = Fleet({"n1": SshTransport(name, Access("me"))})
    with pytest.raises(FleetError, match=f"^n1: no SSH connection .*: '{name}' is no name that can be looked up"):
        fleet.open({"n1": "/tmp/state"})  # noqa: S108  # never come to


def test_a_name_that_does_not_become_canonical_is_told(home: Path) -> None:
    configure(
        home,
        "Host *\n  CanonicalizeHostname yes\n  CanonicalDomains nowhere.invalid\n  CanonicalizeFallbackLocal no\n",
    )
    with pytest.raises(OSError, match=r"^ssh refuses its configuration for n1: ssh: Could not resolve host"):
        way_to("n1", Access("me"), 7)


_AS_NOBODY = """
import os
from pytest_aorta.fleet.ssh_settings import Access, way_to
os.setuid(54321)
try:
    way_to("n1", Access("me"), 7)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that has no name")
@pytest.mark.parametrize(
    ("with_home", "why"),
    [
        (True, "seen uid 54321 without an entry in the list of users; set LOGNAME"),
        (False, "~/.ssh/config: where that home is is not known, seen neither HOME nor an entry in the list of users"),
    ],
)
def test_a_user_without_a_name_or_a_home_is_told_what_to_set(with_home: bool, why: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / ".ssh").mkdir()
        configure(Path(folder), "Host *\n  HostName %h\n")
        environment = {"HOME": folder} if with_home else {}
        argv = [sys.executable, "-c", _AS_NOBODY]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parents[2]
        )
    assert why in done.stdout


@pytest.mark.parametrize(
    ("value", "agent"),
    [("SSH_AUTH_SOCK", "agent"), ("$OTHER", "other"), ("~/%h", "n1"), ('"~/a b"', "a b"), ("none", "")],
)
def test_the_agent_is_the_one_that_the_configuration_names(
    home: Path, monkeypatch: pytest.MonkeyPatch, value: str, agent: str
) -> None:
    monkeypatch.setenv("OTHER", str(home / "other"))
    configure(home, f"IdentityAgent {value}\n")
    [hop] = way_to("n1", Access("me"), 7)
    assert hop.login.agent == (str(home / agent) if agent else "")


def test_a_key_with_a_passphrase_is_left_to_the_agent(home: Path) -> None:
    locked = make_key(home / "locked", "sesame")
    configure(home, "Host *\n  IdentitiesOnly yes\n")
    [hop] = way_to("n1", Access("me", str(locked)), 7)
    assert (keys(hop), hop.login.with_flaw("locked")) == ([], [str(locked)])
    [hop] = way_to("n1", Access("me", str(locked), password="sesame"), 7)  # noqa: S106  # of a key of the test's own
    assert keys(hop) == [str(locked)]


def test_jump_hosts_are_on_the_way_and_do_not_get_the_password(home: Path, key: Path) -> None:
    configure(
        home,
        "Host n1\n  ProxyJump gate,other@192.0.2.9:2200\nHost gate\n  HostName 192.0.2.8\n  User keeper\n"
        "Host n2\n  ProxyJump none\nHost n*\n  ProxyJump gate\n",
    )
    access = Access("me", str(key), password="word")  # noqa: S106
    hops = way_to("n1", access, 7)
    assert places(hops) == ["192.0.2.8 port 22 as keeper", "192.0.2.9 port 2200 as other", "n1 port 22 as me"]
    assert [hop.login.password for hop in hops] == [None, None, "word"]
    assert places(way_to("n2", access, 7)) == ["n2 port 22 as me"]
    assert places(way_to("n3", access, 7)) == ["192.0.2.8 port 22 as keeper", "n3 port 22 as me"]


@pytest.mark.parametrize(
    ("jump", "place"),
    [
        ("gate", "gate port 22 as root"),
        ("me@gate:23", "gate port 23 as me"),
        ("ssh://me@gate:23", "gate port 23 as me"),
        ("[2001:db8::1]:23", "2001:db8::1 port 23 as root"),
        ("[2001:db8::1]", "2001:db8::1 port 22 as root"),
    ],
)
def test_a_jump_host_may_be_written_in_several_ways(home: Path, jump: str, place: str) -> None:
    configure(home, f"Host n1\n  ProxyJump {jump}\nHost *\n  User root\n")
    assert places(way_to("n1", Access("me"), 7)) == [place, "n1 port 22 as me"]


def test_jump_hosts_that_need_each_other_are_refused(home: Path) -> None:
    configure(home, "Host n1\n  ProxyJump a\nHost a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(OSError, match="lead round in a circle: n1, a, b, a"):
        way_to("n1", Access("me"), 7)
    configure(home, "Host *\n  ProxyJump gate\n")  # ssh does not reach n1 either
    with pytest.raises(OSError, match=r"^ssh refuses its configuration for gate: jumphost loop via gate; correct it"):
        way_to("n1", Access("me"), 7)
    configure(home, "Host gate\n  ProxyJump none\nHost *\n  ProxyJump gate\n")
    assert len(way_to("n1", Access("me"), 7)) == 2


def test_included_files_stand_where_they_are_included(home: Path) -> None:
    (home / ".ssh" / "config.d").mkdir()
    (home / ".ssh" / "config.d" / "b").write_text("Host n1\n  HostName 192.0.2.2\n")
    (home / ".ssh" / "config.d" / "a").write_text("Host n1\n  HostName 192.0.2.1\n  Include absent\n  Port 23\n")
    (home / "a b").write_text("Host n3\n  HostName 192.0.2.3\n")
    configure(
        home,
        'Include "~/a b"\nHost n1 n2\n  Include "config.d/*" # ours\n  Port 24\nHost *\n  Port 25\n',
    )
    assert [places(way_to(name, Access("me"), 7)) for name in ("n1", "n2", "n3")] == [
        ["192.0.2.1 port 23 as me"],
        ["n2 port 24 as me"],
        ["192.0.2.3 port 25 as me"],
    ]
    (home / "loop").write_text("Include ~/loop ~/loop\n")
    configure(home, "Include ~/loop\n")
    with pytest.raises(OSError, match=f"^ssh refuses its configuration: {home}/loop includes itself, over and over"):
        way_to("n1", Access("me"), 7)


def test_known_hosts_files_are_named_with_tokens_and_blanks(home: Path) -> None:
    def files(name: str) -> list[str]:
        [hop] = way_to(name, Access("me"), 7)
        return [str(file) for file in hop.known.files]

    configure(
        home,
        "Host n1\n  HostName HOST.example\n  Port 23\n  UserKnownHostsFile ~/known.d/%k '/a b/%h-%n-%p-%r' %d/%i%%\n"
        'Host n2\n  HostKeyAlias Alias\n  UserKnownHostsFile = "/my hosts/%k"\n'
        "Host n3\n  UserKnownHostsFile none\n"
        'Host *\n  GlobalKnownHostsFile "/etc/our hosts" "/etc/others"\n',
    )
    everybody_s = ["/etc/our hosts", "/etc/others"]
    assert files("n1") == [f"{home}/known.d/n1", "/a b/host.example-n1-23-me", f"{home}/{os.getuid()}%", *everybody_s]
    assert files("n2") == ["/my hosts/alias", *everybody_s]
    assert files("n3") == everybody_s
    assert files("n6") == [f"{home}/.ssh/known_hosts", f"{home}/.ssh/known_hosts2", *everybody_s]


def test_the_key_of_a_host_with_another_name_for_it_is_added_by_ssh(home: Path) -> None:
    configure(home, "Host n2\n  HostKeyAlias other\n")
    [hop] = way_to("n2", Access("me"), 7)
    with pytest.raises(HostKeyRefused, match=f"add it by `ssh -o UserKnownHostsFile={home}/.ssh/known_hosts n2 true`"):
        hop.known.missing_host_key(None, "n2", paramiko.ECDSAKey.generate())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Host n1\n  Port\n", 'line 2: no argument after keyword "port"'),
        ("Host other\n  Include absent\n  Prot 22\n", "line 3: Bad configuration option: prot"),
        ("UserKnownHostsFile '/x\n", "line 1: invalid quotes"),
    ],
)
def test_what_ssh_refuses_is_told_with_host_file_and_line(home: Path, text: str, why: str) -> None:
    configure(home, text)
    with pytest.raises(OSError, match=r"^ssh refuses its configuration for n1: ") as caught:
        way_to("n1", Access("me"), 7)
    assert f": {home}/.ssh/config" in str(caught.value)
    assert f"{why}; correct it until `ssh -G n1` takes it" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Match HOST gpu1\n  HostName 192.0.2.1\n", "192.0.2.1 port 22"),
        ("Match host=gpu1\n  HostName 192.0.2.1\n", "192.0.2.1 port 22"),
        ("Match HOST gpu2\n  HostName 192.0.2.1\n", "gpu1 port 22"),
        ("Host gpu[12]\n  HostName 192.0.2.1\n", "gpu1 port 22"),
        ("Match user me\n  HostName 192.0.2.1\n", "192.0.2.1 port 22"),
        ("Match exec true\n  HostName 192.0.2.1\n", "192.0.2.1 port 22"),
        ('Match exec "cat | grep ."\n  HostName 192.0.2.1\n', "gpu1 port 22"),
        ("Port ssh\n", "gpu1 port 22"),
        ("Port 23 # of sshd\n", "gpu1 port 23"),
        ("ConnectTimeout 0m30s\n", "gpu1 port 22"),
    ],
)
def test_the_configuration_is_read_as_ssh_reads_it(home: Path, text: str, place: str) -> None:
    configure(home, text)
    [hop] = way_to("gpu1", Access("me"), 7)
    assert hop.place == f"{place} as me"
    assert hop.connection.connect_timeout == (30 if "0m30s" in text else 7)


def test_a_home_may_have_a_blank_in_its_name(home: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = home / "a home"
    (other / ".ssh").mkdir(parents=True)
    key.rename(other / "key")
    configure(other, 'Include ~/more\nMatch exec "test -d ~/.ssh"\n  UserKnownHostsFile ~/known %d/others\n')
    (other / "more").write_text("IdentityFile ~/key\n")
    monkeypatch.setenv("HOME", str(other))
    [hop] = way_to("n1", Access("me"), 7)
    assert (keys(hop), hop.known.files[:2]) == ([f"{other}/key"], (other / "known", other / "others"))


def test_a_wait_for_a_host_without_a_bound_is_bounded_by_us(home: Path) -> None:
    configure(home, "ConnectTimeout none\n")
    [hop] = way_to("n1", Access("me"), 7)
    assert hop.connection.connect_timeout == 7


def test_the_password_is_in_no_representation() -> None:
    assert "word" not in repr(Access("me", password="word"))  # noqa: S106


def test_a_refused_login_comes_with_the_same_one_by_hand(home: Path, key: Path) -> None:
    def said(access: Access, tried: list[str]) -> str:
        [hop] = way_to("n1", access, 7)
        hop.login.tried += tried
        return str(refusal(paramiko.AuthenticationException("Authentication failed."), hop, "n1"))

    configure(home, "Host n1\n  HostName 192.0.2.1\n  Port 2200\n")
    assert said(Access("me", str(key)), [str(key)]).endswith(
        f"user me was not let in (tried {key}), expected one of them to open it; "
        f"try `ssh -v -i {key} -l me -p 2200 n1 true`, and check username and priv_key_file of the cluster"
    )
    by_password = said(Access("me", password="sesame"), ["the password"])  # noqa: S106  # nobody's
    assert "(tried the password)" in by_password
    assert by_password.endswith("try `ssh -v -l me -p 2200 n1 true`, and check username and password of the cluster")
