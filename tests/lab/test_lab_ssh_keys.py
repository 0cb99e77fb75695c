"""Who is let in: keys in files and in agents, certificates, passwords, and the sentences for all that can be wrong."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.errors import FleetError
from pytest_aorta.fleet.ssh_agent import Agent
from pytest_aorta.fleet.ssh_settings import Access, way_to
from tests.lab import faults
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until
from tests.lab.ssh_fleet import client_address, home, host, make_key, refused

pytestmark = pytest.mark.lab(2)

PASSWORD = "hush-hush"  # noqa: S105  # a key of the test's own


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
        "): it hung up while keys were tried (6 keys of the agent), expected one to be let in before MaxAuthTries of "
        "its sshd; name the key by priv_key_file, or by IdentityFile and IdentitiesOnly in ~/.ssh/config"
    )
    for only in ("yes", "no"):
        (folder / "config").write_text(f"{config}  IdentityFile ~/.ssh/{named}\n  IdentitiesOnly {only}\n")
        assert client_address(lab, "node1", key_file=None) == lab.plan.controller
    (folder / "config").write_text(config)
    wrong = folder / "wrong7"
    assert refused(lab, "node1", key_file=str(wrong)).endswith(
        f"): it hung up while keys were tried ({wrong}, 5 keys of the agent), expected one to be let in before "
        f"MaxAuthTries of its sshd; {wrong} was refused first, so check username and priv_key_file of the cluster"
    )
    assert client_address(lab, "node1", key_file=str(lab.key)) == lab.plan.controller


@pytest.fixture
def authority(host: Host, tmp_path: Path) -> Iterator[Path]:
    """A key whose certificates open the host."""
    key = make_key(tmp_path / "authority")
    path = host.path("/root/.ssh/authorized_keys")
    before = path.read_text()
    path.write_text(f"cert-authority {Path(f'{key}.pub').read_text()}")
    yield key
    path.write_text(before)


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_certificates_are_taken_from_where_ssh_takes_them(
    lab: Lab, host: Host, home: Path, authority: Path, agent: Callable[[Path, str], None], kind: str
) -> None:
    """Beside the key, by CertificateFile with a key that lies elsewhere or in the agent, and from the agent."""
    key = make_key(home / "key", kind=kind)
    subprocess.run(["ssh-keygen", "-q", "-s", str(authority), "-I", "us", "-n", "root", f"{key}.pub"], check=True)
    beside, elsewhere = home / "key-cert.pub", home / "elsewhere"
    config = f"Host node1\n  HostName {host.address}\n  IdentityFile {key}\n"

    def opens(text: str = "", **settings: Any) -> bool:
        (home / ".ssh" / "config").write_text(config + text)
        try:
            return client_address(lab, "node1", **{"key_file": None, **settings}) == lab.plan.controller
        except FleetError as error:
            return "was not let in" not in str(error)

    assert opens()
    assert opens(key_file=str(key))
    beside.rename(elsewhere)
    assert not opens()
    assert opens(f"  CertificateFile {elsewhere}\n")
    agent(key, "")
    key.unlink()
    assert opens(f"  CertificateFile {elsewhere}\n  IdentitiesOnly yes\n")
    assert not opens()
    elsewhere.rename(beside)
    assert opens("  IdentitiesOnly yes\n")
    subprocess.run(["ssh-add", "-q", "-D"], check=True, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("text", ["", "CertificateFile {}/elsewhere", "IdentitiesOnly yes"])
def test_keys_are_offered_in_the_order_of_ssh(
    lab: Lab, host: Host, home: Path, agent: Callable[[Path, str], None], text: str
) -> None:
    folder = home / ".ssh"
    authority = make_key(home / "authority")
    for name in ("a", "b", "c", "d"):
        make_key(folder / name)
    sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "us", "-n", "root"]
    subprocess.run([*sign, f"{folder}/b.pub", f"{folder}/d.pub"], check=True)
    (folder / "b-cert.pub").rename(folder / "elsewhere")
    for name in ("a", "c", "d"):  # with the certificate beside the last one
        agent(folder / name, "")
    names = "".join(f"  IdentityFile {folder}/{name}\n" for name in ("b", "c", "d"))
    (folder / "config").write_text(
        f"Host node1\n  HostName {host.address}\n  User root\n{names}  {text.format(folder)}\n"
    )
    ssh = ["ssh", "-v", "-F", str(folder / "config"), "-o", "BatchMode=yes"]
    ssh += ["-o", f"UserKnownHostsFile={folder}/known_hosts", "node1", "true"]
    said = subprocess.run(ssh, capture_output=True, text=True, check=False).stderr
    attempts = (line.split()[4:6] for line in said.splitlines() if "Will attempt key: " in line)
    expected = [(name if name.startswith("/") else "", kind.endswith("-CERT")) for name, kind in attempts]
    login = way_to("node1", Access("root"), 5)[0].login
    with contextlib.closing(Agent(login.agent, 5)) as held:
        offered = [(name, (key.public_blob or key.get_name())) for name, key in login.offers(held)]
    assert [(name, "-cert-" in getattr(kind, "key_type", kind)) for name, kind in offered] == expected
    assert {path for path, _ in expected} >= {f"{folder}/{name}" for name in "bcd"}


def test_a_comment_in_another_encoding_hides_no_key(
    lab: Lab, host: Host, home: Path, agent: Callable[[Path, str], None]
) -> None:
    key = Path(shutil.copy(lab.key, home / "key"))
    subprocess.run(["ssh-keygen", "-q", "-c", "-C", b"Jos\xe9@laptop", "-f", str(key)], check=True)
    agent(key, "")
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n")
    assert client_address(lab, "node1", key_file=None) == lab.plan.controller


def test_an_agent_that_does_not_answer_is_named(
    lab: Lab, host: Host, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(home / "gone"))
    silent = f"the agent at {home}/gone does not answer (no such file or directory)"
    assert f"seen no key in ~/.ssh, by IdentityFile or in an agent, and {silent}; name one by priv_key_file" in refused(
        lab, "node1", key_file=None
    )
    wrong = make_key(home / "wrong")
    assert f"was not let in (tried {wrong}; {silent}), expected one" in refused(lab, "node1", key_file=str(wrong))
    assert client_address(lab, "node1") == lab.plan.controller


def test_a_key_that_the_agent_does_not_sign_with_is_not_the_last_one(
    lab: Lab, host: Host, home: Path, agent: Callable[[Path, str], None]
) -> None:
    agent(make_key(home / "first"), "")
    subprocess.run(["ssh-add", "-q", "-c", str(home / "first")], check=True)  # nobody confirms it
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n")
    assert f"(tried 1 key of the agent; the agent at {os.environ['SSH_AUTH_SOCK']} did not sign)" in refused(
        lab, "node1", key_file=None
    )
    agent(Path(shutil.copy(lab.key, home / "second")), "")
    assert client_address(lab, "node1", key_file=None) == lab.plan.controller


class Broken(socketserver.UnixStreamServer):
    """An agent that lists a key, and when it is asked to sign gives `answer`, or nothing at all where that is None."""

    def __init__(self, path: Path, key: Path, answer: bytes | None) -> None:
        super().__init__(str(path), _Broken)
        blob = base64.b64decode(Path(f"{key}.pub").read_text("ascii").split()[1])
        self.listed = _packed(b"\x0c\x00\x00\x00\x01" + _packed(blob) + _packed(b"a key"))
        self.answer = answer
        self.done = threading.Event()


class _Broken(socketserver.StreamRequestHandler):
    server: Broken

    def handle(self) -> None:
        while len(head := self.rfile.read(4)) == 4:
            asked = self.rfile.read(int.from_bytes(head, "big"))
            if asked[:1] == b"\x0b":
                self.wfile.write(self.server.listed)
            elif self.server.answer is None:
                self.server.done.wait(60)
                return
            else:
                self.wfile.write(self.server.answer)
                return


def _packed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "(tried 1 key of the agent; the agent at {0} did not sign), expected one of them to open it"),
        (b"garbage of an agent", "(tried 1 key of the agent; the agent at {0} did not sign), expected one of them"),
        (
            None,
            "the agent at {0} was asked to sign and has not answered, expected a signature; does it wait for a touch",
        ),
    ],
    ids=["closes", "garbage", "hangs"],
)
def test_an_agent_that_breaks_when_it_is_to_sign_is_told_as_that(
    lab: Lab, host: Host, home: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, said: str
) -> None:
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n")
    path = home / "broken"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    with Broken(path, lab.key, answer) as broken:
        serving = threading.Thread(target=broken.serve_forever)
        serving.start()
        told = refused(lab, "node1", key_file=None)
        broken.done.set()
        broken.shutdown()
        serving.join()
    assert said.format(path) in told


def test_a_key_that_is_open_to_others_is_left_out_as_ssh_leaves_it_out(lab: Lab, host: Host, home: Path) -> None:
    key = Path(shutil.copy(lab.key, home / "loose"))
    key.chmod(0o644)
    (home / ".ssh" / "config").write_text(f"Host node1\n  HostName {host.address}\n  IdentityFile {key}\n")
    assert refused(lab, "node1", key_file=None).endswith(
        f"): user root was not let in (tried nothing), expected one of them to open it; do `chmod 600 {key}`, whose "
        "mode 0644 is open to others, for which ssh leaves it out"
    )
    assert refused(lab, "node1", key_file=str(key)) == (
        f"the key file {key} with mode 0644 is open to others, so ssh refuses it; `chmod 600 {key}`"
    )
    key.chmod(0o600)
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
