"""Known hosts: which line stands for whom, and what a key is judged to be."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from pytest_aorta.fleet.ssh_keys import HostKeyRefused, KnownHosts, Policy, fingerprint, known_keys, lookup_name

KEY = paramiko.ECDSAKey.generate()
OTHER = paramiko.ECDSAKey.generate()
RSA = paramiko.RSAKey.generate(1024)


def line(names: str, key: paramiko.PKey = KEY, marker: str = "") -> str:
    return f"{marker} {names} {key.get_name()} {key.get_base64()} a comment".strip()


def judge(file: Path, key: paramiko.PKey, name: str = "node1", policy: Policy = "reject") -> None:
    KnownHosts([file], policy, name).missing_host_key(None, name, key)


@pytest.mark.parametrize(
    ("names", "name", "is_known"),
    [
        ("node1", "node1", True),
        ("node1,198.18.0.11", "198.18.0.11", True),
        ("Node1", "node1", True),
        ("Node1", "Node1", True),
        ("*,!Node1", "Node1", False),
        ("node1", "node11", False),
        ("node?", "node1", True),
        ("*.example,!bad.example", "good.example", True),
        ("*.example,!bad.example", "bad.example", False),
        ("node1", "[node1]:2200", False),
        ("[node1]:2200", "[node1]:2200", True),
        ("[node1]:2200", "n:2200", False),
        ("[*]:2200", "[node1]:2200", True),
        pytest.param(paramiko.HostKeys.hash_host("node1"), "node1", True, id="hashed"),  # its salt is another each time
        pytest.param(paramiko.HostKeys.hash_host("node1"), "node2", False, id="another's hash"),
        pytest.param(paramiko.HostKeys.hash_host("[node1]:2200"), "[node1]:2200", True, id="hashed with its port"),
        pytest.param(paramiko.HostKeys.hash_host("node1"), "Node1", True, id="hashed in small letters"),
        pytest.param(paramiko.HostKeys.hash_host("Node1"), "Node1", True, id="hashed as it is written"),
        ("|1|no base64|either", "node1", False),
        ("|1|", "node1", False),
    ],
)
def test_names_of_a_line(tmp_path: Path, names: str, name: str, is_known: bool) -> None:
    file = tmp_path / "known"
    file.write_text(f"# a comment\n\nnonsense\n{line(names)}\n")
    found = list(known_keys([tmp_path / "absent", file], name))
    assert [(key.file, key.line, key.key) for key in found] == ([(file, 4, KEY.asbytes())] if is_known else [])


def test_a_port_of_its_own_is_part_of_the_name() -> None:
    assert lookup_name("Node1", 22) == "node1"
    assert lookup_name("node1", 2200) == "[node1]:2200"


def test_any_of_several_keys_is_good(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text("\n".join([line("node1", OTHER), line("node1", KEY), line("node1", RSA)]))
    judge(file, KEY)
    judge(file, OTHER)
    assert KnownHosts([file], "reject", "node1").kinds() == ("ecdsa-sha2-nistp256", "ssh-rsa")


@pytest.mark.parametrize("policy", ["reject", "accept-new"])
def test_another_key_is_refused_also_one_of_another_kind(tmp_path: Path, policy: Policy) -> None:
    file = tmp_path / "known"
    file.write_text(line("other") + "\n" + line("node1", OTHER) + "\n")
    for key in (KEY, RSA):
        with pytest.raises(HostKeyRefused, match="its host key has changed: seen SHA256:") as caught:
            judge(file, key, policy=policy)
        assert f"seen {fingerprint(key.asbytes())} ({key.get_name()})" in str(caught.value)
        assert f"expected {fingerprint(OTHER.asbytes())} ({OTHER.get_name()}, {file} line 2)" in str(caught.value)
    assert file.read_text().count("\n") == 2


@pytest.mark.parametrize("policy", ["reject", "accept-new"])
def test_a_revoked_key_is_refused_whatever_else_is_known(tmp_path: Path, policy: Policy) -> None:
    file = tmp_path / "known"
    file.write_text(line("node1") + "\n" + line("*", KEY, "@revoked") + "\n")
    with pytest.raises(HostKeyRefused, match=f"{file} line 2 revokes"):
        judge(file, KEY, policy=policy)


def test_an_alias_with_capitals_is_known_by_its_first_key_and_not_by_a_revoked_one(tmp_path: Path) -> None:
    file = tmp_path / "known"
    for hashed in (False, True):
        file.write_text(line("NodeA", RSA, "@revoked") + "\n")
        alias = KnownHosts([file], "accept-new", "NodeA", hashed=hashed)
        with pytest.raises(HostKeyRefused, match=f"{file} line 1 revokes"):
            alias.missing_host_key(None, "NodeA", RSA)
        alias.missing_host_key(None, "NodeA", KEY)
        with pytest.raises(HostKeyRefused, match="its host key has changed"):
            alias.missing_host_key(None, "NodeA", OTHER)
        judge(file, KEY, "NodeA", "reject")


def test_the_key_of_an_authority_is_no_host_s_key_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(f"\n{line('node*', KEY, '@cert-authority')}\n")
    told = (
        f"its host key is not known by itself, and the authority that {file} line 2 trusts (@cert-authority) is not "
        f"read here: seen {fingerprint(KEY.asbytes())} (ecdsa-sha2-nistp256), expected a known one; add it by "
        f"`ssh-keyscan -t ecdsa node1 >> {file}` when `ssh-keygen -lf "
    )
    with pytest.raises(HostKeyRefused) as caught:
        judge(file, KEY)
    assert str(caught.value).startswith(told)
    with pytest.raises(HostKeyRefused, match="its host key is not known: seen"):
        judge(file, KEY, "other")
    judge(file, OTHER, policy="accept-new")
    judge(file, OTHER)


@pytest.mark.parametrize("alias", ["", "far"])
def test_a_file_that_keeps_nothing_is_not_the_one_to_add_to(alias: str) -> None:
    known = KnownHosts([Path("/dev/null"), Path("/etc/ssh/ssh_known_hosts")], "reject", "node1", alias=alias)
    with pytest.raises(HostKeyRefused) as caught:
        known.missing_host_key(None, "node1", KEY)
    add = "ssh -o UserKnownHostsFile=~/.ssh/known_hosts far true" if alias else "ssh-keyscan -t ecdsa node1 >> "
    assert str(caught.value).startswith(
        "its host key is not known, as /dev/null keeps none (UserKnownHostsFile of the ssh configuration, or "
        f"cluster.known_hosts): seen {fingerprint(KEY.asbytes())} (ecdsa-sha2-nistp256), expected a known one; set "
        f"cluster.known_hosts to ~/.ssh/known_hosts and add it by `{add}"
    )


def test_a_new_key_is_written_on_a_line_of_its_own_once(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "known"
    judge(file, KEY, policy="accept-new")
    assert file.read_text() == f"node1 {KEY.get_name()} {KEY.get_base64()}\n"
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    file.write_text(line("other", OTHER))  # without an end of line
    first, second = (KnownHosts([file], "accept-new", "node1") for _ in range(2))
    first.missing_host_key(None, "node1", KEY)
    second.missing_host_key(None, "node1", KEY)  # it had looked before the first one wrote
    assert file.read_text() == f"{line('other', OTHER)}\nnode1 {KEY.get_name()} {KEY.get_base64()}\n"
    with pytest.raises(HostKeyRefused, match="has changed"):
        second.missing_host_key(None, "node1", OTHER)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "known").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        judge(tmp_path / "known", KEY, policy="accept-new")
    with pytest.raises(HostKeyRefused, match=r"cannot be remembered in .*: No such file or directory; make the file"):
        judge(Path("/proc/none/known"), KEY, policy="accept-new")


def test_the_command_that_adds_a_key_is_told_early_and_makes_the_folder(tmp_path: Path) -> None:
    file = tmp_path / ".ssh" / "known_hosts"
    add = f"ssh-keyscan -t ecdsa node1 >> {file}"
    with pytest.raises(HostKeyRefused) as caught:
        judge(file, KEY)
    assert f"; add it by `mkdir -m 700 -p {file.parent} && {add}` when `ssh-keygen -lf " in str(caught.value)
    file.parent.mkdir()
    with pytest.raises(HostKeyRefused) as caught:
        judge(file, KEY)
    assert f"expected a known one; add it by `{add}` when" in str(caught.value)
