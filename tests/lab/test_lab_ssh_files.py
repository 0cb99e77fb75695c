"""Files over SSH: whole or not at all, whatever the disk, the link or somebody else does meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_aorta.errors import FleetError, HostError
from pytest_aorta.fleet.ask import Ask
from pytest_aorta.fleet.fleet import Fleet
from pytest_aorta.fleet.ssh import SshTransport
from tests.lab import faults
from tests.lab.host import Host
from tests.lab.lab import Lab
from tests.lab.processes import wait_until
from tests.lab.ssh_fleet import STATE_DIR, access, home, host, opened, transport, wait_clean

pytestmark = pytest.mark.lab(1)

PATIENCE_S = 30.0
WORDS = (
    "two words",
    "-rf",
    "$(touch pwned)",
    'it\'s "so"',
    "new\nline",
    "`id`",
    "*",
    "\\",
    "~",
    "ünï",
    "\udcff",
    "a;b",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(300_000))
    return path


@contextmanager
def in_background(call: Callable[[], None]) -> Iterator[None]:
    """Do something while a call goes on, which must end well."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # told in the test's own thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def partials(folder: Path) -> list[Path]:
    return list(folder.glob(".aorta-*.part"))


def size_of_partial(folder: Path) -> int:
    return sum(path.stat().st_size for path in partials(folder))


def cut_sessions(host: Host) -> None:
    """What an overloaded host or a firewall does: the connection breaks, a new one may be made.

    No session of an earlier test may still be ending: it would be cut instead.
    """

    def pids() -> list[str]:
        return [str(process.pid) for process in host.processes() if "sshd: root@notty" in "".join(process.argv[:1])]

    wait_until(lambda: bool(pids()), "a connection", PATIENCE_S)
    caught = pids()
    host.run(["kill", "-KILL", *caught])  # one that ends by itself meanwhile is cut as well
    wait_until(lambda: not set(caught) & set(pids()), "the end of the connection", PATIENCE_S)


def test_names_are_taken_word_for_word(lab: Lab, host: Host, source: Path, tmp_path: Path) -> None:
    folder = host.path("/tmp/$(touch pwned) it's")
    folder.mkdir()
    with opened(lab) as fleet:
        for word in WORDS:
            fleet.send(source, f"/tmp/$(touch pwned) it's/{word}")
            (folder / word).unlink()  # it is there, under this very name
            fleet.send(source, f"/tmp/$(touch pwned) it's/{word}")
            fleet.fetch("node1", f"/tmp/$(touch pwned) it's/{word}", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == sorted(WORDS)
    assert not host.path("/root/pwned").exists()


def test_a_state_folder_may_have_any_name(lab: Lab, host: Host) -> None:
    fleet = Fleet({"node1": transport(lab, "node1")})
    fleet.open({"node1": "~/.aorta/it's $(touch pwned)\n-x"})
    try:
        assert host.path("/root/.aorta/it's $(touch pwned)\n-x/groups.json").exists()
        assert fleet.perform(Ask("run", {"argv": ["hostname"]})).or_raise()["node1"]["stdout"] == "node1\n"
    finally:
        fleet.close()
    wait_clean(host)


def test_what_cannot_be_copied_is_said_in_a_sentence(lab: Lab, host: Host, source: Path, tmp_path: Path) -> None:
    host.run(["sh", "-c", "mkdir /tmp/d; ln -s d /tmp/link; mkfifo /tmp/pipe; echo secret >/tmp/private"], check=True)
    with opened(lab) as fleet:

        def not_fetched(path: str) -> str:
            with pytest.raises(HostError) as caught:
                fleet.fetch("node1", path, tmp_path / "back")
            return caught.value.reason.removeprefix(f"fetching {path}: ")

        assert not_fetched("/tmp/absent") == "No such file or directory ('/tmp/absent')"
        assert not_fetched("/tmp/link") == "a link, expected a regular file ('/tmp/link')"
        for path in ("/tmp/pipe", "/tmp/d"):
            assert not_fetched(path) == f"no regular file ('{path}')"
        assert "expected an absolute one or one that begins with ~/" in not_fetched("relative/path")
        with pytest.raises(
            FleetError, match=r"node1: sending source: the folder is gone; was it removed\? \('/tmp/no'\)"
        ):
            fleet.send(source, "/tmp/no/such")
        with pytest.raises(FleetError, match=r"node1: sending source: Is a directory \('/tmp/"):
            fleet.send(source, "/tmp/d")
    assert not (tmp_path / "back").exists()
    assert partials(tmp_path) + partials(host.path("/tmp")) == []


def test_a_full_disk_keeps_nothing_of_a_file(lab: Lab, host: Host, source: Path) -> None:
    with faults.limit_disk(host, "/var/full", size_kib=64):
        with pytest.raises(FleetError) as caught, opened(lab) as fleet:
            fleet.send(source, "/var/full/there")
        assert str(caught.value) == (
            "node1: sending source: No space left on device: 65536 bytes are free, expected 300000 or more; make room "
            "('/var/full')"
        )
        assert list(host.path("/var/full").iterdir()) == []
    small = faults.limit_disk(host, "/root/.aorta", size_kib=64)
    with small, pytest.raises(FleetError, match=r"^node1: the folder /root/.aorta/state cannot be .*No space left"):
        Fleet({"node1": transport(lab, "node1")}).open({"node1": STATE_DIR})
    almost = faults.limit_disk(host, "/root/.aorta", size_kib=64)
    with almost:
        host.path("/root/.aorta/other").write_bytes(bytes(48 * 1024))
        with pytest.raises(FleetError, match=r"^node1: .*No space left"):
            Fleet({"node1": transport(lab, "node1")}).open({"node1": STATE_DIR})
        assert [path.name for path in host.path("/root/.aorta").iterdir()] == ["other"]


def test_a_full_disk_here_is_not_taken_for_the_host_s(lab: Lab, host: Host, source: Path) -> None:
    with faults.limit_disk(host, "/var/full", size_kib=64):
        transport(lab, "node1").put(source, "/tmp/there")
        here = host.path("/var/full/back")  # seen from this machine
        with pytest.raises(OSError, match="No space left on device on this machine") as caught:
            transport(lab, "node1").get("/tmp/there", here)
        assert caught.value.filename == str(here)
        assert list(here.parent.iterdir()) == []


@pytest.mark.parametrize("size", [50_000, 3_000_000])
def test_a_file_that_changes_while_it_is_sent_is_sent_as_it_is_then(
    lab: Lab, host: Host, tmp_path: Path, size: int
) -> None:
    source = tmp_path / "changing"
    source.write_bytes(os.urandom(1_500_000))
    folder = host.path("/tmp")
    with faults.slow_link(host, "10mbit"), in_background(lambda: transport(lab, "node1").put(source, "/tmp/changed")):
        wait_until(lambda: size_of_partial(folder) > 300_000, "a part of the file", PATIENCE_S)
        source.write_bytes(b"n" * size)
    assert host.path("/tmp/changed").read_bytes() == b"n" * size
    assert partials(folder) == []


def test_a_dead_link_ends_a_copy(lab: Lab, host: Host, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(1_500_000))
    impatient = SshTransport("node1", access(lab), connect_timeout_s=1, answer_timeout_s=1)

    def put() -> None:
        with pytest.raises(OSError, match=r"did not answer in time|opened no session|no answer within 2 s|was lost"):
            impatient.put(source, "/tmp/large")

    with faults.slow_link(host, "6mbit"), in_background(put):
        wait_until(lambda: size_of_partial(host.path("/tmp")) > 300_000, "a part of the file", PATIENCE_S)
        cut = faults.cut_link(host)
    cut.undo()
    assert not host.path("/tmp/large").exists()
    for partial in partials(host.path("/tmp")):  # nobody could be asked to remove it
        partial.unlink()


def test_a_read_only_folder_is_named(lab: Lab, host: Host, source: Path) -> None:
    with faults.protect_folder(host, "/var/results"):
        with pytest.raises(FleetError) as caught, opened(lab) as fleet:
            fleet.send(source, "/var/results/there")
        assert str(caught.value) == (
            "node1: sending source: Read-only file system, expected a folder that can be written ('/var/results')"
        )


def test_a_read_only_home_is_named_with_what_helps(lab: Lab, host: Host) -> None:
    wanted = r"^node1: the folder \S+/\.aorta/state cannot be written: Read-only .*; .* set another work_dir$"
    with faults.protect_folder(host, "/root"), pytest.raises(FleetError, match=wanted):
        Fleet({"node1": transport(lab, "node1")}).open({"node1": STATE_DIR})


def test_what_was_sent_before_the_link_broke_is_not_sent_again(lab: Lab, host: Host, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(os.urandom(1_500_000))
    folder = host.path("/tmp")
    with faults.slow_link(host, "6mbit"), in_background(lambda: transport(lab, "node1").put(source, "/tmp/large")):
        wait_until(lambda: size_of_partial(folder) > 300_000, "a part of the file", PATIENCE_S)
        [partial] = partials(folder)
        inode = partial.stat().st_ino
        cut_sessions(host)
    assert host.path("/tmp/large").read_bytes() == source.read_bytes()
    assert host.path("/tmp/large").stat().st_ino == inode
    assert partials(folder) == []
    wait_clean(host)


def test_what_was_fetched_before_the_link_broke_is_not_fetched_again(lab: Lab, host: Host, tmp_path: Path) -> None:
    host.path("/tmp/big").write_bytes(os.urandom(1_500_000))
    target = tmp_path / "back"
    with faults.slow_link(host, "6mbit"), in_background(lambda: transport(lab, "node1").get("/tmp/big", target)):
        wait_until(lambda: size_of_partial(tmp_path) > 300_000, "a part of the file", PATIENCE_S)
        cut_sessions(host)
        wait_until(lambda: size_of_partial(tmp_path) > 600_000, "more of it", PATIENCE_S)
    assert target.read_bytes() == host.path("/tmp/big").read_bytes()
    assert partials(tmp_path) == []


def test_a_link_that_breaks_again_is_an_error_and_leaves_nothing_here(lab: Lab, host: Host, tmp_path: Path) -> None:
    host.path("/tmp/big").write_bytes(os.urandom(3_000_000))

    def get() -> None:
        with pytest.raises(OSError, match=r"was lost|ended the session"):
            transport(lab, "node1").get("/tmp/big", tmp_path / "back")

    wait_clean(host)
    with faults.slow_link(host, "6mbit"), in_background(get):
        cut_sessions(host)
        cut_sessions(host)
    assert not (tmp_path / "back").exists()
    assert partials(tmp_path) == []


@pytest.mark.parametrize("new", [b"shorter", b"other " * 250_000])
def test_a_file_that_changes_once_is_fetched_as_it_is_then(lab: Lab, host: Host, tmp_path: Path, new: bytes) -> None:
    path = host.path("/tmp/changing")
    path.write_bytes(os.urandom(1_500_000))
    target = tmp_path / "back"
    with faults.slow_link(host, "10mbit"), in_background(lambda: transport(lab, "node1").get("/tmp/changing", target)):
        wait_until(lambda: size_of_partial(tmp_path) > 300_000, "a part of the file", PATIENCE_S)
        path.write_bytes(new)
    assert target.read_bytes() == new
    assert partials(tmp_path) == []


def test_a_file_that_goes_on_changing_is_no_whole_file(lab: Lab, host: Host, tmp_path: Path) -> None:
    path = host.path("/tmp/growing")
    path.write_bytes(os.urandom(100_000))
    host.start("sh", "-c", "while [ -e /tmp/growing ]; do echo more >>/tmp/growing; sleep 0.01; done")
    try:
        with pytest.raises(OSError, match=r"^/tmp/growing changes while it is copied: \d+ bytes came, \d+ are there"):
            transport(lab, "node1").get("/tmp/growing", tmp_path / "back")
    finally:
        path.unlink()
    assert not (tmp_path / "back").exists()
    assert partials(tmp_path) == []


def test_a_host_that_allows_one_session_says_so_before_anything_runs_there(lab: Lab, host: Host) -> None:
    why = rf"^node1: {host.address} port 22 as root opens no further session .*; is MaxSessions of sshd 2 or more\?$"
    with faults.set_in_sshd(host, "MaxSessions 1"):
        fleet = Fleet({each.name: transport(lab, each.name) for each in lab.hosts})
        with pytest.raises(FleetError, match=why):
            fleet.open(dict.fromkeys(fleet.hosts, STATE_DIR))
        wait_clean(host)


def test_two_sessions_are_enough(lab: Lab, host: Host, source: Path, tmp_path: Path) -> None:
    with faults.set_in_sshd(host, "MaxSessions 2"), opened(lab) as fleet:
        for number in range(5):
            fleet.send(source, f"/tmp/there{number}")
            fleet.fetch("node1", f"/tmp/there{number}", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == source.read_bytes()
    wait_clean(host)


def test_without_an_sftp_server_a_sentence_says_what_to_look_at(lab: Lab, host: Host, source: Path) -> None:
    host.run(["mv", "/usr/lib/openssh/sftp-server", "/usr/lib/openssh/away"], check=True)
    try:
        said = r"^\S+ port 22 as root answers no SFTP: .*expected an SFTP server, .* sshd_config, .* print something\?$"
        with pytest.raises(OSError, match=said):
            transport(lab, "node1").put(source, "/tmp/there")
    finally:
        host.run(["mv", "/usr/lib/openssh/away", "/usr/lib/openssh/sftp-server"], check=True)


def test_an_sshd_without_the_subsystem_is_enough(lab: Lab, host: Host, source: Path, tmp_path: Path) -> None:
    with faults.offer_no_sftp(host):
        there = transport(lab, "node1")
        there.put(source, "/tmp/there")
        there.get("/tmp/there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
