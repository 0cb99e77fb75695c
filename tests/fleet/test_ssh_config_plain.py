"""The ssh configuration where no ssh client is installed."""

from __future__ import annotations

import pwd
import subprocess
from pathlib import Path

import pytest

from pytest_aorta.fleet.ssh_settings import Access, way_to
from tests.fleet.ssh_home import configure, home, key, keys, make_key, places


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Match host gpu1\n  HostName 192.0.2.1\n", "192.0.2.1 port 22"),
        ('Include "~/a b"\nPort 23\n', "192.0.2.3 port 23"),
        ("ConnectTimeout none\n", "gpu1 port 22"),
        ("Port 23 # of sshd, isn't it\n", "gpu1 port 23"),
        ("Host gpu2 # 'other'\n  Port 23\nHost gpu1 gpu3 # gpu4\n  Port\t=\t24\t# of sshd\n", "gpu1 port 24"),
        ('HostName "192.0.2.1" # "the first"\n', "192.0.2.1 port 22"),
        ("HostName gpu1#1\n", "gpu1#1 port 22"),
        ("Host gpu1\n  IdentityFile ~/%h\n  UserKnownHostsFile ~/%n\n", "gpu1 port 22"),
    ],
)
def test_without_an_ssh_client_the_configuration_holds_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str
) -> None:
    (home / "a b").write_text("Host gpu1\n  HostName 192.0.2.3\n")
    make_key(home / "gpu1")
    monkeypatch.setenv("PATH", str(home))
    configure(home, text)
    [hop] = way_to("gpu1", Access("me"), 7)
    assert hop.place == f"{place} as me"
    if "IdentityFile" in text:
        assert (keys(hop), hop.known.files[0]) == ([f"{home}/gpu1"], home / "gpu1")


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"Match {criteria}\n  Port 23\n"
            for criteria in ("HOST gpu1", "host=gpu1", "tagged x", "exec true", "user me")
        ),
        *("Host gpu[12]\n", "Port ssh\n", "Port 22 23\n", "ConnectTimeout 1m\n", "IdentityFile ~/100%%\n"),
    ],
)
def test_without_an_ssh_client_what_only_ssh_reads_rightly_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PATH", str(home))
    configure(home, text)
    with pytest.raises(OSError, match=r"(config line 1|of gpu1) holds .*, which is read by an ssh client alone"):
        way_to("gpu1", Access("me"), 7)


def test_without_an_ssh_client_a_block_within_a_block_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    (home / "others").write_text("User them\nHost gpu1\n  Port 23\n")
    configure(home, "Include ~/others\n")
    assert [hop.place for hop in way_to("gpu1", Access("me"), 7)] == ["gpu1 port 23 as me"]

    configure(home, "Host gpu2\n  Include ~/others\n")
    with pytest.raises(OSError, match="others line 2 holds 'Host gpu1', which is read by an ssh client alone"):
        way_to("gpu1", Access("me"), 7)


@pytest.mark.parametrize("client", [True, False], ids=["with an ssh client", "without"])
@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("ProxyJump j # the first\n", ["j", "gpu1"]),
        ("ProxyJump none\nProxyCommand nc x 22\n", ["gpu1"]),
        ("ProxyCommand none\nProxyJump j\n", ["gpu1"]),
        ("ProxyCommand nc x 22\nProxyJump j\n", ["gpu1"]),
        ("ProxyJump j\nProxyCommand nc x 22\n", ["j", "gpu1"]),
    ],
)
def test_the_first_of_two_proxies_holds(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, way: list[str], client: bool
) -> None:
    configure(home, f"Host gpu1\n{text}")
    if not client:
        monkeypatch.setenv("PATH", str(home))
    hops = way_to("gpu1", Access("me"), 7)
    assert [place.partition(" ")[0] for place in places(hops)] == way
    assert bool(hops[-1].proxy) == (way == ["gpu1"] and "nc x" in text)


@pytest.mark.parametrize("client", [True, False], ids=["with an ssh client", "without"])
def test_true_is_yes_and_a_home_may_be_anothers(home: Path, monkeypatch: pytest.MonkeyPatch, client: bool) -> None:
    configure(home, "IdentitiesOnly true\nUserKnownHostsFile ~root/known\n")
    if not client:
        monkeypatch.setenv("PATH", str(home))
    [hop] = way_to("gpu1", Access("me"), 7)
    assert hop.login.is_only_listed
    assert hop.known.files[0] == Path(pwd.getpwnam("root").pw_dir) / "known"


@pytest.mark.parametrize("client", [True, False], ids=["with an ssh client", "without"])
def test_variables_and_comments_stand_behind_names_of_files(
    home: Path, key: Path, monkeypatch: pytest.MonkeyPatch, client: bool
) -> None:
    authority, second = make_key(home / "authority"), make_key(home / "a key")
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "us"]
    subprocess.run([*sign, f"{key}.pub", f"{second}.pub"], check=True)
    configure(
        home,
        "IdentityFile ${HOME}/key # the first\n"
        'Host n1\n  IdentityFile "${HOME}/a key"\n  CertificateFile ${HOME}/key-cert.pub # of it\n'
        '  CertificateFile "~/a key-cert.pub"\n  IdentityAgent ${OURS}/agent # ours\n'
        "  UserKnownHostsFile ${HOME}/known %d/others # both\n",
    )
    monkeypatch.setenv("OURS", "/ours")
    if not client:
        monkeypatch.setenv("PATH", str(home))
    [hop] = way_to("n1", Access("me"), 7)
    assert [one.path for one in hop.login.identities] == [str(key), str(second)]
    assert [one.path for one in hop.login.certificates] == [f"{key}-cert.pub", f"{second}-cert.pub"]
    assert hop.login.agent == "/ours/agent"
    assert hop.known.files[:2] == (home / "known", home / "others")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('IdentityFile "~/a key', 'IdentityFile "~/a key of the ssh configuration cannot be read: no closing'),
        ("UserKnownHostsFile ~/%C", "UserKnownHostsFile of the ssh configuration holds %C, expected one of %%, %d, "),
    ],
    ids=["quotes", "token"],
)
def test_without_an_ssh_client_what_cannot_be_read_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv("PATH", str(home))
    configure(home, f"{line}\n")
    with pytest.raises(OSError, match=said):
        way_to("gpu1", Access("me"), 7)
